"""What every tracker promises: a run stands there as it was, once, whenever its follower was killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cli.world import Coordinator, tide
from tests.tracking.dies import DEAD
from tests.tracking.following import NO_MODEL, WITH_MODEL, KilledError, follower, one
from tests.tracking.kinds import KINDS, Kind, Read, TrackioKind, kind_of
from tideline import __version__
from tideline.client.http import Client
from tideline.core.errors import Unreachable
from tideline.core.run import RunId
from tideline.engine.model.runs import Status

ROUNDS = {"config": {"rounds": 3}}
HOSTILE = "<img src=x onerror=alert(1)>\u202egnp.exe\x1b[31m\u2066 | `x` [y](javascript:z)"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    """A tracker."""
    return kind_of(request.param, request, tmp_path / f"at-{tmp_path.name}")


def expected(client: Client, run: str) -> dict[str, list[tuple[int, float]]]:
    """A run's accuracies and losses by its history, as they should stand."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for entry in client.run(f"{run}?history=true")["history"] or ():
        for metric, value in entry["metrics"].items():
            assert value is not None
            found.setdefault(metric, {}).setdefault(entry["round"], {})[entry["client"]] = value
    points: dict[str, list[tuple[int, float]]] = {}
    for metric, rounds in found.items():
        for number, sites in sorted(rounds.items()):
            points.setdefault(metric, []).append((number, sum(sites.values()) / len(sites)))
            for site, value in sites.items():
                points.setdefault(f"{metric}/{site}", []).append((number, value))
    return points


def assert_stands(client: Client, run: str, read: Mapping[str, Read], done: str) -> None:
    found, result = read[run], client.run(run)
    wanted = expected(client, run)
    for key, points in wanted.items():
        assert found.points[key] == [(step, pytest.approx(value, rel=1e-6)) for step, value in points], key
    for key, points in found.points.items():
        assert len({step for step, _ in points}) == len(points), f"{key} stands twice: {points}"
    closed = [(each["round"], each["bytes_up"]) for each in result["phases"] if each["name"] == "train"]
    assert found.points["train.bytes_up"] == [(step, pytest.approx(value)) for step, value in closed]
    assert found.points["bytes_down"][0][1] == pytest.approx(sum(each["bytes_down"] for each in result["clients"]))
    assert found.status == done and found.tags["tideline.state_digest"] == result["state_digest"]
    assert found.tags["tideline.version"] == __version__ and found.tags["tideline.status"] == "completed"


def test_a_run_stands_there_as_it_was(there: Coordinator, client: Client, kind: Kind) -> None:
    """Its numbers, what was asked for, its files; a second look, and a second follower, write nothing."""
    run = there.complete(**ROUNDS)
    first = follower(client, kind.tracker(), WITH_MODEL)
    assert not first.poll(one(run))
    read = kind.read()
    assert_stands(client, run, read, kind.done)
    if kind.name != "trackio":
        assert {"report.html", "result.json", "contract.md", "model/model.safetensors"} <= read[run].files
    if kind.name != "tensorboard":
        assert read[run].parameters["config.rounds"] == "3" and read[run].parameters["roster.source"] == "anna"
    assert not first.poll(one(run)) and not follower(client, kind.tracker(), WITH_MODEL).poll(one(run))
    assert kind.read() == read and kind.tracker().written() == {run}


