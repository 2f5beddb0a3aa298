"""A method under the laws, and what its own folder cannot say: its bar, its kind of data, and its exceptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from tests.laws.stage import Cuts, HoardingParts, Stage, hoarding_stage
from tests.synthetic import FEATURES, IMAGES, NAMES, experiment, sites
from tideline.core.algorithm import Algorithm, Methods, casting, plan_of, resolve
from tideline.core.asked.normalise import Normalise, Scaling
from tideline.core.asked.scoring import Prior, Scoring
from tideline.core.phase import AnyPlan
from tideline.core.privacy import DEFAULT_POLICY, Audience, Exposure, Policy
from tideline.core.run import RunId
from tideline.core.settings import EMPTY
from tideline.engine.simulation.federation import SimSite
from tideline.learning.in_world import in_world


@dataclass(frozen=True)
class Bar:
    """What a method must reach on held-out rows: the mean accuracy of the sites that are told one."""

    accuracy: float
    preset: str = "demo"
    config: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    role: str = ""  # only sites of this role count; empty: all


# A source of 41 images.
LONGER: Mapping[str, Any] = {"source_epochs": 30, "source_rate": 0.03}
# One line a method. A registered method without a line fails law 8.
BARS: Mapping[str, Bar] = {
    "fedavg": Bar(0.9),
    "fedprox": Bar(0.9),
    "fedgma": Bar(0.9),
    "fedsr": Bar(0.9),
    "gaussian_heads": Bar(0.95),
    "self_training": Bar(0.95, role="target"),
    "local": Bar(0.9),
    "central": Bar(0.9),
    "feddadil": Bar(0.95, config={"rounds": 3, "points": 60, "batch": 30, "encoder_rounds": 4}, role="target"),
    "hfedf": Bar(0.95),
    "pfedhn": Bar(0.95),
    "source_model": Bar(0.9, role="target"),
    "shot": Bar(0.95, role="target"),
    "fedavg_shot": Bar(0.95, role="target"),
    "fedprox_pl": Bar(0.95, role="target"),
    "fedamp_pl": Bar(0.95, role="target"),
    "ifca_pl": Bar(0.95, role="target"),
    "fedpcl_pl": Bar(0.95, role="target"),
    "ladd": Bar(0.9, config=LONGER, role="target"),
    "ladd_pl": Bar(0.95, config=LONGER, role="target"),
    "fedwca": Bar(0.95, role="target"),
    "stlf": Bar(0.9, role="target"),
    "fada": Bar(0.95, role="target"),
    "fdann": Bar(0.95, role="target"),
    "kd3a": Bar(0.95, role="target"),
    "adabn": Bar(0.9, config=LONGER, role="target"),
    "fdan": Bar(0.95, role="target"),
}
# What owners let out beyond the default policy, for methods that need their word.
ALLOWED: Mapping[str, Policy] = {
    "central": frozenset({(Exposure.SAMPLES, Audience.COORDINATOR)}),
    "fedpcl_pl": frozenset({(Exposure.STATISTIC, Audience.PEERS)}),
    "fdan": frozenset({(Exposure.METRIC, Audience.PEERS), (Exposure.STATISTIC, Audience.PEERS)}),
}
# Methods whose sites send rows or features of them: these are not looked for among the bytes that pass. No other may declare any.
SENDS_ROWS: frozenset[str] = frozenset({"central"})
# Methods that work on images only.
ON_IMAGES: frozenset[str] = frozenset({"ladd", "ladd_pl", "adabn"})
# Networks of methods for which the worlds' own lack something.
NETWORKS: Mapping[str, str] = {"adabn": "lenet_bn", "gaussian_heads": "linear"}
# Memory fields whose shapes a declared field of a reply happens to share; their values are looked for all the same.
SAME_SHAPE: Mapping[str, tuple[str, ...]] = {
    # Each site keeps a model, or the one that it is scored with, and sends one.
    **dict.fromkeys(("self_training", "local_unseen", "fdan"), ("model",)),
    **dict.fromkeys(("source_model", "shot", "fedavg_shot", "fedprox_pl", "ladd_pl", "fedwca", "kd3a", "adabn"), ("f", "g")),
    "ladd": ("f", "g", "source", "teacher"),
    # A reference for each class, as wide as its row of the classifier.
    "fedsr": ("r_mu", "r_s"),
    # A number for each of the atoms'; a number for each feature; linear layers, and summaries with a point for each class.
    "feddadil": ("moments", "shift", "stretch", "candidates", "summaries", "heads"),
    # The mean of what sites send, and a number for each class.
    "fedpcl_pl": ("mean", "present"),
    # A model of its own, which it seals, and the mean of others'.
    "stlf": ("h", "own", "models"),
}
# Memory fields whose values a declared field of a reply sends too: method -> fields.
ALSO_SENT: Mapping[str, tuple[str, ...]] = {
    # The common model, of which local training leaves what no row reaches. `local` with its setting `unseen`, a case of its own,
    # sends the model that a site kept in the end.
    **dict.fromkeys(("self_training", "local_unseen"), ("model",)),
    # A source model is what its only source sent, for all; means of sites' models are like it where no row reaches.
    **dict.fromkeys(("source_model", "fedavg_shot", "fedprox_pl", "fedamp_pl", "ifca_pl", "fedpcl_pl"), ("f", "g")),
    **dict.fromkeys(("ladd_pl", "fedwca", "kd3a", "adabn"), ("f", "g")),
    "shot": ("g",),
    "ladd": ("f", "g", "source"),
    # The mean of what sources sent: weights that no site changed are those of each of them. Moments of a site's features.
    "feddadil": ("model", "heads", "shift", "stretch"),
    # Weights that no row reaches stay as the averaging before left them.
    "stlf": ("h", "models"),
}

# In which forms weights travel, by a name.
WIRES: Mapping[str, Any] = {
    "bfloat16": {"format": "bfloat16", "down": True},
    "int8": {"format": "int8", "scale": "row", "delta": True, "down": "int8"},
    "topk": {"format": "topk", "share": 0.2, "delta": True},
}


@dataclass(frozen=True)
class Case:
    """One method: three sites in the roles of its own cast, the preset `tiny`, a small world.

    normalise: a kind, of its rows. prior: at which its targets predict; with em there are two sources. wire: one of WIRES.
    """

    name: str
    methods: Methods
    normalise: str = field(default="none", kw_only=True)
    prior: str = field(default="source", kw_only=True)
    wire: str = field(default="", kw_only=True)

    def __str__(self) -> str:
        return self.name

    @property
    def algorithm(self) -> Algorithm:
        return resolve(self.methods, self.name)

    @property
    def in_world(self) -> Algorithm:
        """As it is played where rows are normalised and predictions corrected."""
        return in_world(self.algorithm, Normalise(Scaling(self.normalise)), Prior(self.prior))

    @property
    def config(self) -> Any:
        """The settings of the preset."""
        return self.algorithm.configure({}, "tiny")

    @property
    def plan(self) -> AnyPlan:
        """As it is played."""
        return plan_of(self.in_world, self.config, Scoring())

    @property
    def roster(self) -> dict[str, str]:
        """Name and role of each site."""
        if self.prior == "em":
            return {"anna": "source", "bert": "source", "carl": "target"}
        return {name: role.value for name, role in zip(NAMES, casting(self.algorithm.cast, 3), strict=False)}

    def experiment(self, **more: Any) -> dict[str, Any]:
        """What a person would write to run it."""
        world = dict(IMAGES if self.name in ON_IMAGES else FEATURES)
        world["model"] = NETWORKS.get(self.name, world["model"])
        world["normalise"] = self.normalise
        more = {"wire": WIRES[self.wire], **more} if self.wire else more
        return experiment(self.name, more.pop("roster", self.roster), world=world, **{"prior": self.prior, **more})

    def sites(self) -> dict[str, SimSite]:
        """Its sites, whose owners agree to what it sends."""
        policy = DEFAULT_POLICY | ALLOWED.get(self.name, frozenset())
        return {name: replace(site, policy=policy) for name, site in sites(tuple(self.roster)).items()}

    def stage(self, methods: Methods | None = None, cuts: Cuts | None = None, **sites: SimSite) -> Stage:
        """A federation that forgets no part; some sites may be exchanged."""
        return Stage(methods or self.methods, self.sites() | sites, cuts, HoardingParts())

    def played(self, stage: Stage | None = None, **more: Any) -> tuple[Stage, RunId]:
        """A run from beginning to end; one that is as the case says is played once for all laws, which only look at it."""
        if stage is None and not more:
            return undisturbed(self)
        stage = stage or self.stage()
        run = stage.start(self.experiment(**more))
        stage.play(run)
        return stage, run


@cache
def undisturbed(case: Case) -> tuple[Stage, RunId]:
    """The run that nothing befalls; nothing that was in it is forgotten, at the sites neither."""
    return case.played(hoarding_stage(case.methods, case.sites()))


def cases(methods: Methods) -> list[Case]:
    """Every method of a registry."""
    return [Case(name, methods) for name, _ in methods]
