"""What a user writes to start a run, the same from YAML, JSON and code: errors name the place. And its initial weights, a file
that is named by its digest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from tideline.archive.digests import PATTERN
from tideline.core.asked.computing import Computing
from tideline.core.asked.private import Privacy
from tideline.core.asked.sampling import Sampling
from tideline.core.asked.scoring import Prior, Scores, Scoring, Selection
from tideline.core.asked.secure import SecureSums
from tideline.core.asked.wire import Format, Wire, wire_of
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.core.rows import NO_AUGMENT, Augment
from tideline.core.run import MOST_THREADS, ClientId, Digest, Role, RunId, RunSpec, Shares, Waiting
from tideline.core.settings import EMPTY, Plain, nearest, parse, plain, setting
from tideline.engine.model.access.projects import DEFAULT
from tideline.engine.model.orders import Files
from tideline.engine.model.runs import JOIN, RunRow

TRACKERS = ("mlflow", "tensorboard", "trackio", "wandb")  # that `track` may name
REFERENCE = "fedavg"  # what a run is compared with unless it says otherwise: no adaptation


@dataclass(frozen=True)
class Selector:
    """Every enrolled client with these labels takes part in this role."""

    labels: Mapping[str, str] = setting(doc="labels that a client must have, all of them")
    role: Role = setting(doc="the role that it takes")


@dataclass(frozen=True)
class Reference:
    """A second run beside the first, on the same sites and held-out rows; its accuracy is the result's `source_only`."""

    method: str = setting(REFERENCE, doc="the method to compare with")
    roles: tuple[Role, ...] = setting((Role.SOURCE,), doc="whose labels the reference may learn from")
    config: Mapping[str, Plain] = setting(EMPTY, doc="settings of its own; those that both methods have are shared")


class Rule(StrEnum):
    """How what was rehearsed decides.

    VOTE     no adaptation and all candidates that gained on average vote, those that gained more with more weight
    MEAN     the candidate of the largest mean gain
    BOUND    the same, less a standard error over sites
    SIMILAR  the largest mean gain, in which sites that are shifted as the target weigh more
    """

    VOTE = "vote"
    MEAN = "mean"
    BOUND = "bound"
    SIMILAR = "similar"


@dataclass(frozen=True)
class Candidate:
    """An adaptation to choose: a method with its settings."""

    method: str = setting(doc="the method's name, see `tideline methods`")
    label: str = setting("", doc="its name in the verdict; default the method's")
    preset: str | None = setting(None, doc="one of the method's presets; `config` overrides it")
    config: Mapping[str, Plain] = setting(EMPTY, doc="settings of its own, over those of the experiment that it has")
    world: Mapping[str, Plain] = setting(EMPTY, doc="what it has otherwise than the experiment's world: normalise")
    prior: Prior | None = setting(None, doc="at which shares of the classes targets predict; default the experiment's")

    @property
    def name(self) -> str:
        return self.label or self.method


@dataclass(frozen=True)
class Rehearse:
    """Try candidates at labelled sites that play the target, and choose by what they gained there."""

    candidates: tuple[Candidate, ...] = setting((), doc="names of methods, or {label, method, preset, config, world, prior}")
    on: int | str = setting("all", doc="how many labelled sites play the target in turn: a number, or all")
    mode: str | None = setting(
        None,
        choices=("heads", "full"),
        doc="heads: over an encoder that stays as it is; full: all is trained anew for each site. Default as the world has it",
    )
    rule: Rule = setting(Rule.VOTE, doc="what decides: vote, mean, bound or similar")

    @classmethod
    def unfolded(cls, given: Mapping[str, Any], where: str) -> Mapping[str, Any]:
        """With candidates by name alone written out."""
        named = given.get("candidates")
        if not isinstance(named, (list, tuple)):
            return given
        return {**given, "candidates": [{"method": each} if isinstance(each, str) else each for each in named]}


