"""The laws for runs that ask a part of their sites, for every method that may be sampled; all others refuse it by name."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.laws import laws
from tests.laws.case import Case
from tests.laws.stage import Stage
from tests.laws.trace import asked
from tests.synthetic import NAMES
from tideline.algorithms import METHODS
from tideline.core.algorithm import casting, resolve
from tideline.core.errors import ConfigRefused
from tideline.core.run import RunId
from tideline.engine.compute.configured import Configured, scores
from tideline.engine.model.runs import JOIN, Status

SAMPLED = [name for name, _ in METHODS if Configured(m := resolve(METHODS, name), m.configure({}, "tiny")).sampled]
# What the papers sample, or what works with any part of the sites; whoever adds a method decides where it stands.
EXPECTED = {
    *("fedavg", "fedprox", "fedgma", "fedsr", "self_training", "hfedf"),
    *("shot", "fedavg_shot", "fedprox_pl", "fedamp_pl", "ifca_pl", "fedpcl_pl", "ladd", "ladd_pl"),
}


@dataclass(frozen=True)
class Crowd(Case):
    """Five sites, of which each exchange that may be sampled asks a number or a share. decay: whether unused weights decay."""

    sample: float = 2
    decay: bool = True

    @property
    def roster(self) -> dict[str, str]:
        return {name: role.value for name, role in zip(NAMES, casting(self.algorithm.cast, len(NAMES)), strict=True)}

    def experiment(self, **more: Any) -> dict[str, Any]:
        still = {} if self.decay else {"config": {"weight_decay": 0.0, "source_weight_decay": 0.0}}
        return super().experiment(**({"sample": self.sample} | still | more))


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
def test_the_laws_hold_with_cohorts(case: Crowd) -> None:
    """Laws 2 and 3: functions are pure; other seeds of the process, threads and rarer checkpoints change nothing."""
    laws.functions_are_pure(case)
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
    sample, decay = (0.75, False) if case.name in ("ladd", "ladd_pl") else (0.01, True)
    laws.peers_see_what_is_declared(replace(case, sample=sample, decay=decay))


@every
def test_another_seed_asks_others(case: Crowd) -> None:
    """Cohorts follow from the run's seed."""
    assert whom(*case.played()) != whom(*case.played(seed=8))


@every
def test_the_last_scoring_may_be_of_a_cohort(case: Crowd) -> None:
    """Who was never scored has no accuracy, and nothing failed."""
    stage, run = case.played(sample={"sites": 2, "last": "sample"})
    assert stage.row(run).status is Status.COMPLETED, stage.row(run).cause
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
