"""A real coordinator calls a real receiver, over a kill amid the call."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.acceptance.conftest import WORLD
from tests.acceptance.harness import COORDINATOR, Net, net
from tests.receivers import Receiver, receiving

pytestmark = pytest.mark.processes
HERE = ("--notify-private", "127.0.0.0/8", "--public-url", "http://tideline.example")


def stalled(made: Net) -> str:
    """A run that nobody joins, once it has stalled."""
    experiment = {"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": {"nobody": "source"}}
    run = made.run({**experiment, "name": "<!channel>", "waiting": {"deadline": 0.5}})
    assert made.ended(run)["status"] == "stalled"
    return run


def names(receiver: Receiver) -> list[str]:
    return [got.headers["webhook-id"] for got in receiver.got if json.loads(got.body)["kind"] == "stalled"]


def test_a_stalled_run_is_told_over_a_kill(tmp_path: Path) -> None:
    """The coordinator dies while the receiver thinks; its next start sends the notice again, under the same name."""
    gate = threading.Event()

    def thinks(request: BaseHTTPRequestHandler) -> None:
        gate.wait(60.0)

    with receiving() as receiver, net(tmp_path) as made:
        receiver.answers = [204, thinks]
        made.coordinator(*HERE)
        made.client().post("/notify", {"url": receiver.url, "on": ["stalled", "failed"], "name": "chat"})
        assert made.client().post("/notify/chat/test") == {"taken": True, "words": "HTTP 204"}
        run = stalled(made)
        made.until(lambda: len(names(receiver)) == 1, "the first try")
        made.kill(COORDINATOR)
        gate.set()
        receiver.answers = [204]
        with made.journal() as journal:
            assert journal.notices.pending(0.0).waiting == 1
            [target] = journal.notices.targets()
            [(claimed, _)] = journal.notices.claim(4e9, "the claim of the dead one is over", 0.0, 1)
            journal.notices.put_off(claimed, 0.0, "")
        made.again(COORDINATOR)
        made.ready()
        made.until(lambda: len(names(receiver)) == 2, "the second try")
        assert len(set(names(receiver))) == 1 and target.name == "chat"
        told = json.loads(receiver.got[-1].body)
        assert told["run"] == {"id": run, "name": "<!channel>"} and told["link"] == f"http://tideline.example/#/runs/{run}"
        made.until(lambda: made.client().get("/notify")[0]["last_sent"] is not None, "the coordinator to note it")
        kinds = [entry["kind"] for entry in made.client().get("/audit?limit=1000")]
        assert {"target_added", "run_stalled"} <= set(kinds)
