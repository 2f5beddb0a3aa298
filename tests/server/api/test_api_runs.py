"""Checking an experiment, and starting, looking at, cancelling and resuming runs over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from api_world import EXPERIMENT, Coordinator, refused

from tests.engine.clusters import played
from tideline.engine.coordinator.result import result_of
from tideline_server.api.models import RunResult
from tideline_server.api.openapi import EXPERIMENTS


def test_an_experiment_becomes_a_run(coordinator: Coordinator) -> None:
    """POST /runs answers with the id and says where the run is; it waits for its sites by name."""
    answer = coordinator.post("/runs", EXPERIMENT)
    run = answer.json()["run"]
    assert (answer.status_code, answer.json()["reference"]) == (201, None)
    shown = coordinator.get(answer.headers["location"]).json()
    assert (shown["run"], shown["status"], shown["cursor"], shown["plan_length"]) == (run, "waiting", -1, 4)
    assert "anna, bert, carl" in shown["waits_for"]


def test_a_reference_runs_beside(coordinator: Coordinator) -> None:
    """A method that does not score the source-only model itself gets a sibling, which names the run that it is for."""
    answer = coordinator.post("/runs", EXPERIMENT | {"method": "fedprox", "reference": {"method": "fedavg"}}).json()
    rows = {row["id"]: row for row in coordinator.get("/runs").json()}
    assert rows[answer["reference"]]["parent"] == answer["run"]
    coordinator.play(answer["run"])
    sites = coordinator.get(f"/runs/{answer['run']}").json()["clients"]
    assert all(site["source_only"] is not None for site in sites)


def test_groups_and_tables_are_told_over_http() -> None:
    """The door's model takes what a method told, and leaves nothing out."""
    on, run = played()
    given = on.result(run) | {"plan_length": 4, "cursor": 4}
    told = RunResult.model_validate(given).model_dump(mode="json")
    assert given["groups"]["last"] and given["phases"][1]["tables"]
    assert (told["groups"], told["phases"]) == (given["groups"], given["phases"])


def test_runs_are_listed_in_one_line_each(ended: Coordinator) -> None:
    """GET /runs tells how far each run is and when it ended."""
    (row,) = ended.get("/runs").json()
    assert row.pop("ended") >= row.pop("created")
    expected = {
        "id": ended.run,
        "name": "a small one",
        "method": "fedavg",
        "status": "completed",
        "cause": "",
        "cursor": 4,
        "of": 4,
    }
    assert row == expected | {"parent": None, "project": "default", "track": []}


def test_runs_are_listed_in_pages(coordinator: Coordinator) -> None:
    """GET /runs?limit= lists so many, &after= those that follow; after the last comes an empty page."""
    for at in range(5):
        coordinator.post("/runs", EXPERIMENT | {"name": f"number {at}"})
    every = coordinator.get("/runs").json()
    assert len(every) == 5
    pages, after = list[Any](), ""
    while page := coordinator.get(f"/runs?limit=2{after}").json():
        pages.append(page)
        after = f"&after={page[-1]['id']}"
    assert [len(page) for page in pages] == [2, 2, 1] and [row for page in pages for row in page] == every
    assert coordinator.get(f"/runs?after={every[1]['id']}").json() == every[2:]
    refused(coordinator.get("/runs?limit=0"), 422, "ConfigRefused", "limit")
    refused(coordinator.get("/runs?limit=1001"), 422, "ConfigRefused", "limit")
    refused(coordinator.get("/runs?after=a/b"), 422, "ConfigRefused", "after")
    wrong = f"{every[0]['id'][:-1]}x"
    told = refused(coordinator.get(f"/runs?after={wrong}"), 404, "NotFound")
    assert "did you mean" in told["todo"]


def test_runs_are_searched(coordinator: Coordinator) -> None:
    """By status and by words, the newest first, with how many there are on all pages."""
    for at in range(5):
        coordinator.post("/runs", EXPERIMENT | {"name": f"Number {at}"})
    every = coordinator.get("/runs").json()
    coordinator.post(f"/runs/{every[2]['id']}/cancel")

    def found(asked: str) -> tuple[list[str], str | None]:
        answer = coordinator.get(f"/runs?{asked}")
        return [row["id"] for row in answer.json()], answer.headers.get("tideline-count")

    ids = [row["id"] for row in every]
    open_ids = [run for run in ids if run != ids[2]]
    third = next(row["id"] for row in every if row["name"] == "Number 3")
    assert found("newest=true&limit=2") == ([ids[4], ids[3]], "5")
    assert found(f"newest=true&limit=2&after={ids[3]}") == ([ids[2], ids[1]], "5")
    assert found("status=open") == (open_ids, None)
    assert [found("status=cancelled&limit=9"), found("words=number+3&limit=9")] == [([ids[2]], "1"), ([third], "1")]
    assert [found("words=%25&limit=9"), found("tops=true&limit=9")] == [([], "0"), (ids, "5")]
    assert found("status=open&words=fedavg&newest=true&limit=1") == (open_ids[-1:], "4")
    assert "newest=true" in coordinator.get("/runs?newest=true&limit=2").headers["link"]
    refused(coordinator.get("/runs?status=odd"), 422, "ConfigRefused", "status")


