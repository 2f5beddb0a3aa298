"""What a person reads of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from benchmarks.crowd import Crowd, answer, fill
from tests.engine.toys import stage, start, until
from tests.laws.stage import Stage
from tests.synthetic import HELD_OUT, IMAGES, NAMES, experiment, sites
from tideline.algorithms import METHODS
from tideline.core.asked.world import World
from tideline.core.privacy import TO_COORDINATOR, Clause, Exposure
from tideline.core.run import ClientId, Digest, Member, OrderId, Role, RunId, RunSpec
from tideline.engine.coordinator import result
from tideline.engine.coordinator.result import Shares, generalization, result_of
from tideline.engine.model.orders import Failure, OrderRow, OrderStatus, Reply
from tideline.engine.model.runs import JOIN, PhaseFact, RunRow
from tideline.engine.model.totals import SiteTotals, with_orders
from tideline.engine.ports.journal import Journal
from tideline.engine.simulation.federation import simulate
from tideline.engine.simulation.journal import MemoryJournal

RUN = {
    "run", "name", "method", "config", "world", "seed", "rounds", "status", "cause", "waits_for", "seconds", "state_digest",
    "fingerprint", "reference", "clients", "phases", "curve", "history", "contract",
}  # fmt: skip
CLIENT = {
    "name", "domain", "role", "samples", "accuracy", "source_only", "bytes_up", "bytes_down", "metrics", "failures", "declined",
}  # fmt: skip


def test_the_keys_are_the_same_at_every_moment(on: Stage) -> None:
    """A result has one schema, before, during and after a run, and is plain JSON."""
    run = start(on)
    for action in on.actions(run):
        result = on.result(run)
        assert result.keys() >= RUN and all(client.keys() >= CLIENT for client in result["clients"])
        assert json.loads(json.dumps(result, allow_nan=False)) == result
        action()


def test_a_finished_run_tells_what_it_did(on: Stage) -> None:
    """Digest, rounds, accuracies in 0..1, a curve and traffic are there; nothing is waited for."""
    run = on.start(experiment("fedavg", {"anna": "source", "bert": "source", "carl": "target"}))
    on.clock.advance(5.0)
    on.play(run)
    on.clock.advance(1000.0)
    result = on.result(run)
    assert (result["status"], result["cause"], result["waits_for"], result["rounds"]) == ("completed", "", "", 2)
    assert result["seconds"] == 5.0 and result["state_digest"] == on.row(run).state_digest
    assert result["fingerprint"].startswith("torch ")
    assert [p["name"] for p in result["phases"]] == ["join", "train", "score", "train", "score"]
    assert [p["round"] for p in result["phases"]] == [1, 1, 1, 2, 2]
    assert [p["replies"] for p in result["phases"]] == [3, 2, 3, 2, 3] and len(result["curve"]) == 6
    for client in result["clients"]:
        assert (client["accuracy"] * HELD_OUT).is_integer() and client["bytes_up"] > 0 < client["bytes_down"]
        assert client["failures"] == []
    assert [c["samples"] for c in result["clients"]] == [41, 41, None]
    assert result["curve"][-1]["accuracy"] == result["clients"][-1]["accuracy"]


def test_an_open_run_says_for_whom_it_waits(on: Stage) -> None:
    """While a round is open the result names who is awaited."""
    run = start(on, waiting={"deadline": 3600.0})
    until(on, run, 0)
    on.handle(on.agent_service.orders("anna")[0])  # type: ignore[arg-type]
    assert on.result(run)["waits_for"] == "waiting for 2 of 3 sites (bert, carl); gives up in 60 min"


def test_a_failure_has_its_place_and_kind(on: Stage) -> None:
    """Each failure names phase, round, attempt, kind and our own sentence."""
    run = start(on, fault="raises")
    on.play(run)
    (failure,) = on.result(run)["clients"][1]["failures"]
    assert [failure[key] for key in ("phase", "round", "attempt", "kind")] == ["move", 2, 1, "StepFailed"]


@pytest.mark.parametrize("way", ["bytes_down", "bytes_up"])
def test_the_rounds_have_the_traffic_of_their_orders(on: Stage, way: str) -> None:
    """What crossed in the rounds is what crossed at the sites; each round says how many were asked."""
    run = on.start(experiment("fedavg", {"anna": "source", "bert": "source", "carl": "target"}))
    on.play(run)
    result = on.result(run)
    assert sum(p[way] for p in result["phases"]) == sum(c[way] for c in result["clients"]) > 0
    assert [p["asked"] for p in result["phases"]] == [3, 2, 3, 2, 3]
    crossed = [sum(getattr(o, way) for o in on.journal.orders(run, cursor)) for cursor in range(-1, 4)]
    assert [p[way] for p in result["phases"]] == crossed


def test_a_round_that_was_asked_twice_has_the_traffic_of_both(on: Stage) -> None:
    """All attempts count as traffic; a site that is asked again is one site."""
    run = start(on)
    until(on, run, 1)
    broken = Reply(on.agent_service.orders("bert")[0].id, failure=Failure("StepFailed", "broken"))  # type: ignore[arg-type]
    on.journal.answer(broken.order, broken, OrderStatus.FAILED, on.clock.now(), 1_000_000, 2_000_000)
    assert on.play(run).status == "stalled"
    on.run_service.resume(run)
    assert on.play(run).status == "completed"
    second, attempts = on.result(run)["phases"][2], on.journal.orders(run, 1)
    assert (second["asked"], second["replies"], [o.attempt for o in attempts]) == (3, 3, [1, 1, 2, 1])
    assert 1_000_000 < second["bytes_down"] < 1_100_000 and 2_000_000 < second["bytes_up"] < 2_100_000


def history(on: Any, run: Any) -> Any:
    """A run's history."""
    return result_of(on.journal, run, on.clock.now(), history=True)["history"]


