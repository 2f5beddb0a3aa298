"""What happens at a site reaches who watches its run, and nothing of it is data."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.acceptance.conftest import WORLD, joined
from tests.acceptance.harness import Net
from tests.acceptance.tap import Tap, tapped
from tests.acceptance.test_stalls import ORDER, Mute
from tests.cli.world import tide
from tideline.core import errors
from tideline.core.notes import Note
from tideline.core.run import OrderId
from tideline_agent.home.identity import Keys
from tideline_agent.link import Endpoints, GrpcLink, NotSpoken
from tideline_agent.main import Working
from tideline_agent.notes import BATCH, MOST_WAITING, Entry, NoteQueue, Witness

STARTED = Note("order_started")
TALKING, SILENT = {"nora": "source", "nils": "source"}, {"nemo": "target"}
NOTING = TALKING | SILENT
FAILING = {"method": "toy", "world": WORLD, "roster": NOTING, "waiting": {"min_replies": 2}}
FAILING |= {"config": {"rounds": 3, "fault": "raises", "who": "nils", "when": 2}}


class Ear:
    """Takes what a queue sends, or refuses it."""

    def __init__(self) -> None:
        self.heard: list[list[Entry]] = []
        self.error: errors.FederationError | None = None

    def send(self, notes: Sequence[Entry]) -> None:
        if self.error is not None:
            raise self.error
        self.heard.append(list(notes))


def test_notes_go_in_batches_and_the_rest_is_counted() -> None:
    """The queue is short: what finds no room is left out, and the next batch says how much that was."""
    ear = Ear()
    queue = NoteQueue(ear.send, threading.Event())
    for _ in range(MOST_WAITING + 7):
        queue.put(OrderId("o"), STARTED)
    while queue.send_batch():
        pass
    assert [len(batch) for batch in ear.heard[:2]] == [BATCH + 1, BATCH]
    assert ear.heard[0][-1] == ("o", Note("left_out", {"count": 7}))
    assert sum(len(batch) for batch in ear.heard) == MOST_WAITING + 1


def test_an_outage_keeps_notes_and_a_refusal_drops_them() -> None:
    """What was cut is sent again; what the coordinator does not take would be refused for ever, and is counted as left out."""
    ear = Ear()
    queue = NoteQueue(ear.send, threading.Event())
    queue.put(OrderId("o"), STARTED)
    ear.error = errors.Unreachable("away")
    assert queue.send_batch() > 0
    ear.error = None
    queue.send_batch()
    assert ear.heard == [[("o", STARTED)]]
    queue.put(OrderId("o"), STARTED)
    ear.error = errors.DataRefused("no")
    queue.send_batch()
    ear.error = None
    assert queue.send_batch() == 0.0 and len(ear.heard) == 1
    queue.put(OrderId("o"), STARTED)
    queue.send_batch()
    assert ear.heard[1] == [("o", STARTED), ("o", Note("left_out", {"count": 1}))]
    assert queue.send_batch() == 0.0


def test_an_older_coordinator_is_told_nothing() -> None:
    """It does not know the call: said once in the log, and from then on nothing is kept for it."""
    mute = Mute()  # it answers Hello, and knows no SendNotes
    try:
        with closing(GrpcLink(Endpoints((f"127.0.0.1:{mute.port}",)), "ann", Keys.made(), threading.Event())) as link:
            with pytest.raises(NotSpoken) as caught:
                link.send_notes([(OrderId("o"), STARTED)])
            assert caught.value.kind == "IdentityRefused"
            queue = NoteQueue(link.send_notes, threading.Event())
            with capture_logs() as said:
                for _ in range(3):
                    queue.put(OrderId("o"), STARTED)
                    queue.send_batch()
            assert [line["event"] for line in said] == ["notes_not_wanted"]
    finally:
        mute.over.set()
        mute.server.stop(None)


def witness(home: Path) -> tuple[Witness, list[Entry], list[float]]:
    """A witness, what it told, and its clock."""
    told: list[Entry] = []
    clock = [100.0]
    return Witness(lambda order, note: told.append((order, note)), home, lambda: clock[0]), told, clock


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (errors.StepFailed("x", error="ValueError"), "step_failed", {"error": "ValueError"}),
        (errors.StepFailed("x", error="not a name: SECRET"), "step_failed", {"error": "Error"}),
        (errors.StorageFull("x"), "step_failed", {"error": "StorageFull"}),
        (errors.ContractRefused("x"), "declined", {"error": "ContractRefused"}),
        (errors.RosterRefused("x"), "declined", {"error": "RosterRefused"}),
        (errors.DataRefused("x"), "data_unreadable", {"error": "DataRefused"}),
        (errors.DeviceMissing("x", device="cuda:1"), "device_missing", {"device": "cuda:1"}),
        (errors.DeviceMissing("x", device="SECRET!"), "step_failed", {"error": "DeviceMissing"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_failure_is_told_by_its_type(tmp_path: Path, error: errors.FederationError, kind: str, words: dict[str, str]) -> None:
    saw, told, clock = witness(tmp_path)
    saw.saw("begun", ORDER, None)
    clock[0] += 2.5
    saw.saw("failed", ORDER, error)
    (_, note) = told[-1]
    assert (note.kind, note.words) == (kind, words)
    assert note.numbers.get("seconds", 2.5) == 2.5


def test_a_slow_step_is_told_once(tmp_path: Path) -> None:
    """When half of the time that the order left has passed; another order's time is its own."""
    saw, told, clock = witness(tmp_path)
    saw.saw("begun", ORDER, None)
    saw.check_progress([(ORDER, 0.1)])
    clock[0] += ORDER.seconds_left / 2 + 1
    saw.check_progress([(ORDER, 0.25)])
    saw.check_progress([(ORDER, 0.25)])
    slow = [note for _, note in told if note.kind == "slow_step"]
    assert [note.numbers for note in slow] == [{"seconds": ORDER.seconds_left / 2 + 1, "percent": 25.0}]


