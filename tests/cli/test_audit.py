"""`tideline audit`: the chain is followed here, and what was verified before is remembered."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.world import Coordinator, tide
from tideline.cli import tips
from tideline.engine.audit import Entry, Tip, chained
from tideline.engine.memory_journal import MemoryJournal


@pytest.fixture
def busy(there: Coordinator) -> Coordinator:
    """A coordinator at which something was done."""
    there.complete()
    assert tide("clients", "revoke", "bert", "--reason", "left", "--home", there.home).exit_code == 0
    return there


def entries(there: Coordinator) -> list[Entry]:
    """The log itself, to be tampered with."""
    journal = there.federation.journal
    assert isinstance(journal, MemoryJournal)
    return journal._entries


def verify(there: Coordinator, *more: str) -> Any:
    """Verify it."""
    return tide("audit", "verify", "--home", there.home, *more)


def test_a_log_is_verified_and_remembered(busy: Coordinator) -> None:
    """How far, in a file of this user alone; the next time it is told that it is as it was."""
    last = entries(busy)[-1]
    told = verify(busy)
    assert told.exit_code == 0 and f"The log is whole: {last.seq} entries, the last with hash {last.hash}" in told.stdout
    assert stat.S_IMODE(tips.place().stat().st_mode) == 0o600
    assert tips.tips()[busy.url].tip == Tip(last.seq, last.hash)
    assert tide("keys", "add", "--name", "alice", "--role", "viewer", "--home", busy.home).exit_code == 0
    assert f"The {last.seq} entries that were verified on" in verify(busy).stdout
    found = json.loads(verify(busy, "--json").stdout)
    assert (found["entries"], found["before"]["entries"]) == (last.seq + 1, last.seq + 1)


def broken(told: Any, entry: int, words: str) -> None:
    """What a command says of a chain that does not hold."""
    assert told.exit_code == 6 and words in told.stderr, told.output
    document = json.loads(told.stdout)
    assert (document["kind"], document["context"]["entry"]) == ("ChainBroken", entry)


def test_a_log_that_was_changed_is_told(busy: Coordinator) -> None:
    """An entry that says something else, one that is gone, one whose end is gone: each with its number."""
    log = entries(busy)
    kept = list(log)
    log[2] = replace(log[2], by="mallory")
    broken(verify(busy, "--json"), 3, "Entry 3 is not as it was written")
    log[:] = kept[:3] + kept[4:]
    broken(verify(busy, "--json"), 4, "Entry 4 is not where it belongs: entry 5 stands there")
    log[:] = kept
    assert verify(busy).exit_code == 0


def test_a_log_that_was_cut_or_rewritten_is_told(busy: Coordinator) -> None:
    """Its hashes are good, but not those that were good before; until somebody says that it is another log."""
    log = entries(busy)
    kept = list(log)
    assert verify(busy).exit_code == 0
    log[:] = kept[:-2]
    broken(verify(busy, "--json"), len(kept) - 1, f"The log ends with entry {len(kept) - 2}")
    forged = [*kept[:2], replace(kept[2], by="mallory"), *kept[3:]]
    log[:] = chained(Tip(), forged)
    broken(verify(busy, "--json"), len(kept), f"Entry {len(kept)} is another than on")
    assert verify(busy, "--forget").exit_code == 0
    assert verify(busy).exit_code == 0


def test_a_memory_that_others_may_write_is_refused(busy: Coordinator) -> None:
    """So is one that is damaged."""
    verify(busy)
    tips.place().chmod(0o666)
    assert verify(busy).exit_code == 2
    tips.place().chmod(0o600)
    tips.place().write_text("{")
    told = verify(busy)
    assert told.exit_code == 2 and "cannot be read" in told.stderr


def test_a_list(busy: Coordinator) -> None:
    """Of all, or of a run, a client, a kind, a time."""
    shown = tide("audit", "list", "--home", busy.home).stdout
    assert all(word in shown for word in ("log_begun", "enrolled", "run_completed", "revoked", "reason left"))
    rows = json.loads(tide("audit", "list", "--client", "bert", "--kind", "revoked", "--json", "--home", busy.home).stdout)
    assert [(row["by"], row["told"]) for row in rows] == [("admin", {"reason": "left"})]
    assert tide("audit", "list", "--run", "none", "--home", busy.home).stdout == "No such entry\n"
    assert tide("audit", "list", "--since", "2h", "--home", busy.home).stdout == "No such entry\n"  # its clock begins at 0
    assert tide("audit", "list", "--since", "1960-01-01", "--home", busy.home).stdout == shown
    wrong = tide("audit", "list", "--since", "yesterday", "--home", busy.home)
    assert wrong.exit_code == 2 and "--since is 'yesterday'" in wrong.stderr
    wrong = tide("audit", "list", "--kind", "revocation", "--home", busy.home)
    assert wrong.exit_code == 2 and "kind" in wrong.stderr


def test_an_export_is_verified_anywhere(busy: Coordinator, tmp_path: Path) -> None:
    """Without a coordinator; a line that is changed is named."""
    file = tmp_path / "log.jsonl"
    assert tide("audit", "export", "--out", file, "--home", busy.home).exit_code == 0
    assert tide("audit", "verify", "--file", file).exit_code == 0
    assert json.loads(tide("audit", "export", "--out", file, "--json", "--home", busy.home).stdout)["entries"] == len(
        entries(busy)
    )
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*lines[:4], lines[4].replace('"kind":"', '"kind":"un'), *lines[5:]]))
    broken(tide("audit", "verify", "--file", file, "--json"), 5, "Entry 5 is not as it was written")
    file.write_text("".join([*lines[:4], "\x00é\n", *lines[5:]]))
    broken(tide("audit", "verify", "--file", file, "--json"), 5, "Line 5 is no entry")
    file.write_text("")
    assert tide("audit", "verify", "--file", file).exit_code == 4
    assert tide("audit", "verify", "--file", tmp_path / "none").exit_code == 4


def test_only_an_admin_reads_the_log(there: Coordinator) -> None:
    """Others are refused, and told what is needed."""
    made = json.loads(tide("keys", "add", "--name", "eve", "--role", "operator", "--home", there.home, "--json").stdout)
    for command in ("verify", "list"):
        told = tide("audit", command, "--url", there.url, "--api-key", made["key"])
        assert told.exit_code == 2 and "reading the audit log needs admin" in told.stderr