def test_a_history_tells_every_metric_of_every_reply(on: Stage) -> None:
    """It is there only when it is asked for: an entry per answered order with metrics, in the order of the plan."""
    run = on.start(experiment("fedavg", {"anna": "source", "bert": "source", "carl": "target"}))
    assert history(on, run) == []
    on.play(run)
    assert on.result(run)["history"] is None
    told = history(on, run)
    assert json.loads(json.dumps(told)) == told
    first = [*((0, "train", 1, name) for name in ("anna", "bert")), *((1, "score", 1, name) for name in ("anna", "bert", "carl"))]
    assert [(e["cursor"], e["phase"], e["round"], e["client"]) for e in told[:5]] == first
    assert len(told) == 10 and told[0]["metrics"].keys() == {"loss", "samples"}
    curve = [
        {k: e[k] for k in ("client", "phase", "round", "cursor")} | {"accuracy": e["metrics"]["accuracy"]}
        for e in told
        if "accuracy" in e["metrics"]
    ]
    assert curve == on.result(run)["curve"]
    last = {e["client"]: e["metrics"] for e in told if e["cursor"] == 3}
    assert all(c["metrics"].items() >= last[c["name"]].items() for c in on.result(run)["clients"])


def test_a_history_leaves_out_who_failed(on: Stage) -> None:
    """An order without an answer has no entry."""
    run = start(on, fault="raises", waiting={"min_replies": 2})
    on.play(run)
    assert on.row(run).status == "completed"
    assert [(e["round"], e["client"]) for e in history(on, run) if e["phase"] == "move" and e["round"] == 2] == [
        (2, "anna"),
        (2, "carl"),
    ]


# A result is what the orders' own rows say: nothing that is kept beside them differs, at any moment of any run.
FEDAVG = experiment("fedavg", {"anna": "source", "bert": "source", "carl": "target"}, config={"rounds": 3})
EXPIRED = OrderStatus.EXPIRED


def last_metrics(orders: list[OrderRow]) -> list[tuple[str, float]]:
    """The newest value of each metric, in the order in which they were told first."""
    found: dict[str, float] = {}
    for order in orders:
        found |= order.metrics if order.status is OrderStatus.ANSWERED else {}
    return list(found.items())


