"""An experiment whose sites a program gives, run in this process."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tideline import nets
from tideline.client.answers import RunResult
from tideline.client.output import make_folder
from tideline.core.algorithm import Methods
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.run import Role, RunId
from tideline.engine.model.experiment import read_experiment
from tideline.engine.model.runs import Status
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.experiments.simulation import HERE, all_models, check_best_names, home_in, play
from tideline.learning.formats.holdings import Holdings
from tideline.learning.model_file import Model
from tideline.learning.sites.site import Site, holdings_of
from tideline.nets.computing.devices import AUTO, chosen
from tideline.written.files import ExperimentText


@dataclass
class GivenSite:
    """A site that a program gives, read once for each world and role, so that what is wrong is said before the run begins."""

    name: str
    site: Site
    read: list[tuple[World, Role, Holdings]] = field(default_factory=list)

    def __call__(self, world: World, role: Role) -> Holdings:
        known = next((holdings for *of, holdings in self.read if of == [world, role]), None)
        if known is not None:
            return known
        try:
            holdings = holdings_of(self.site, world, role)
        except DataRefused as error:
            raise DataRefused(f"{self.name}: {error.what}", error.todo, **{**error.context, "site": self.name}) from error
        self.read.append((world, role, holdings))
        return holdings

    @property
    def role(self) -> Role:
        return Role(self.site.role)


def simulate_given(
    text: ExperimentText, methods: Methods, sites: Mapping[str, Site], out: Path | None, progress: bool
) -> tuple[RunResult, dict[str, Model]]:
    """Run an experiment with sites that a program gives; its result, and its models as `all_models` names them.

    `out` takes result.json, the state and the models. Such a simulation does not go on after it was killed.
    """
    with text.located():
        check_given(text, sites)
        experiment = read_experiment(text.value)
        given = {name: GivenSite(name, site) for name, site in sites.items()}
        roster = {name: site.role.value for name, site in given.items()}
        if experiment.roster and {n: r.value for n, r in experiment.roster.items()} != roster:
            raise ConfigRefused("roster differs from the sites and their roles", "Leave it out of simulations", path="roster")
        check_best_names(experiment, sites, "sites")
        nets.check(experiment.world)
    for each in given.values():
        each(experiment.world, each.role)
    if out is not None:
        make_folder(out)
    placed = ExperimentText(text.name, {**text.value, "roster": roster}, text.places)
    models = dict[str, Model]()
    with tempfile.TemporaryDirectory(prefix="tideline-") as scratch:
        own = {name: SimSite(each) for name, each in given.items()}
        home = home_in(None, Path(scratch), {}, HERE, placed)
        with contextlib.closing(Federation(methods=methods, sites=own, home=home, device=chosen(AUTO))) as federation:
            result = play(federation, placed, {}, out, methods, quiet=not progress)
            if result["status"] == Status.COMPLETED:
                models |= dict(all_models(federation, RunId(result["run"]), result, methods))
                models = {name: in_memory(model) for name, model in models.items()}
    return result, models


def check_given(text: ExperimentText, sites: Mapping[str, Site]) -> None:
    """Raises ConfigRefused for sections that say which sites there are, beside those that are given."""
    if not sites:
        raise ConfigRefused("sites is empty", 'Give sites={"a": tideline.Site(train=...), ...}', path="sites")
    for name in ("data", "deal", "select"):
        if text.value.get(name):
            raise ConfigRefused(f"{name} and sites both say which sites there are", "Leave one of the two out", path=name)


def in_memory(model: Model) -> Model:
    """A model whose tensors are no maps of files."""
    members = tuple(replace(each, model=in_memory(each.model)) for each in model.members)
    return replace(model, weights={name: w.clone() for name, w in model.weights.items()}, members=members)
