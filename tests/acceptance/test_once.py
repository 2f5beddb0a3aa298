"""A coordinator killed between what it has done and the answer: the call, sent again with its key, is not done again."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.conftest import WORLD
from tests.acceptance.harness import Net, net
from tests.postgres import own_schema
from tideline.core.run import RunId
from tideline.engine.coordinator.run_service import CANCELLED, RESUMED
from tideline.engine.model.runs import Status
from tideline.engine.ports.journal import Journal

AT_NIGHT = pytest.mark.nightly(job="journeys")

pytestmark = pytest.mark.processes
GIVEN: dict[str, Any] = {"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": {"nobody": "source"}, "reference": {}}


ONE = pytest.mark.parametrize("gates", ["sqlite"], indirect=True, scope="module")
BOTH = pytest.mark.parametrize("gates", ["sqlite", pytest.param("postgres", marks=AT_NIGHT)], indirect=True, scope="module")


@pytest.fixture(scope="module")
def gates(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    """A coordinator whose journal stops where it is told to."""
    home = tmp_path_factory.mktemp("once")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDELINE_TEST_GATE", str(home))
        if request.param == "sqlite":
            yield from started(home, None)
        else:
            with own_schema() as url:
                yield from started(home, url)


def started(home: Path, database: str | None) -> Iterator[Net]:
    with net(home, database=database) as made:
        made.modules["coordinator"] = "tests.acceptance.stopping"
        made.coordinator()
        yield made


def ids(journal: Journal) -> set[RunId]:
    return set(journal.run_ids())


class Call:
    """One call with one key, sent as often as a test wants."""

    def __init__(self, at: Net, path: str, body: Any = None) -> None:
        self.at, self.path, self.body = at, path, body
        self.key = str(uuid.uuid4())

    def send(self) -> httpx.Response:
        """Send it; raises TransportError where the coordinator dies."""
        headers = {"Authorization": f"Bearer {(self.at.folder / 'admin.key').read_text()}", "Idempotency-Key": self.key}
        return httpx.post(f"http://127.0.0.1:{self.at.http}{self.path}", json=self.body, headers=headers, timeout=60)

    def die_at(self, place: str) -> None:
        """Send it to a coordinator that is killed once this call of its journal is committed, and start that again."""
        stop, reached = (self.at.home / f"{word}-{place}" for word in ("stop", "at"))
        stop.touch()
        lost: list[Exception] = []
        sender = threading.Thread(target=self.lose, args=(lost,))
        sender.start()
        self.at.until(reached.exists, f"the coordinator to have done {place}")
        self.at.kill("coordinator")
        sender.join()
        assert len(lost) == 1, "nobody was told anything"
        stop.unlink()
        reached.unlink()
        self.at.again("coordinator")
        self.at.ready()

    def lose(self, lost: list[Exception]) -> None:
        try:
            self.send()
        except httpx.TransportError as error:
            lost.append(error)

    def answered(self) -> httpx.Response:
        """Send it until it is answered, then once more: the same again."""
        found: list[httpx.Response] = []

        def settled() -> bool:
            found.append(self.send())
            return found[-1].status_code not in (409, 503)

        self.at.until(settled, "an answer")
        again = self.send()
        assert (again.status_code, again.content) == (found[-1].status_code, found[-1].content)
        assert again.headers["idempotent-replayed"] == "true" and again.headers.get("location") == found[-1].headers.get(
            "location"
        )
        return found[-1]


@BOTH
@pytest.mark.parametrize(
    "place", [pytest.param("reserve", marks=AT_NIGHT), "create_once", pytest.param("conclude", marks=AT_NIGHT)]
)
def test_a_run_is_started_once(gates: Net, place: str) -> None:
    """Killed once the key is reserved, once the run is there, and once the answer is kept: one run, with its orders, once."""
    with gates.journal() as journal:
        before = ids(journal)
        call = Call(gates, "/runs", GIVEN)
        call.die_at(place)
        answer = call.answered()
        (run,) = ids(journal) - before
        assert (answer.status_code, answer.json()["run"], answer.headers["location"]) == (201, run, f"/runs/{run}")
        assert [e.kind for e in journal.events(run)].count("created") == 1 and len(journal.orders(run)) == 1


@pytest.mark.nightly(job="journeys")
@ONE
@pytest.mark.parametrize("place", ["add_invite", "conclude"])
def test_an_invitation_is_made_once(gates: Net, place: str, data: dict[str, Path]) -> None:
    name = f"site-{place}"
    call = Call(gates, "/invites", {"name": name, "ttl_seconds": 600})
    call.die_at(place)
    token = call.answered().json()["token"]
    gates.start(name, *gates.agent_command(name, data["a"], "source", token))
    gates.heard(name, "enrolled")


@pytest.mark.nightly(job="journeys")
@ONE
def test_a_run_is_cancelled_once(gates: Net) -> None:
    """The repeat is told of the success, not that there is nothing left to cancel."""
    run = gates.run(GIVEN)
    call = Call(gates, f"/runs/{run}/cancel")
    call.die_at("set_status")
    assert call.answered().json()["status"] == "cancelled"
    with gates.journal() as journal:
        assert [e.data.get("cause") for e in journal.events(RunId(run))].count(CANCELLED) == 1
    assert Call(gates, f"/runs/{run}/cancel").send().status_code == 409


@pytest.mark.nightly(job="journeys")
@ONE
def test_a_run_is_resumed_once(gates: Net) -> None:
    """Also if it has stalled again by the time of the repeat: nobody asked for that to be resumed."""
    run = gates.run(GIVEN | {"waiting": {"deadline": 1}})
    assert gates.ended(run)["status"] == "stalled"
    call = Call(gates, f"/runs/{run}/resume")
    call.die_at("reopen")
    assert gates.ended(run)["status"] == "stalled"
    assert call.answered().status_code == 200
    with gates.journal() as journal:
        assert [e.data.get("cause") for e in journal.events(RunId(run))].count(RESUMED) == 1
        row = journal.run(RunId(run))
        assert row is not None and row.status is Status.STALLED


@ONE
def test_a_command_over_a_restart(gates: Net, tmp_path: Path) -> None:
    """`tideline run start` while the coordinator is killed and started again: it says that it waits, and starts one run."""
    file, stop, reached = tmp_path / "e.json", gates.home / "stop-create_once", gates.home / "at-create_once"
    file.write_text(json.dumps(GIVEN))
    stop.touch()
    with gates.journal() as journal:
        before = ids(journal)
        command = [sys.executable, "-m", "tideline", "run", "start", str(file), "--home", str(gates.folder), "--json"]
        sent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=gates.environment())
        gates.until(reached.exists, "the run to be written")
        gates.kill("coordinator")
        stop.unlink()
        reached.unlink()
        gates.again("coordinator")
        told, said = sent.communicate(timeout=60)
        (run,) = ids(journal) - before
    assert (sent.returncode, json.loads(told)["run"]) == (0, run), said
    assert said.count("Trying again for 30 s") == 1
    gates.ready()