def differences(journal: Journal, run: RunId) -> list[Any]:
    """Where a result differs from what its orders say."""
    row, told, orders = journal.run(run), result_of(journal, run, 0.0), journal.orders(run)
    assert row is not None
    found: list[Any] = []
    for line in told["clients"]:
        own = [o for o in orders if o.client == line["name"]]
        missed = [(row.fact(o.cursor).round, o.attempt) for o in own if o.failure or o.status is EXPIRED]
        kept = line["bytes_up"], line["bytes_down"], list(line["metrics"].items())
        counted = sum(o.bytes_up for o in own), sum(o.bytes_down for o in own), last_metrics(own)
        if kept != counted or [(f["round"], f["attempt"]) for f in line["failures"]] != missed:
            found.append((line, counted, missed))
    for phase, closed in zip(told["phases"], journal.rounds(run), strict=True):
        every = [o for o in orders if o.cursor == closed.cursor]
        kept = phase["asked"], phase["bytes_up"], phase["bytes_down"]
        if kept != (len({o.client for o in every}), sum(o.bytes_up for o in every), sum(o.bytes_down for o in every)):
            found.append((phase, every))
    points = [o for o in orders if o.status is OrderStatus.ANSWERED and "accuracy" in o.metrics]
    if [(p["client"], p["cursor"], p["accuracy"]) for p in told["curve"]] != [
        (o.client, o.cursor, o.metrics["accuracy"]) for o in points
    ]:
        found.append((told["curve"], points))
    return found


def quorum(on: Stage) -> RunId:
    """A run whose rounds close without bert, who fails in the second."""
    return start(on, fault="raises", waiting={"min_replies": 2})


@pytest.mark.parametrize("begin", [lambda on: on.start(FEDAVG), start, quorum], ids=["fedavg", "toy", "quorum"])
def test_a_result_is_what_the_orders_say(begin: Callable[[Stage], RunId]) -> None:
    """Before each action of a run, and at its end."""
    on = stage()
    run, seen = begin(on), 0
    for action in on.actions(run):
        assert differences(on.journal, run) == []
        seen += 1
        action()
    assert differences(on.journal, run) == [] and seen > 10


def test_a_run_that_is_resumed(on: Stage) -> None:
    """With failures, new attempts, and a person who ends it amid a round."""
    run = start(on, fault="raises")
    assert on.play(run).status == "stalled" and differences(on.journal, run) == []
    on.run_service.resume(run)
    on.handle(next(on.agent_service.orders(name)[0] for name in on.agents if on.agent_service.orders(name)))
    assert differences(on.journal, run) == []
    on.run_service.cancel(run)
    assert differences(on.journal, run) == []


def test_a_long_curve_tells_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond so many points a scoring has one, of the open round too: the mean over its sites, their number, and no client."""
    journal, crowd = MemoryJournal(), Crowd(4, 6)
    fill(journal, crowd)
    given = list(crowd.answers(5))
    values = (0.25, 0.75)
    for (order, reply), accuracy in zip(given, values, strict=False):
        reply.metrics["accuracy"] = accuracy  # type: ignore[index]
        answer(journal, order, reply)
    points = result_of(journal, crowd.run, 0.0)["curve"]
    assert len(points) == 10 and all(point.keys() == {"client", "phase", "round", "cursor", "accuracy"} for point in points)
    monkeypatch.setattr(result, "MOST_POINTS", 10)
    assert result_of(journal, crowd.run, 0.0)["curve"] == points
    monkeypatch.setattr(result, "MOST_POINTS", 9)
    means = result_of(journal, crowd.run, 0.0)["curve"]
    facts = {"client": None, "phase": "score"}
    assert means == [
        facts | {"round": 1, "cursor": 1, "accuracy": 0.5, "sites": 4},
        facts | {"round": 2, "cursor": 3, "accuracy": 0.5, "sites": 4},
        facts | {"round": 3, "cursor": 5, "accuracy": 0.5, "sites": 2},
    ]


def test_a_look_reads_the_open_rounds_orders_and_no_others() -> None:
    """Of a run of any length; unless the history is asked for."""

    class Told(MemoryJournal):
        """A journal that notes which orders are read."""

        read: list[int | None] = []  # noqa: RUF012

        def orders(self, run: RunId, cursor: int | None = None) -> tuple[OrderRow, ...]:
            self.read.append(cursor)
            return super().orders(run, cursor)

    journal = Told()
    fill(journal, Crowd(3, 8))
    journal.read.clear()
    result_of(journal, Crowd(3, 8).run, 0.0)
    assert journal.read == [7]
    result_of(journal, Crowd(3, 8).run, 0.0, history=True)
    assert journal.read == [7, 7, JOIN, None]


# In-distribution and out-of-distribution accuracy: of whom they are told, from what sites were asked and told.
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