def test_a_run_shows_the_result_of_the_engine(ended: Coordinator) -> None:
    """GET /runs/{id} is the engine's result, every key of it described in the manual, and nothing but three things more."""
    shown = ended.get(f"/runs/{ended.run}").json()
    own = result_of(ended.federation.journal, ended.run, ended.federation.clock.now())  # type: ignore[arg-type]
    assert set(RunResult.model_fields) == set(own) | {"plan_length", "cursor", "project"}
    assert (shown.pop("plan_length"), shown.pop("cursor"), shown.pop("project")) == (4, 4, "default")
    assert shown == own
    assert all(0 <= site["accuracy"] <= 1 for site in shown["clients"])


def test_a_history_is_told_when_it_is_asked_for(ended: Coordinator) -> None:
    """GET /runs/{id} is short by default; ?history=true adds every metric, as the engine tells them."""
    short, whole = ended.get(f"/runs/{ended.run}").json(), ended.get(f"/runs/{ended.run}?history=true").json()
    own = result_of(ended.federation.journal, ended.run, ended.federation.clock.now(), history=True)  # type: ignore[arg-type]
    assert short["history"] is None
    assert whole["history"] == own["history"] and len(whole["history"]) == 10
    assert {k for k in whole if whole[k] != short[k]} == {"history"}
    refused(ended.get(f"/runs/{ended.run}?history=perhaps"), 422, "ConfigRefused", "history")


WRONG: list[tuple[dict[str, Any], int, str, str | None, str]] = [
    ({"method": "fedagv"}, 404, "NotFound", "method", "did you mean fedavg?"),
    ({"metod": "fedavg"}, 422, "ConfigRefused", "metod", "did you mean method?"),
    ({"config": {"ronds": 3}}, 422, "ConfigRefused", "config.ronds", "did you mean rounds?"),
    ({"config": {"rounds": -1}}, 422, "ConfigRefused", "config.rounds", "Correct the value"),
    ({"config": {"rate": "fast"}}, 422, "ConfigRefused", "config.rate", "Correct the value"),
    ({"preset": "tinny"}, 422, "ConfigRefused", "preset", "did you mean tiny?"),
    ({"world": {"model": "mpl"}}, 422, "ConfigRefused", "world.model", "did you mean mlp?"),
    ({"roster": {"anna": "sauce"}}, 422, "ConfigRefused", "roster.anna", "Correct the value"),
    ({"roster": {}}, 422, "RosterRefused", "roster", "Add roster"),
    ({"roster": {"carl": "target"}}, 422, "RosterRefused", "roster", "role source or peer"),
    ({"roster": {"carl": "target", "dora": "source"}}, 422, "RosterRefused", "roster.dora", "--role source"),
    ({"roster": {"../x": "source"}}, 422, "ConfigRefused", "name", "letters"),
    ({"select": [{"labels": {"country": "nl"}, "role": "source"}]}, 422, "RosterRefused", "select[0]", "/clients"),
    ({"waiting": {"deadline": 0}}, 422, "ConfigRefused", "waiting.deadline", "Correct the value"),
    ({"reference": {"method": "fedavgg"}}, 404, "NotFound", "reference.method", "did you mean fedavg?"),
]


def test_mistakes_are_answered_with_their_place(coordinator: Coordinator, subtests: pytest.Subtests) -> None:
    """Each mistake in an experiment is refused with its dotted place and what to do, and no run is begun."""
    coordinator.join("dora", "target")
    for changes, status, kind, path, todo in WRONG:
        with subtests.test(str(changes)[:40]):
            base = EXPERIMENT if changes.get("reference") is None else EXPERIMENT | {"method": "fedprox"}
            assert todo in refused(coordinator.post("/runs", base | changes), status, kind, path)["todo"]
    assert coordinator.get("/runs").json() == []


def test_what_is_no_experiment(coordinator: Coordinator) -> None:
    """A list, a text, a number, or no body at all; of an object without a method it is said what is missing."""
    assert refused(coordinator.post("/runs", {}), 422, "ConfigRefused", "method")["detail"] == "method is missing"
    for body in ([], "fedavg", 3, True, None):
        refused(coordinator.post("/runs", body), 422, "ConfigRefused")


def test_the_manuals_examples_can_be_started(coordinator: Coordinator, subtests: pytest.Subtests) -> None:
    """What /docs offers to begin from is accepted as it stands."""
    for name, example in EXPERIMENTS.items():
        with subtests.test(name):
            assert coordinator.post("/runs", example["value"]).status_code == 201


