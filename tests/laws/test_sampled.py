"""The laws for runs that ask a part of their sites, for every method that may be sampled; all others refuse it by name."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest

from tests.laws import laws
from tests.laws.case import ALLOWED, Case
from tests.laws.stage import Stage
from tests.laws.trace import asked
from tests.synthetic import NAMES, sites
from tideline.algorithms import METHODS
from tideline.core.algorithm import casting, resolve
from tideline.core.errors import ConfigRefused
from tideline.core.privacy import DEFAULT_POLICY
from tideline.core.run import RunId
from tideline.engine.compute.configured import Configured, scores
from tideline.engine.model.runs import JOIN, Status
from tideline.engine.simulation.federation import SimSite

SAMPLED = [name for name, _ in METHODS if Configured(m := resolve(METHODS, name), m.configure({}, "tiny")).sampled]
# What the papers sample, or what works with any part of the sites; whoever adds a method decides where it stands.
EXPECTED = {
    *("fedavg", "fedprox", "fedgma", "fedsr", "self_training", "hfedf"),
    *("shot", "fedavg_shot", "fedprox_pl", "fedamp_pl", "ifca_pl", "fedpcl_pl", "ladd", "ladd_pl"),
}


@dataclass(frozen=True)
class Crowd(Case):
    """Five sites, of which each exchange that may be sampled asks two."""

    @property
    def roster(self) -> dict[str, str]:
        return {name: role.value for name, role in zip(NAMES, casting(self.algorithm.cast, len(NAMES)), strict=True)}

    def sites(self) -> dict[str, SimSite]:
        policy = DEFAULT_POLICY | ALLOWED.get(self.name, frozenset())
        return {name: SimSite(site.open_site_data, policy) for name, site in sites(NAMES).items()}

    def experiment(self, **more: Any) -> dict[str, Any]:
        return super().experiment(**({"sample": 2} | more))


@dataclass(frozen=True)
class Few(Crowd):
    """The same with another share."""

    share: float = 0.01

    def experiment(self, **more: Any) -> dict[str, Any]:
        return super().experiment(sample=self.share, **more)


@dataclass(frozen=True)
class Still(Few):
    """And weights that no row reaches stay as they are."""

    def experiment(self, **more: Any) -> dict[str, Any]:
        return super().experiment(**({"config": {"weight_decay": 0.0, "source_weight_decay": 0.0}} | more))


every = pytest.mark.parametrize("case", [Crowd(name, METHODS) for name in SAMPLED], ids=str)


def whom(stage: Stage, run: RunId) -> dict[int, set[str]]:
    """Who was asked at each place of the plan."""
    made: dict[int, set[str]] = {}
    for order in asked(stage.journal, run):
        if order.cursor != JOIN:
            made.setdefault(order.cursor, set()).add(order.client)
    return made


@every
def test_it_asks_two_where_it_may_and_scores_all_in_the_end(case: Crowd) -> None:
    """Nobody else works in those exchanges, nor is anybody sent anything; the result tells the accuracy of all who are scored."""
    stage, run = case.played()
    assert stage.row(run).status is Status.COMPLETED, stage.row(run).cause
    plan, made = case.algorithm.plan(case.config), whom(stage, run)
    last = max(at for at, phase in enumerate(plan) if phase.sampled and scores(phase))
    sampled = [at for at in made if plan[at].sampled and at != last]
    assert all(len(made[at]) == 2 for at in sampled)
    assert {plan[at].name for at in sampled if not scores(plan[at])} and len({frozenset(made[at]) for at in sampled}) > 1
    assert {job for job in stage.jobs if job[1] != JOIN} == {(name, at) for at, names in made.items() for name in names}
    told = {client["name"]: client["accuracy"] for client in stage.result(run)["clients"]}
    assert {name for name, accuracy in told.items() if accuracy is not None} == made[last]
    assert len(made[last]) >= 4


@every
def test_its_functions_are_pure(case: Crowd) -> None:
    """Law 2, with cohorts."""
    laws.functions_are_pure(case)


@every
def test_arrival_and_the_host_process_do_not_matter(case: Crowd) -> None:
    """Law 3, with cohorts: other seeds of the process, other threads, rarer checkpoints."""
    laws.arrival_does_not_matter(case, laws.HOSTS[-1:])


@every
def test_restarts_in_the_middle_change_nothing(case: Crowd) -> None:
    """Law 4, with cohorts: before each turn everything is started anew, and rounds since the checkpoint are computed again."""
    expected = laws.ending(*case.played())
    stage = case.stage()
    run = stage.start(case.experiment(checkpoint_every=3))
    for action in stage.actions(run, lambda orders: random.Random(1).sample(orders, len(orders))):
        if stage.row(run).cursor != JOIN:
            stage.rebuild()
        action()
    assert laws.ending(stage, run) == expected


@pytest.mark.nightly(job="methods")
@every
def test_restarts_change_nothing(case: Crowd) -> None:
    """Law 4, with cohorts, at every place."""
    laws.restarts_change_nothing(case)


@every
def test_peers_see_only_what_is_declared_for_them(case: Crowd) -> None:
    """Law 6, with cohorts as small as a share may make them: two, or one where a reply may reach others."""
    # Without decay: weights that no row reaches would come to equal numbers in another round, half of what decays and half of
    # what was.
    share = 0.75 if case.name in ("ladd", "ladd_pl") else 0.01
    laws.peers_see_what_is_declared(Still(case.name, METHODS, share) if share > 0.5 else Few(case.name, METHODS, share))


@every
def test_another_seed_asks_others(case: Crowd) -> None:
    """Cohorts follow from the run's seed."""
    stage, run = case.played()
    other = case.stage()
    again = other.start(case.experiment(seed=8))
    other.play(again)
    assert whom(stage, run) != whom(other, again)


@every
def test_the_last_scoring_may_be_of_a_cohort(case: Crowd) -> None:
    """Who was never scored has no accuracy, and nothing failed."""
    stage = case.stage()
    run = stage.start(case.experiment(sample={"sites": 2, "last": "sample"}))
    assert stage.play(run).status is Status.COMPLETED, stage.row(run).cause
    scored = {entry["client"] for entry in stage.result(run)["curve"]}
    assert 1 <= len(scored) < len(NAMES)
    for client in stage.result(run)["clients"]:
        assert (client["accuracy"] is None) == (client["name"] not in scored) and client["failures"] == []


def test_the_table_is_as_it_was_decided() -> None:
    """A method that is added without `sampled` refuses samples; one that has it is listed here."""
    assert set(SAMPLED) == EXPECTED


@pytest.mark.parametrize("name", [name for name, _ in METHODS if name not in EXPECTED])
def test_all_others_refuse_a_sample_by_name(name: str) -> None:
    """And say which methods take one."""
    case = Crowd(name, METHODS)
    with pytest.raises(ConfigRefused, match=f"^{name} takes no sample") as refusal:
        case.stage().start(case.experiment())
    assert refusal.value.context["path"] == "sample"
    assert refusal.value.todo.removeprefix("Leave sample out, or use one of: ").split(", ") == SAMPLED