@pytest.mark.parametrize(("share", "percent"), [(math.nan, 0.0), (-1.0, 0.0), (math.inf, 100.0), (0.5, 50.0)])
def test_progress_that_is_no_share(tmp_path: Path, share: float, percent: float) -> None:
    """What a step ticks is its own affair: the agent tells of what it can."""
    saw, told, clock = witness(tmp_path)
    saw.saw("begun", ORDER, None)
    clock[0] += ORDER.seconds_left
    saw.check_progress([(ORDER, share)])
    assert told[-1][1].numbers["percent"] == percent
    working = Working(ORDER)
    working.tick(share)
    assert working.progress == percent / 100


def test_what_cannot_be_a_note_ends_nothing(tmp_path: Path) -> None:
    """A clock that was set, say, makes seconds of which there are none."""
    saw, told, clock = witness(tmp_path)
    saw.saw("begun", ORDER, None)
    clock[0] = -math.inf
    with capture_logs() as said:
        saw.saw("worked", ORDER, None)
    assert [line["event"] for line in said] == ["note_left_out"] and "trained" not in [note.kind for _, note in told]


def test_a_trainer_that_died_a_cut_and_an_end(tmp_path: Path) -> None:
    """Each is told of the order at hand; a run that nobody works for has nothing to tell."""
    saw, told, _ = witness(tmp_path)
    saw.died(ORDER.run, 2)
    saw.saw("begun", ORDER, None)
    saw.died(ORDER.run, 1)
    saw.saw("worked", ORDER, None)
    saw.saw("cut", ORDER, errors.Unreachable("x"))
    saw.withdrawn(ORDER)
    kinds = [note.kind for _, note in told if note.kind != "disk_low"]
    assert kinds == ["order_started", "trainer_died", "trained", "upload_cut", "order_withdrawn"]