def test_an_unknown_run_is_not_found(ended: Coordinator) -> None:
    """Every address of a run answers 404 for one that does not exist, with a guess at what was meant."""
    for method, tail in (("GET", ""), ("GET", "/events"), ("GET", "/files"), ("POST", "/cancel")):
        error = refused(ended.send(method, f"/runs/{ended.run[:-1]}{tail}"), 404, "NotFound")
        assert f"did you mean {ended.run}?" in error["todo"], tail


def test_an_odd_name_is_no_run(coordinator: Coordinator) -> None:
    """Characters that no id has never reach a store."""
    refused(coordinator.get("/runs/a%00b"), 422, "ConfigRefused", "run")


def test_a_run_is_cancelled_once(coordinator: Coordinator) -> None:
    """Cancelling ends the run and rings for its agents; a second time is a conflict."""
    run = coordinator.start()
    rung = len(coordinator.bell.rung)
    answer = coordinator.post(f"/runs/{run}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    assert coordinator.bell.rung[rung:] == [f"run:{run}", "client:anna", "client:bert", "client:carl"]
    error = refused(coordinator.post(f"/runs/{run}/cancel"), 409, "Refused")
    assert "cancelled already" in error["detail"]


def test_only_a_stalled_run_is_resumed(coordinator: Coordinator) -> None:
    """A site that never comes stalls the run, visibly; resuming asks again, and resuming an open run is a conflict."""
    run = coordinator.start(roster=EXPERIMENT["roster"] | {"nobody": "source"})
    refused(coordinator.post(f"/runs/{run}/resume"), 409, "Refused")
    coordinator.play(run)
    stalled = coordinator.get(f"/runs/{run}").json()
    assert stalled["status"] == "stalled" and "nobody: no answer in time" in stalled["cause"]
    for path, wrong in (("min_replies", 0), ("min_replies", 9), ("min_replies", "all"), ("fewer", 2)):
        refused(coordinator.post(f"/runs/{run}/resume", json={path: wrong}), 422, "ConfigRefused", path)
    assert coordinator.post(f"/runs/{run}/resume").json()["status"] == "waiting"
    refused(coordinator.post(f"/runs/{run}/resume"), 409, "Refused")
    coordinator.play(run)
    assert coordinator.post(f"/runs/{run}/resume", json={"min_replies": 1}).json()["status"] == "waiting"
    coordinator.play(run)
    assert coordinator.get(f"/runs/{run}").json()["status"] == "completed"


def test_numbers_that_json_cannot_carry_are_told_as_null(coordinator: Coordinator) -> None:
    """A metric that went to infinity at a site does not break the page that shows it."""
    run = coordinator.start()
    coordinator.federation.journal.event(run, "note", {"loss": float("nan")}, 0.0)  # type: ignore[arg-type]
    told = coordinator.get(f"/runs/{run}/events?follow=false").text
    assert '"loss": null' in told


TEXT = """method: fedavg
config:
  rounds: 3
world: {model: mlp, inputs: [4], classes: 2, normalise: none}
roster:
  anna: source
  carl: target
"""


def test_a_check_says_what_it_would_be(coordinator: Coordinator) -> None:
    """Its sites, its exchanges and its contract; nothing is started, and nothing stands in the log."""
    tip = coordinator.get("/audit/tip").json()
    found = coordinator.post("/runs/check", json={"text": TEXT})
    assert found.status_code == 200
    said = found.json()
    assert (said["runs"], said["exchanges"], said["sites"]) == (1, 6, ["anna", "carl"])
    assert said["experiment"]["config"] == {"rounds": 3} and said["contract"][0]["exposure"] == "weights"
    assert coordinator.get("/runs").json() == [] and coordinator.get("/audit/tip").json() == tip


MISTAKES = (
    ("rounds: 3", "rounds: -3", 3, "config.rounds"),
    ("  anna: source", "  anna: sourc", 6, "roster.anna"),
    ("roster:", "roster: [", 7, None),
)


def test_a_check_says_the_line_of_a_mistake(coordinator: Coordinator, subtests: pytest.Subtests) -> None:
    """Also those that only the method finds."""
    for before, after, line, path in MISTAKES:
        with subtests.test(after):
            answer = coordinator.post("/runs/check", json={"text": TEXT.replace(before, after)})
            error = refused(answer, 422, "ConfigRefused", path)
            assert error["context"]["line"] == line and error["detail"].startswith(f"experiment:{line}: ")


def test_a_check_of_a_method_that_is_not_there(coordinator: Coordinator) -> None:
    """With the line, too."""
    answer = coordinator.post("/runs/check", json={"text": TEXT.replace("fedavg", "fedavgg")})
    assert refused(answer, 404, "NotFound", "method")["context"]["line"] == 1


def test_a_check_of_what_is_no_experiment(coordinator: Coordinator, subtests: pytest.Subtests) -> None:
    """It is refused, whatever it is."""
    for text in ("", "just words", "- a\n- list", "a: !!python/object:os.system x", "x" * 2_000_000):
        with subtests.test(text[:40]):
            assert coordinator.post("/runs/check", json={"text": text}).status_code in (413, 422)
