"""In-distribution and out-of-distribution accuracy: of whom they are told, from what sites were asked and told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.laws.stage import Stage
from tests.synthetic import IMAGES, NAMES, experiment, sites
from tideline.algorithms import METHODS
from tideline.core.asked.world import World
from tideline.core.privacy import TO_COORDINATOR, Clause, Exposure
from tideline.core.run import ClientId, Digest, Member, OrderId, Role, RunId, RunSpec
from tideline.engine.coordinator.result import Shares, generalization
from tideline.engine.model.orders import OrderRow, OrderStatus
from tideline.engine.model.runs import JOIN, PhaseFact, RunRow
from tideline.engine.model.totals import SiteTotals, with_orders
from tideline.engine.simulation.federation import simulate

FOUR = {"anna": "source", "bert": "peer", "carl": "target", "dora": "target"}
AT_NIGHT = pytest.mark.nightly(job="services")
ADAPTING = ("shot", "fedavg_shot", "fedprox_pl", "ifca_pl", "ladd", "fedwca", "adabn")


def test_a_run_that_generalizes() -> None:
    """Means over the sites that taught, and over the targets; null until both have been scored."""
    on = Stage(METHODS, sites(NAMES[:4]))
    run = on.start(experiment("fedavg", FOUR))
    seen = []
    for action in on.actions(run):
        result = on.result(run)
        seen.append((result["generalization"], {c["name"]: c["accuracy"] for c in result["clients"]}))
        action()
    result = on.result(run)
    scores = {c["name"]: c["accuracy"] for c in result["clients"]}
    assert result["generalization"] == {
        "id": {"accuracy": (scores["anna"] + scores["bert"]) / 2, "sites": 2},
        "ood": {"accuracy": (scores["carl"] + scores["dora"]) / 2, "sites": 2},
    }
    for told, now in seen:
        both = any(now[n] is not None for n in ("anna", "bert")) and any(now[n] is not None for n in ("carl", "dora"))
        assert (told is not None) == both


@pytest.mark.parametrize("method", [pytest.param("feddadil", marks=AT_NIGHT), *ADAPTING, "source_model", "local"])
def test_a_method_that_adapts_does_not(method: str) -> None:
    """Its targets train without labels, or nobody else is scored: the words would be wrong."""
    world = IMAGES | {"model": "lenet_bn"} if method not in ("feddadil", "local") else None
    more = {"world": dict(world)} if world else {}
    roster = {"anna": "source", "bert": "target", "carl": "target"}
    result = simulate(METHODS, experiment(method, roster, **more), sites())
    assert (result["status"], result["generalization"]) == ("completed", None)


def test_weights_that_are_only_scored_were_learnt_from_nobody_here() -> None:
    """Of no rounds, no site taught: none of them is in-distribution."""
    result = simulate(METHODS, experiment("fedavg", FOUR, config={"rounds": 0}), sites(NAMES[:4]))
    assert all(c["accuracy"] is not None for c in result["clients"]) and result["generalization"] is None


def clause(phase: str, field: str, exposure: str = "metric") -> Clause:
    """A clause of a step that is called as its phase."""
    return Clause(phase, phase, field, "", Exposure(exposure), TO_COORDINATOR)


CONTRACT = (
    clause("train", "model", "weights"),
    clause("train", "metrics.loss"),
    clause("score", "metrics.accuracy"),
    clause("score", "right", "count"),
    clause("mean", "metrics.accuracy_mean"),
    clause("tune", "metrics.loss"),
    clause("probe", "metrics.accuracy"),
    clause("probe", "means", "statistic"),
    clause("size", "rows", "count"),
)
PLAN = ("train", "score", "mean", "tune", "probe", "size")
TOLD = {"score": {"accuracy": 0.5}, "probe": {"accuracy": 0.5}, "mean": {"accuracy_mean": 0.5}}
Asked = tuple[str, Mapping[str, float], OrderStatus]


def answered(phase: str, metrics: Mapping[str, float] | None = None) -> Asked:
    """An order that was answered, with what the phase declares unless something else is said."""
    return phase, TOLD.get(phase, {}) if metrics is None else metrics, OrderStatus.ANSWERED


def told(labelled: tuple[str, ...] = ("anna",), accuracy: float | None = 0.25, **asked: tuple[Asked, ...]) -> Any:
    """What a run tells whose sites were asked this, beside the join; carl is the only target."""
    roster = {ClientId(name): Role.TARGET if name == "carl" else Role.SOURCE for name in asked}
    plan = tuple(PhaseFact(phase, phase, 1) for phase in PLAN)
    members = tuple(Member(name, role, labelled=name in labelled) for name, role in roster.items())
    spec = RunSpec(RunId("r"), "m", {}, World(), 0, Digest(""), keeps=False)
    run = RunRow(RunId("r"), "r", "m", spec, roster, plan, CONTRACT, 0.0, 0.0, members=members)
    orders = {name: tuple(order(name, each) for each in (("join", {}, OrderStatus.ANSWERED), *asked[name])) for name in roster}
    lines = [
        {"name": n, "role": r, "accuracy": accuracy if n == "carl" else {"anna": 0.75, "bert": 0.25}[n]}
        for n, r in roster.items()
    ]
    sites = {name: with_orders(SiteTotals(), own) for name, own in orders.items()}
    return generalization(run, lines, Shares(run, (), [order for own in orders.values() for order in own], sites))


def order(name: ClientId, asked: Asked) -> OrderRow:
    """An order of a phase."""
    phase, metrics, status = asked
    cursor = JOIN if phase == "join" else PLAN.index(phase)
    return OrderRow(OrderId(f"{name}{phase}"), RunId("r"), cursor, 1, name, (), 0, JOIN, 0.0, status, metrics=metrics)


TAUGHT = (answered("train"), answered("score"))
BOTH = {"id": {"accuracy": 0.75, "sites": 1}, "ood": {"accuracy": 0.25, "sites": 1}}


@pytest.mark.parametrize(
    ("asked", "unseen"),
    [
        pytest.param((answered("score"),), True, id="scored"),
        pytest.param((answered("score"), answered("mean")), True, id="two kinds of scores"),
        pytest.param((("score", {}, OrderStatus.FAILED), answered("score")), True, id="one scoring failed"),
        pytest.param((answered("score"), ("score", {}, OrderStatus.OPEN)), True, id="one scoring is open"),
        pytest.param((answered("train"), answered("score")), False, id="sent weights"),
        pytest.param((answered("tune"), answered("score")), False, id="told a loss, and may have learnt"),
        pytest.param((("tune", {}, OrderStatus.FAILED), answered("score")), False, id="failed to learn"),
        pytest.param((answered("probe"),), False, id="sent statistics with its accuracy"),
        pytest.param((answered("size"), answered("score")), False, id="sent a count that is no score"),
        pytest.param((answered("score", {}), answered("mean")), False, id="told no accuracy where one is declared"),
    ],
)
def test_which_target_is_unseen(asked: tuple[Asked, ...], unseen: bool) -> None:
    """One that was asked for scores alone, and gave one each time that it answered."""
    assert told(anna=TAUGHT, carl=asked) == (BOTH if unseen else None)


def test_a_target_without_a_score_counts_for_nothing() -> None:
    """It has no labels to be scored with."""
    assert told(anna=TAUGHT, carl=(answered("score", {}),), accuracy=None) is None


def test_who_is_in_distribution() -> None:
    """Those with labels who gave more than scores; one that never answered, or has no labels, is not among them."""
    unseen = (answered("score"),)
    assert told(("anna", "bert"), anna=TAUGHT, bert=TAUGHT, carl=unseen)["id"] == {"accuracy": 0.5, "sites": 2}
    assert told(("anna", "bert"), anna=TAUGHT, bert=unseen, carl=unseen) == BOTH
    late = (("train", {}, OrderStatus.EXPIRED), answered("score"))
    assert told(("anna", "bert"), anna=TAUGHT, bert=late, carl=unseen) == BOTH
    assert told(("anna",), anna=TAUGHT, bert=TAUGHT, carl=unseen) == BOTH
    assert told((), anna=TAUGHT, carl=unseen) is None and told(carl=unseen) is None
