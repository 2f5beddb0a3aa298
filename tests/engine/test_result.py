"""What a person reads of a run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engine.toys import stage, start, until
from tests.synthetic import HELD_OUT, experiment
from tideline.engine.coordinator.result import result_of
from tideline.engine.model.orders import Failure, OrderStatus, Reply

RUN = {
    "run", "name", "method", "config", "world", "seed", "rounds", "status", "cause", "waits_for", "seconds", "state_digest",
    "fingerprint", "reference", "clients", "phases", "curve", "history", "contract",
}  # fmt: skip
CLIENT = {
    "name", "domain", "role", "samples", "accuracy", "source_only", "bytes_up", "bytes_down", "metrics", "failures", "declined",
}  # fmt: skip


def test_the_keys_are_the_same_at_every_moment() -> None:
    """A result has one schema, before, during and after a run, and is plain JSON."""
    on = stage()
    run = start(on)
    for action in on.actions(run):
        result = on.result(run)
        assert result.keys() >= RUN
        assert all(client.keys() >= CLIENT for client in result["clients"])
        assert json.loads(json.dumps(result, allow_nan=False)) == result
        action()


def test_a_finished_run_tells_what_it_did() -> None:
    """Digest, rounds, accuracies in 0..1, a curve and traffic are there; nothing is waited for."""
    on = stage()
    run = on.start(experiment("fedavg", {"anna": "source", "bert": "source", "carl": "target"}))
    on.clock.advance(5.0)
    on.play(run)
    on.clock.advance(1000.0)
    result = on.result(run)
    assert (result["status"], result["cause"], result["waits_for"], result["rounds"]) == ("completed", "", "", 2)
    assert result["seconds"] == 5.0
    assert result["state_digest"] == on.row(run).state_digest
    assert result["fingerprint"].startswith("torch ")
    assert [p["name"] for p in result["phases"]] == ["join", "train", "score", "train", "score"]
    assert [p["round"] for p in result["phases"]] == [1, 1, 1, 2, 2]
    assert [p["replies"] for p in result["phases"]] == [3, 2, 3, 2, 3]
    assert len(result["curve"]) == 6
    for client in result["clients"]:
        assert (client["accuracy"] * HELD_OUT).is_integer()
        assert client["bytes_up"] > 0 < client["bytes_down"]
        assert client["failures"] == []
    assert [c["samples"] for c in result["clients"]] == [41, 41, None]
    assert result["curve"][-1]["accuracy"] == result["clients"][-1]["accuracy"]


def test_an_open_run_says_for_whom_it_waits() -> None:
    """While a round is open the result names who is awaited."""
    on = stage()
    run = start(on, waiting={"deadline": 3600.0})
    until(on, run, 0)
    on.handle(on.agent_service.orders("anna")[0])  # type: ignore[arg-type]
    assert on.result(run)["waits_for"] == "waiting for 2 of 3 sites (bert, carl); gives up in 60 min"


def test_a_failure_has_its_place_and_kind() -> None:
    """Each failure names phase, round, attempt, kind and our own sentence."""
    on = stage()
    run = start(on, fault="raises")
    on.play(run)
    (failure,) = on.result(run)["clients"][1]["failures"]
    assert {k: failure[k] for k in ("phase", "round", "attempt", "kind")} == {
        "phase": "move",
        "round": 2,
        "attempt": 1,
        "kind": "StepFailed",
    }


@pytest.mark.parametrize("way", ["bytes_down", "bytes_up"])
def test_the_rounds_have_the_traffic_of_their_orders(way: str) -> None:
    """What crossed in the rounds is what crossed at the sites; each round says how many were asked."""
    on = stage()
    run = on.start(experiment("fedavg", {"anna": "source", "bert": "source", "carl": "target"}))
    on.play(run)
    result = on.result(run)
    assert sum(p[way] for p in result["phases"]) == sum(c[way] for c in result["clients"]) > 0
    assert [p["asked"] for p in result["phases"]] == [3, 2, 3, 2, 3]
    crossed = [sum(getattr(o, way) for o in on.journal.orders(run, cursor)) for cursor in range(-1, 4)]
    assert [p[way] for p in result["phases"]] == crossed


def test_a_round_that_was_asked_twice_has_the_traffic_of_both() -> None:
    """All attempts count as traffic; a site that is asked again is one site."""
    on = stage()
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


def test_a_history_tells_every_metric_of_every_reply() -> None:
    """It is there only when it is asked for: an entry per answered order with metrics, in the order of the plan."""
    on = stage()
    run = on.start(experiment("fedavg", {"anna": "source", "bert": "source", "carl": "target"}))
    assert history(on, run) == []
    on.play(run)
    assert on.result(run)["history"] is None
    told = history(on, run)
    assert json.loads(json.dumps(told)) == told
    assert [(e["cursor"], e["phase"], e["round"], e["client"]) for e in told[:5]] == [
        (0, "train", 1, "anna"),
        (0, "train", 1, "bert"),
        (1, "score", 1, "anna"),
        (1, "score", 1, "bert"),
        (1, "score", 1, "carl"),
    ]
    assert len(told) == 10 and told[0]["metrics"].keys() == {"loss", "samples"}
    curve = [
        {k: e[k] for k in ("client", "phase", "round", "cursor")} | {"accuracy": e["metrics"]["accuracy"]}
        for e in told
        if "accuracy" in e["metrics"]
    ]
    assert curve == on.result(run)["curve"]
    last = {e["client"]: e["metrics"] for e in told if e["cursor"] == 3}
    assert all(c["metrics"].items() >= last[c["name"]].items() for c in on.result(run)["clients"])


def test_a_history_leaves_out_who_failed() -> None:
    """An order without an answer has no entry."""
    on = stage()
    run = start(on, fault="raises", waiting={"min_replies": 2})
    on.play(run)
    assert on.row(run).status == "completed"
    assert [(e["round"], e["client"]) for e in history(on, run) if e["phase"] == "move" and e["round"] == 2] == [
        (2, "anna"),
        (2, "carl"),
    ]