@dataclass(frozen=True)
class SiteSource:
    """Where a simulated site's data lie: a folder as an agent would have it, or a part of a shipped set."""

    role: Role = setting(doc="the site's role")
    folder: str = setting("", doc="a data folder")
    dataset: str = setting("", doc="a shipped set: digits")
    domain: str = setting("", doc="a domain of the folder, which holds all of its own unless said; or of the set")
    part: int = setting(0, low=0, doc="which of `parts` random parts")
    parts: int = setting(1, low=1, doc="in how many parts the domain is dealt")
    rows: int | None = setting(None, low=2, doc="take no more rows than this")


@dataclass(frozen=True)
class DealData:
    """Simulated sites that share out one folder of domains. The rule settles which other keys have a meaning, and their defaults.

    leave-out  client-1 to client-N, sources, and `unseen`, a target; with `target_share` it has rows to adapt with
    dirichlet  client-1 to client-N, of which some have labels for most of their rows and the others, targets, for none
    """

    folder: str = setting(doc="A data folder with all domains, each row labelled.")
    rule: str = setting("leave-out", choices=("leave-out", "dirichlet"), doc="How rows are dealt.")
    clients: int | None = setting(None, low=2, doc="Number of clients, N. [dirichlet: 10]")
    seed: int | None = setting(None, low=0, high=2**62, doc="Random seed. The same seed gives the same rows. [default: 0]")
    share: float | None = setting(None, low=0.001, high=0.999, doc="Share of each client's rows to hold out. [default: 0.1]")
    leave_out: str | None = setting(None, doc="leave-out: the domain that no client has, and on which `unseen` is scored.")
    domains: int | None = setting(None, low=1, doc="leave-out: number of source domains of each client, d.")
    shots: int | None = setting(None, low=0, doc="leave-out: rows of that domain in each client's training. [default: 0]")
    target_share: float | None = setting(
        None,
        low=0.001,
        high=0.999,
        doc="leave-out: share of its rows that score `unseen`, which trains on the others without labels. [default: all]",
    )
    labelled: int | None = setting(None, low=1, doc="dirichlet: number of clients with labels. [default: 5]")
    case: str | None = setting(
        None,
        choices=("single", "mixed", "split"),
        doc="dirichlet: single, mixed or split: one domain for all clients, all, or one each.",
    )
    take: tuple[str, ...] | None = setting(None, doc="dirichlet: a domain to deal. Repeatable. [default: all]")
    classes: int | None = setting(None, low=2, doc="dirichlet: number of classes of each client. [default: 4, or all]")
    alpha: float | None = setting(None, low=0.1, doc="dirichlet: concentration of the class mixes. [default: 5]")
    scale: float | None = setting(None, doc="dirichlet: factor on all numbers of rows. [default: 1]")
    role: Role | None = setting(None, doc="dirichlet: role of the clients with labels: source or peer. [default: source]")