def test_killed_before_each_write(there: Coordinator, client: Client, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower dies before its n-th write, each n; the next one dies as early, the third goes on. Nothing is lost or twice."""
    run = there.complete(**ROUNDS)
    if kind.name in ("trackio", "wandb"):
        pytest.skip("its own thread or process would outlive such a death: tests below and in test_wandb.py kill processes")
    if kind.name == "mlflow":
        monkeypatch.setattr("tideline.tracking.to_mlflow.OFTEN", 7)
    died, n = True, 0
    while died:
        n += 1
        place = type(kind)(*each_place(kind, n))
        died = False
        for again in (n, 1 + n // 2):
            with place.dying(again) as tracker:
                try:
                    follower(client, tracker, NO_MODEL).poll(one(run))
                except KilledError:
                    died = True
        assert not follower(client, place.tracker(), NO_MODEL).poll(one(run))
        assert_stands(client, run, place.read(), kind.done)
    assert n > 4


def each_place(kind: Any, n: int) -> tuple[Any, ...]:
    if kind.name == "mlflow":
        return kind.address, f"{kind.experiment}-{n}"
    return (kind.folder / str(n),) if kind.name == "tensorboard" else (kind.folder, f"{kind.project}-{n}")


def test_each_round_has_another_follower(there: Coordinator, client: Client, kind: Kind) -> None:
    """As if it were killed in each round: all of them together write what one would have."""
    run, looks = there.start(**ROUNDS), [0]

    def look(orders: list[Any]) -> list[Any]:
        assert follower(client, kind.tracker()).poll(one(run))
        looks[0] += 1
        return orders

    there.federation.run(run, order_of=look)
    assert looks[0] > 5 and not follower(client, kind.tracker()).poll(one(run))
    assert_stands(client, run, kind.read(), kind.done)


def test_a_run_is_seen_while_it_goes_on(there: Coordinator, client: Client, kind: Kind) -> None:
    run, seen, first = there.start(**ROUNDS), [0], follower(client, kind.tracker())

    def look(orders: list[Any]) -> list[Any]:
        first.poll(one(run))
        points = kind.read()[run].points if run in kind.read() else {}
        seen.append(max((step for step, _ in points.get("accuracy", ())), default=0))
        return orders

    there.federation.run(run, order_of=look)
    assert sorted(set(seen)) == [0, 1, 2]


def test_the_reference_stands_beside_its_run(there: Coordinator, client: Client, kind: Kind) -> None:
    run = there.complete(method="fedprox", reference={"method": "fedavg"})
    assert not follower(client, kind.tracker()).poll(one(run))
    read = kind.read()
    assert set(read) == {run, f"{run}-ref"}
    assert read[run].points["source_only/bert"][0][1] == pytest.approx(client.run(run)["clients"][1]["source_only"])
    assert read[f"{run}-ref"].tags["tideline.parent"] == run and (read[f"{run}-ref"].parent or kind.name != "mlflow")


def test_a_name_is_harmless(there: Coordinator, client: Client, kind: Kind) -> None:
    """Nothing of it steers a terminal or turns a line around, no tag of HTML is one where texts are shown as Markdown."""
    run = there.complete(name=HOSTILE)
    assert not follower(client, kind.tracker()).poll(one(run))
    found = kind.read()[run]
    texts = [found.name, *map(str, found.tags.values()), *map(str, found.parameters.values())]
    assert all(c.isprintable() or c == "\n" for text in texts for c in text)
    if kind.name == "tensorboard":
        assert "<" not in found.parameters["text"] and re.fullmatch(r"[\w.-]+", found.name)


def test_only_runs_that_name_it(there: Coordinator, client: Client, kind: Kind) -> None:
    asked = there.complete(track=[kind.name])
    there.complete()
    follower(client, kind.tracker()).poll(lambda line: kind.name in line.get("track", ()))
    assert set(kind.read()) == {asked}


def test_a_failed_run_stands_as_such(there: Coordinator, client: Client, kind: Kind) -> None:
    run = there.start()
    there.federation.run_service.cancel(RunId(run))
    assert not follower(client, kind.tracker(), WITH_MODEL).poll(one(run))
    found = kind.read()[run]
    assert found.tags["tideline.status"] == "cancelled" and found.tags["tideline.cause"] == "cancelled by a person"
    assert found.status in ("KILLED", "cancelled")


def test_a_page_that_fails_holds_up_no_other(there: Coordinator, client: Client, kind: Kind) -> None:
    """A run of which the tracker answers with an error of its own each time is tried again; the others are written."""
    first, second = there.complete(name="first"), there.complete(name="second")
    tracker: Any = kind.tracker()
    made = tracker.page

    def page(card: Any) -> Any:
        if card.name == "first":
            raise Unreachable("an error of its own", "Ask its operator")
        return made(card)

    tracker.page = page
    with pytest.raises(Unreachable, match="an error of its own"):
        follower(client, tracker).poll(lambda line: True)
    assert set(kind.read()) == {second} and first not in kind.tracker().written()


def test_a_status_that_changed_while_nobody_followed(there: Coordinator, client: Client, kind: Kind) -> None:
    run = there.start()
    follower(client, kind.tracker()).poll(one(run))
    if kind.name == "trackio":
        pytest.skip("its tags are written with the next numbers")
    there.federation.journal.set_status(RunId(run), (Status.WAITING,), Status.STALLED, "a site is away", 5.0)
    follower(client, kind.tracker()).poll(one(run))
    assert kind.read()[run].tags["tideline.status"] == "stalled" and kind.read()[run].tags["tideline.cause"] == "a site is away"


def test_trackio_is_killed_between_its_calls(there: Coordinator, client: Client, tmp_path: Path) -> None:
    """Its thread has written all of a call, or nothing; the next follower writes what is missing."""
    pytest.importorskip("trackio")
    run, n, died = there.complete(config={"rounds": 3}), 0, True
    while died:
        n += 1
        kind = TrackioKind(tmp_path, f"{tmp_path.name}-{n}")
        command = [sys.executable, "-m", "tests.tracking.dies", str(there.home), run, kind.project]
        codes = [subprocess.run([*command, str(dies)], check=False, env=os.environ).returncode for dies in (n, 999)]
        died = codes[0] == DEAD
        assert codes in ([DEAD, 0], [0, 0])
        assert_stands(client, run, kind.read(), kind.done)
    assert n > 4


@pytest.mark.parametrize("name", ["TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"])
def test_a_trackio_elsewhere(there: Coordinator, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    pytest.importorskip("trackio")
    monkeypatch.setenv(name, "someone/somewhere")
    refused = tide("run", "track", there.complete(), "--to", "trackio", "--home", there.home)
    assert refused.exit_code == 2 and f"{name} is set" in refused.stderr
