"""A real agent whose ledger and its head were cut between two starts: the coordinator knows how far it went."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import WORLD
from tests.acceptance.harness import Net, net
from tests.cli.world import tide_process
from tideline_agent.home.ledger import FILE, entries
from tideline_agent.home.ledger_head import HEAD, KNOWN, REPORTED

pytestmark = pytest.mark.processes
RUN = {"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": {"a": "source"}, "reference": None}


@pytest.fixture
def federation(tmp_path: Path, data: dict[str, Path]) -> Iterator[Net]:
    """A coordinator, and an agent that has played a run."""
    with net(tmp_path) as made:
        made.coordinator()
        made.agent("a", data["a"])
        made.completed(made.run(RUN))
        yield made


def row(federation: Net) -> dict[str, object]:
    (found,) = federation.client().get("/clients")
    return dict(found)


def kinds(federation: Net) -> list[str]:
    return [str(each["kind"]) for each in federation.client().get("/audit?client=a") if "ledger" in each["kind"]]


def restarted(federation: Net) -> None:
    """The agent, with a home that somebody has changed meanwhile."""
    federation.kill("a")
    enrolled = federation.log("a").count("enrolled")
    federation.again("a")
    federation.until(lambda: federation.log("a").count("enrolled") > enrolled, "a to enrol")


def cut(home: Path, left: int) -> None:
    """The end of the ledger, and all that the home remembers of it."""
    lines = (home / FILE).read_bytes().splitlines(keepends=True)
    (home / FILE).write_bytes(b"".join(lines[:left]))
    for name in (HEAD, KNOWN):
        (home / name).unlink()


def test_a_ledger_that_was_cut_with_its_head(federation: Net) -> None:
    """Users and owner are reported, the agent works on, and the owner's word ends it."""
    home = federation.home / "home-a"
    replies = [each for each in entries(home) if each.kind == "reply"]
    federation.until(lambda: row(federation)["ledger_entries"] == replies[-1].seq, "the end to be reported")
    assert row(federation)["ledger_hash"] == replies[-1].hash
    restarted(federation)
    federation.until(lambda: row(federation)["ledger_entries"] == len(list(entries(home))), "the next end to be reported")
    assert row(federation)["ledger_now"] is None and kinds(federation) == []

    federation.kill("a")
    cut(home, 3)
    restarted(federation)
    federation.until(lambda: row(federation)["ledger_now"] == 4, "the coordinator to notice")
    reported = row(federation)["ledger_entries"]  # the agent's last beats before its end may have told of more
    federation.until(lambda: "ledger_differs" in federation.log("a"), "the agent to say so")
    assert "1 agent's ledger was cut" in federation.client().get("/ready")["warnings"][0]
    assert "ledger_differs" in federation.log("coordinator") and kinds(federation) == ["ledger_differs"]
    shown = tide_process("clients", "list", "--home", str(federation.folder)).stdout
    assert f"has 4 entries, and had {reported}" in " ".join(shown.split())
    federation.completed(federation.run(RUN))
    assert row(federation)["ledger_entries"] == reported and (home / REPORTED).exists()
    verified = tide_process("site", "ledger", "verify", "--home", str(home))
    assert verified.returncode and "as it was reported to the coordinator" in " ".join(verified.stderr.split())

    accepted = tide_process("site", "ledger", "accept", "--yes", "--home", str(home))
    assert accepted.returncode == 0, accepted.stderr
    restarted(federation)
    federation.until(lambda: row(federation)["ledger_now"] is None, "the coordinator to go on")
    assert kinds(federation) == ["ledger_differs", "ledger_accepted"] and not (home / REPORTED).exists()
    assert federation.client().get("/ready")["warnings"] == []
    assert tide_process("site", "ledger", "verify", "--home", str(home)).returncode == 0