@dataclass(frozen=True)
class Experiment:
    """A method, a world, who takes part, and how long to wait."""

    method: str = setting(doc="the method's name, see `tideline methods`")
    name: str = setting("", doc="a name for users")
    preset: str | None = setting(None, doc="one of the method's presets; `config` overrides it")
    config: Mapping[str, Plain] = setting(EMPTY, doc="the method's settings, see `tideline contract NAME`")
    world: World = field(default_factory=World, metadata={"doc": "what all members agree on"})
    augment: Augment = setting(NO_AUGMENT, doc="how images are changed at random where sites train on them")
    roster: Mapping[str, Role] = setting(EMPTY, doc="client name: role")
    select: tuple[Selector, ...] = setting((), doc="or: labels and role")
    data: Mapping[str, SiteSource] = setting(EMPTY, doc="simulations only: site name: role and data")
    deal: DealData | None = setting(None, doc="simulations only, in place of data: one folder's domains, dealt to clients")
    seed: int = setting(0, low=0, high=2**62, doc="same seed, same bytes")
    waiting: Waiting = field(default_factory=Waiting, metadata={"doc": "how long a round waits and for whom"})
    sample: float | int | Sampling | None = setting(None, doc="ask a part of the sites each round: how many, or a mapping")
    scores: Scores = setting(Scores.LAST, doc="which scorings tell all scores with intervals: last, every, or accuracy for none")
    shares: Shares = field(default_factory=Shares, metadata={"doc": "how much one site may count in a fold: max, counts"})
    selection: Selection = setting(Selection.NONE, doc="the score of validation rows by which the best round is found")
    prior: Prior = setting(Prior.SOURCE, doc="at which shares of the classes targets predict: source, or em for their own")
    reference: Reference | None = setting(None, doc="a run to compare with")
    rehearse: Rehearse | None = setting(None, doc="adaptations to rehearse at labelled sites, and to choose among")
    then: str = setting(
        "nothing", choices=("nothing", "run"), doc="after a rehearsal: nothing, or run what was chosen at the targets"
    )
    checkpoint_every: int = setting(1, low=1, doc="closed rounds between kept states")
    threads: int = setting(1, low=1, high=MOST_THREADS, doc="torch threads of a step; changes last digits")
    computing: Computing | None = setting(None, doc="how steps compute: precision, compile, accumulate, deterministic")
    wire: Format | Wire = setting(Format.FLOAT32, doc="in which numbers weights travel: float32, bfloat16, int8, or a mapping")
    privacy: Privacy | None = setting(None, doc="protect each row of a site by differential privacy: rows and epsilon at least")
    secure_sums: bool | SecureSums = setting(
        False, doc="add up what sites send so that nobody sees a single reply: true, or a mapping: clip, rows, bits, sites"
    )
    weights: str = setting("", doc="begin from these weights: the digest (BLAKE3) of a file that was uploaded")
    track: tuple[str, ...] = setting((), doc="experiment trackers that write it down: mlflow, tensorboard, trackio, wandb")

    @property
    def asked(self) -> dict[str, Plain]:
        """What its digest is of: who writes a run down makes it no other run."""
        said = plain(self)
        assert isinstance(said, dict)
        return {name: value for name, value in said.items() if name != "track"}

    @property
    def scoring(self) -> Scoring:
        """What it asks of its scorings; of a run that protects rows no more than an accuracy, as each score costs."""
        return Scoring(Scores.ACCURACY if self.privacy else self.scores, self.selection, prior=self.prior)

    @property
    def sums(self) -> SecureSums | None:
        """What `secure_sums` says, in full."""
        if isinstance(self.secure_sums, SecureSums):
            return self.secure_sums
        return SecureSums() if self.secure_sums else None

    @property
    def sampling(self) -> Sampling | None:
        """What `sample` says, in full."""
        return Sampling(self.sample) if isinstance(self.sample, int | float) else self.sample


SECTIONS = frozenset(each.name for each in fields(Experiment))
OF_WORLD = frozenset(each.name for each in fields(World))


def read_experiment(given: Mapping[str, Plain]) -> Experiment:
    """An experiment from plain data. Raises ConfigRefused with `context["path"]`."""
    if given.get("rehearse") is not None and "method" not in given:
        given = {**given, "method": REFERENCE}
    try:
        experiment = parse(Experiment, given)
    except ConfigRefused as error:
        name = error.context.get("path")
        if name in given and name not in SECTIONS:  # a setting that is not there, at the top
            place = "It is a setting of world: write it there" if name in OF_WORLD else "Settings of the method stand in config"
            raise ConfigRefused(error.what, f"{place}. {error.todo}", **error.context) from None
        raise
    if experiment.then != "nothing" and experiment.rehearse is None:
        raise ConfigRefused(
            f"then is {experiment.then}, and nothing is rehearsed before", "Add rehearse, or leave then out", path="then"
        )
    if experiment.rehearse is not None and experiment.reference is not None:
        what = "reference stands beside rehearse, whose candidates are compared with no adaptation: method at the top"
        raise ConfigRefused(what, "Leave reference out, or name its method at the top", path="reference")
    wire_of(experiment.wire)
    check_alone(experiment)
    check_summed(experiment)
    check_track(experiment.track)
    if experiment.sampling is not None:
        check_size(experiment.sampling.sites, "sample.sites" if isinstance(experiment.sample, Sampling) else "sample")
    return experiment


def check_alone(experiment: Experiment) -> None:
    """Raises ConfigRefused for a run that protects rows and has others beside it, whose cost nobody would add up."""
    for name in ("reference", "rehearse"):
        if experiment.privacy is not None and getattr(experiment, name) is not None:
            what = f"privacy stands beside {name}, whose runs learn of the same rows"
            raise ConfigRefused(what, f"Leave {name} out, and start what you compare with as a private run of its own", path=name)