@pytest.fixture(scope="module")
def sites(federation: Net, data: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Net, Tap]]:
    """Three agents behind a tap; nemo's owner wants nothing told."""
    policy = tmp_path_factory.mktemp("notes") / "policy.toml"
    policy.write_text('[forbid]\nnotes = ["coordinator"]\n')
    folders = dict(zip(NOTING, data.values(), strict=True))
    with (
        tapped(federation.grpc) as tap,
        federation.by_way_of(tap.port),
        joined(federation, folders, TALKING),
        joined(federation, folders, SILENT, "--policy", str(policy)),
    ):
        yield federation, tap


def tideline(federation: Net, *args: str) -> list[str]:
    return tide(*args, env={"TIDELINE_HOME": str(federation.folder)}).output.splitlines()


@pytest.mark.processes
def test_a_failed_step_is_seen_where_the_run_is_watched(sites: tuple[Net, Tap]) -> None:
    """The line has client, phase and type; over the wire went no word of the error, and nemo told nothing."""
    federation, tap = sites
    run = federation.run(FAILING)
    command = [sys.executable, "-m", "tideline", "run", "watch", run, "--home", str(federation.folder)]
    watch = subprocess.run(command, capture_output=True, text=True, timeout=90, env=federation.environment())
    assert watch.returncode == 0, watch.stderr
    failed = r"^nils, move 2: failed, StepFailed: The step work raised ValueError\."
    assert re.search(failed, watch.stderr, re.MULTILINE)
    late = subprocess.run(command, capture_output=True, text=True, timeout=90, env=federation.environment())
    assert re.search(failed, late.stderr, re.MULTILINE), "who watches when it is over reads it too"
    last = re.compile(r"  info     nora, move 3: finished the step in")
    federation.until(lambda: any(map(last.search, tideline(federation, "run", "logs", run))), "nora to have told all")
    lines = tideline(federation, "run", "logs", run)
    assert any(re.search(r"  error    nils, move 2: failed after \d+\.\d s: ValueError$", line) for line in lines)
    assert any(re.search(r"  info     nora, join 1: began to work$", line) for line in lines)
    told = [json.loads(line) for line in tideline(federation, "run", "logs", run, "--json")]
    assert {e["data"].get("client") for e in told if e["kind"] == "note"} == set(TALKING)
    assert b"SECRET" not in tap.all() and b"raised ValueError" in tap.all()


@pytest.mark.processes
def test_logs_are_chosen(sites: tuple[Net, Tap]) -> None:
    """By client and by level; to the run's end with --follow; what is no level is refused."""
    federation, _ = sites
    run = federation.run(FAILING)
    federation.ended(run)
    of_nils = tideline(federation, "run", "logs", run, "--client", "nils", "--level", "warning")
    assert of_nils and all(" nils, move 2: failed" in line for line in of_nils)
    assert tideline(federation, "run", "logs", run, "--client", "nobody") == []
    assert any(line.endswith("run: completed") for line in tideline(federation, "run", "logs", run, "--follow"))
    assert "did you mean warning?" in " ".join(tideline(federation, "run", "logs", run, "--level", "warnin"))


@pytest.mark.processes
def test_a_silent_site_is_told(sites: tuple[Net, Tap]) -> None:
    """A run that waits says of whom nothing has been heard, and since when."""
    federation, _ = sites
    run = federation.run({**FAILING, "roster": {"nora": "source", "ghost": "source"}, "waiting": {}})
    federation.until(lambda: [e["client"] for e in federation.result(run)["awaited"]] == ["ghost"], "nora to join")
    (awaited,) = federation.result(run)["awaited"]
    assert awaited["silent_seconds"] is None
    assert "ghost has never enrolled" in tideline(federation, "run", "show", run)
    federation.client().post(f"/runs/{run}/cancel")
    assert federation.result(run)["awaited"] == []
