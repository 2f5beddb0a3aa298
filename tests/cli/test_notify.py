"""Targets on the command line: added, listed, tried and removed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.world import Coordinator, refusal_of, tide
from tests.receivers import receiving
from tideline.engine.coordinator.notices.targets import Targets
from tideline.engine.simulation.adapters import ManualClock
from tideline_server.notify.addresses import allowed_in
from tideline_server.notify.sending import NoticeSender
from tideline_server.notify.webhooks import Webhooks
from tideline_server.store import SqlJournal


@pytest.fixture
def notifying(there: Coordinator, tmp_path: Path) -> Iterator[Coordinator]:
    """The coordinator of the commands, which notifies for the time of a test."""
    state, store, clock = there.app.state, SqlJournal(tmp_path / "journal.db"), ManualClock(1000.0)
    before, sender = state.services, NoticeSender(Webhooks(allowed_in(["127.0.0.0/8"]), seconds=2.0))
    state.services = replace(before, targets=Targets(store.notices, sender, clock))
    yield there
    state.services = before
    store.close()


def done(there: Coordinator, *more: str) -> Any:
    return tide("notify", *more, "--home", there.home)


def test_a_target_by_its_commands(notifying: Coordinator) -> None:
    """Its secret is printed once; a test says how it went; the list says what goes where."""
    with receiving() as receiver:
        made = done(notifying, "add", receiver.url, "--on", "failed, stalled", "--name", "chat")
        assert made.exit_code == 0 and "chat gets notices of all projects: stalled, failed" in made.stdout
        assert made.stdout.count("whsec_") == 1
        assert done(notifying, "test", "chat").stdout == "chat took it: HTTP 204\n"
    listed = done(notifying, "list").stdout
    assert "chat" in listed and "all" in listed and "whsec_" not in listed and "/hook" not in listed
    [row] = json.loads(done(notifying, "list", "--json").stdout)
    assert (row["on"], row["form"]) == (["stalled", "failed"], "json")
    assert "gets no more notices" in done(notifying, "remove", "chat").stdout
    assert "There is no target 'chat'" in refusal_of(done(notifying, "remove", "chat"))


def test_a_test_that_is_not_taken_ends_with_3(notifying: Coordinator) -> None:
    with receiving() as receiver:
        receiver.answers = [500]
        done(notifying, "add", receiver.url, "--on", "failed", "--name", "chat", "--form", "teams")
        found = done(notifying, "test", "chat")
    assert found.exit_code == 3 and "chat did not take the test: HTTP 500" in found.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("https://10.0.0.1/", "--on", "failed"), "10.0.0.1 has no address to which notices may go"),
        (("https://10.0.0.1/", "--on", "fialed"), "did you mean failed?"),
        (("https://10.0.0.1/", "--on", "failed", "--form", "sms"), "--form is 'sms'"),
        (("mailto:ann@example.org", "--on", "failed"), "This coordinator sends no e-mail"),
        (("https://10.0.0.1/", "--on", " , "), "on names nothing"),
    ],
)
def test_what_is_refused(notifying: Coordinator, words: tuple[str, ...], said: str) -> None:
    assert said in refusal_of(done(notifying, "add", *words))
