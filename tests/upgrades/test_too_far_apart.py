"""Versions that do not go together say so: an agent of an older protocol, and a home of a newer format."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.acceptance.harness import COORDINATOR
from tests.cli.world import tide
from tests.upgrades.pair import pair
from tests.upgrades.trees import Released
from tideline.core.signing import OLDEST, PROTOCOL

pytestmark = pytest.mark.processes
SIGNING = "shared/tideline/core/signing.py"


@pytest.fixture
def ancient(old: Released, tmp_path: Path) -> Released:
    """The last release's code as if it spoke a protocol that is no longer understood."""
    tree = tmp_path / "ancient"
    for each in ("shared", "server", "client_agent", "protos"):
        shutil.copytree(old.tree / each, tree / each, ignore=shutil.ignore_patterns("__pycache__"))
    path = tree / SIGNING
    changed, count = re.subn(r"^(PROTOCOL|OLDEST) = \d+", rf"\1 = {OLDEST - 1}", path.read_text(), flags=re.MULTILINE)
    assert count == 2
    path.write_text(changed)
    return Released(old.record, tree)


@pytest.mark.nightly(job="upgrades")
def test_an_agent_that_is_too_old(ancient: Released, tmp_path: Path) -> None:
    """It ends with code 2, and both versions and what to do are in its words; the coordinator goes on."""
    with pair(tmp_path, ancient) as there:
        there.coordinator(name=COORDINATOR)
        there.of_old = {"a"}
        token = there.client().post("/invites", {"name": "a", "ttl_seconds": 600})["token"]
        there.start("a", *there.agent_command("a", there.home / "data" / "a", "source", token))
        assert there.running["a"].wait(60) == 2
        said = there.log("a")
        assert f"speaks protocol {PROTOCOL}" in said and f"speaks protocol {OLDEST - 1}" in said, said
        assert "Install the same version on both ends" in said, said
        assert there.running[COORDINATOR].poll() is None


@pytest.mark.parametrize("command", ["agent", "site ledger list"])
def test_a_home_of_a_newer_format(tmp_path: Path, command: str) -> None:
    """An agent does not begin to work with it, and a command of the owner's reads no ledger that it may not understand."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "format.json").write_text(json.dumps({"vault": 1, "ledger": 99, "version": "9.8.7"}))
    (home / "ledger.jsonl").write_text("")
    words = {
        "agent": ["agent", "--name", "a", "--home", str(home), "--data", str(tmp_path), "--role", "source", "--token", "t"],
        "site ledger list": ["site", "ledger", "list", "--home", str(home)],
    }[command]
    told = tide(*words)
    assert told.exit_code == 2, told.output
    assert "was written by tideline 9.8.7: its ledger is of format 99" in told.output and "Install tideline 9.8.7" in told.output
