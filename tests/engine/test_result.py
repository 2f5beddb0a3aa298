"""What a person reads of a run."""

from __future__ import annotations

import json

from tests.engine.toys import stage, start, until
from tests.synthetic import HELD_OUT, experiment

RUN = {
    "run", "name", "method", "config", "world", "seed", "rounds", "status", "cause", "waits_for", "seconds", "state_digest",
    "fingerprint", "reference", "clients", "phases", "curve", "contract",
}  # fmt: skip
CLIENT = {
    "name", "domain", "role", "samples", "accuracy", "source_only", "bytes_up", "bytes_down", "metrics", "failures",
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
    on.handle(on.desk.orders("anna")[0])  # type: ignore[arg-type]
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