def check_summed(experiment: Experiment) -> None:
    """Raises ConfigRefused for what looks at single replies, or changes them, where none is to be seen."""
    if experiment.sums is None:
        return
    for odd, name, why in (
        (wire_of(experiment.wire).on, "wire", "packs weights, and whole numbers under masks cannot be packed"),
        (experiment.shares != Shares(), "shares", "weighs single replies; secure_sums.rows limits what one site counts"),
        (experiment.sample is not None, "sample", "asks a part of the sites, and masks are made for all of them"),
        (experiment.rehearse is not None, "rehearse", "compares the accuracies of single sites"),
        (experiment.privacy is not None and experiment.privacy.follows, "privacy.quantile", "follows what single sites tell"),
    ):
        if odd:
            what = f"secure_sums stands beside {name}, which {why}"
            raise ConfigRefused(what, f"Leave {name} out, or leave secure_sums out", path=name)


def check_track(track: tuple[str, ...]) -> None:
    """Raises ConfigRefused for an unknown tracker, and for one that is named twice."""
    for i, name in enumerate(track):
        if name not in TRACKERS:
            todo = f"Use some of: {', '.join(TRACKERS)}{nearest(name, TRACKERS)}"
            raise ConfigRefused(f"track names {name[:80]!r}, which is no tracker", todo, path=f"track[{i}]")
        if name in track[:i]:
            raise ConfigRefused(f"track names {name} twice", "Name each tracker once", path=f"track[{i}]")


def check_size(sites: float, path: str) -> None:
    """Raises ConfigRefused for what is neither a number of sites nor a share of them."""
    todo = "Give a whole number such as 50, or a share such as 0.05"
    if sites <= 0:
        raise ConfigRefused(f"{path} is {sites}; one site at least is asked", todo, path=path)
    if isinstance(sites, float) and sites > 1:
        raise ConfigRefused(f"{path} is {sites}; a share of the sites is at most 1.0", todo, path=path)


# Uploads of initial weights are recorded under these names, beside those of sites. No run has this name.
UPLOADER = RunId("weights"), ClientId("users")


def uploader(project: str) -> tuple[RunId, ClientId]:
    """The names under which a project's uploads are recorded: what another has uploaded counts as not here."""
    return UPLOADER if project == DEFAULT else (UPLOADER[0], ClientId(f"users of {project}"))


WEIGHTS_CURSOR = JOIN - 1  # of a run's reference to its initial weights: before its first state
DIGEST = re.compile(PATTERN)
UPLOAD = "Upload the file with PUT /weights/{digest}, or start the run with `tideline run start`, which does that"


def check_weights_digest(weights: str) -> None:
    """Raises ConfigRefused for what names no file that was uploaded. Nothing: a run without weights."""
    if weights and not DIGEST.fullmatch(weights):
        what = f"weights is {weights[:80]!r}; it should be the digest of an uploaded file: b3- and its BLAKE3, in hexadecimal"
        raise ConfigRefused(what, UPLOAD, path="weights")


def weights_missing(weights: str) -> ConfigRefused:
    """The refusal of a file that is not here: never uploaded, or collected since."""
    return ConfigRefused(
        f"There are no weights {weights[:12]} here: they were not uploaded, or nothing needed them for an hour and they are gone",
        UPLOAD,
        path="weights",
    )


def base_digest(spec: RunSpec) -> Digest | None:
    """The file with the frozen part of the run's network; None where all of it trains."""
    return spec.initial_weights if spec.world.frozen else None


def base_files(spec: RunSpec) -> Files:
    """The same as files that each order and each kept state has beside its own."""
    digest = base_digest(spec)
    return () if digest is None else ((digest, spec.initial_weights_bytes),)


def initial_weights_of(run: RunRow) -> Files:
    """The file that a run begins from, with its bytes; nothing for a run that brings none."""
    return ((run.spec.initial_weights, run.spec.initial_weights_bytes),) if run.spec.initial_weights else ()
