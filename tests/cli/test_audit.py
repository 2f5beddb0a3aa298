"""`tideline audit`: the chain is followed here, and what was verified before is remembered."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.world import KEY, Coordinator, assert_refuses, json_of, output_of, refusal_of, tide
from tideline.client.audit import Verified, file_of_tips, save, verified_logs
from tideline.engine.audit.log import UNREADABLE, AuditEvent, Entry, Tip, chained, line_of, read_line
from tideline.engine.simulation.journal import MemoryJournal


@pytest.fixture
def busy(there: Coordinator) -> Coordinator:
    """A coordinator at which something was done."""
    there.complete(world={"inputs": [1, 8, 8], "classes": 10, "model": "linear"})
    assert tide("clients", "revoke", "bert", "--reason", "left", "--home", there.home).exit_code == 0
    return there


def entries(there: Coordinator) -> list[Entry]:
    journal = there.federation.journal
    assert isinstance(journal, MemoryJournal)
    return journal._chain()


def verify(there: Coordinator, *more: str) -> Any:
    return tide("audit", "verify", "--home", there.home, *more)


def test_a_log_is_verified_and_remembered(busy: Coordinator) -> None:
    """How far, in a file of this user alone; the next time it is told that it is as it was."""
    last = entries(busy)[-1]
    assert f"The log is valid: {last.seq} entries, the last with hash {last.hash}" in output_of(verify(busy))
    assert stat.S_IMODE(file_of_tips().stat().st_mode) == 0o600
    assert verified_logs()[busy.url].tip == Tip(last.seq, last.hash)
    assert tide("keys", "add", "--name", "alice", "--role", "viewer", "--home", busy.home).exit_code == 0
    assert f"The {last.seq} entries that you verified on" in verify(busy).stdout
    found = json_of(verify(busy, "--json"))
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
    log[2] = replace(kept[2], details={UNREADABLE: {"details": "[1]"}})
    broken(verify(busy, "--json"), 3, "Entry 3 is not as it was written and cannot be read: {'details': '[1]'}")
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
    broken(verify(busy, "--json"), len(kept), f"Entry {len(kept)} differs from that of")
    assert verify(busy, "--forget").exit_code == 0
    assert verify(busy).exit_code == 0


def test_what_was_good_is_forgotten_for_what_is_good_alone(busy: Coordinator) -> None:
    """A log that is broken takes no memory with it: the next look, without --forget, still tells what was seen before."""
    log = entries(busy)
    kept = list(log)
    assert verify(busy).exit_code == 0
    known = verified_logs()
    log[:] = [*kept[:2], replace(kept[2], by="mallory"), *kept[3:]]
    broken(verify(busy, "--json", "--forget"), 3, "Entry 3 is not as it was written")
    assert verified_logs() == known
    log[:] = kept[:-1]
    broken(verify(busy, "--json"), len(kept), f"The log ends with entry {len(kept) - 1}")
    assert verify(busy, "--forget").exit_code == 0
    assert verified_logs()[busy.url].tip == Tip(len(kept) - 1, kept[-2].hash)


def test_who_is_slower_does_not_put_an_older_entry_back() -> None:
    """Of two that verify at once the one that came further is remembered; who says --forget means it."""
    late, early = Verified(9, "b" * 64, 2.0), Verified(5, "a" * 64, 3.0)
    save("http://here:1", late)
    save("http://here:1", early)
    save("http://there:1", early)
    assert verified_logs() == {"http://here:1": late, "http://there:1": early}
    save("http://here:1", early, forget=True)
    assert verified_logs()["http://here:1"] == early


def test_an_address_is_remembered_however_it_is_spelled(busy: Coordinator) -> None:
    """As with logins. What an older version kept under other spellings counts, that which was verified further."""
    log = entries(busy)
    shouted = busy.url.replace("http", "HTTP")
    further, nearer = ({"seq": e.seq, "hash": e.hash, "at": 1.0} for e in (log[-1], log[0]))
    save(busy.url, Verified(1, log[0].hash, 1.0))
    file_of_tips().write_text(json.dumps({shouted: further, busy.url: nearer}))
    log.pop()
    broken(tide("audit", "verify", "--json", "--url", shouted + "/", "--api-key", KEY), len(log) + 1, "it was cut off")
    assert verify(busy, "--forget").exit_code == 0
    assert list(verified_logs()) == [busy.url] == list(json.loads(file_of_tips().read_text()))


def test_a_memory_that_others_may_write_is_refused(busy: Coordinator) -> None:
    verify(busy)
    file_of_tips().chmod(0o666)
    assert verify(busy).exit_code == 2
    file_of_tips().chmod(0o600)
    file_of_tips().write_text("{")
    assert "cannot be read" in refusal_of(verify(busy))


def test_a_list(busy: Coordinator) -> None:
    shown = tide("audit", "list", "--home", busy.home).stdout
    assert all(word in shown for word in ("log_begun", "enrolled", "run_completed", "revoked", "reason left"))
    rows = json_of(tide("audit", "list", "--client", "bert", "--kind", "revoked", "--json", "--home", busy.home))
    assert [(row["by"], row["details"]) for row in rows] == [("admin", {"reason": "left"})]
    assert tide("audit", "list", "--run", "none", "--home", busy.home).stdout == "No such entry\n"
    assert tide("audit", "list", "--since", "2h", "--home", busy.home).stdout == "No such entry\n"  # its clock begins at 0
    assert tide("audit", "list", "--since", "1960-01-01", "--home", busy.home).stdout == shown
    assert "--since is 'yesterday'" in refusal_of(tide("audit", "list", "--since", "yesterday", "--home", busy.home))
    assert "kind" in refusal_of(tide("audit", "list", "--kind", "revocation", "--home", busy.home))


def test_an_export_is_verified_anywhere(busy: Coordinator, tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    assert tide("audit", "export", "--out", file, "--home", busy.home).exit_code == 0
    assert tide("audit", "verify", "--file", file).exit_code == 0
    assert json_of(tide("audit", "export", "--out", file, "--json", "--home", busy.home))["entries"] == len(entries(busy))
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([*lines[:4], lines[4].replace('"kind":"', '"kind":"un'), *lines[5:]]))
    broken(tide("audit", "verify", "--file", file, "--json"), 5, "Entry 5 is not as it was written")
    file.write_text("".join([*lines[:4], "\x00é\n", *lines[5:]]))
    broken(tide("audit", "verify", "--file", file, "--json"), 5, "Line 5 is no entry")
    file.write_text("")
    assert tide("audit", "verify", "--file", file).exit_code == 4
    assert tide("audit", "verify", "--file", tmp_path / "none").exit_code == 4


def test_an_export_is_whole_or_is_not_there(busy: Coordinator, tmp_path: Path) -> None:
    """Nobody else may read it; a log that does not hold leaves the file of before; nothing else lies beside it."""
    folder, log = tmp_path / "exports", entries(busy)
    file = folder / "log.jsonl"
    folder.mkdir()
    file.write_text("from before")
    kept = list(log)
    log[2] = replace(log[2], by="mallory")
    broken(tide("audit", "export", "--out", file, "--json", "--home", busy.home), 3, "Entry 3 is not as it was written")
    log[:] = kept[:2]
    busy.federation.journal.audit_tip = lambda: Tip(3, kept[2].hash)  # type: ignore[method-assign]
    broken(tide("audit", "export", "--out", file, "--json", "--home", busy.home), 3, "The log ends with entry 2")
    assert file.read_text() == "from before"
    del busy.federation.journal.audit_tip
    log[:] = kept
    assert tide("audit", "export", "--out", file, "--home", busy.home).exit_code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [read_line(at, line) for at, line in enumerate(file.read_text().splitlines(), 1)] == log
    assert tide("audit", "export", "--out", folder, "--home", busy.home).exit_code == 2
    assert list(folder.iterdir()) == [file]


def test_an_export_ends_where_the_log_ended_when_it_began(busy: Coordinator, tmp_path: Path) -> None:
    journal, file = busy.federation.journal, tmp_path / "log.jsonl"
    tip = journal.audit_tip()
    journal.audit_tip = lambda: tip  # type: ignore[method-assign]
    journal.record([AuditEvent("approved", 1.0)])
    told = json_of(tide("audit", "export", "--out", file, "--json", "--home", busy.home))
    assert (told["entries"], told["hash"]) == (tip.seq, tip.hash) and len(file.read_text().splitlines()) == tip.seq


def test_an_export_that_was_cut(busy: Coordinator, tmp_path: Path) -> None:
    """The file alone does not tell, and the command says so; the hash of its last entry does."""
    file = tmp_path / "log.jsonl"
    tide("audit", "export", "--out", file, "--home", busy.home)
    last = entries(busy)[-1]
    assert "It cannot show whether more entries followed" in tide("audit", "verify", "--file", file).stdout
    whole = tide("audit", "verify", "--file", file, "--tip", last.hash)
    assert whole.stdout == f"The file is valid up to entry {last.seq}, with hash {last.hash}\n"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    assert f"valid up to entry {last.seq - 1}, with" in tide("audit", "verify", "--file", file).stdout
    broken(tide("audit", "verify", "--file", file, "--tip", last.hash, "--json"), last.seq, f"ends with entry {last.seq - 1}")
    assert tide("audit", "verify", "--file", file, "--tip", "x").exit_code == 2
    assert tide("audit", "verify", "--tip", last.hash, "--home", busy.home).exit_code == 2


def test_lines_with_numbers_that_are_none(tmp_path: Path) -> None:
    file, entry = tmp_path / "log.jsonl", chained(Tip(), [AuditEvent("log_begun", 1.5)])[0]
    for number in ("NaN", "Infinity", "1" + "0" * 400):
        file.write_text(line_of(entry).replace("1.5", number) + "\n")
        broken(tide("audit", "verify", "--file", file, "--json"), 1, "Line 1 is no entry")


def test_a_time_that_no_calendar_has_is_listed(busy: Coordinator) -> None:
    log = entries(busy)
    log[1] = replace(log[1], at=1e300)
    assert "1e+300" in output_of(tide("audit", "list", "--home", busy.home))


def test_only_an_admin_reads_the_log(there: Coordinator) -> None:
    made = json_of(tide("keys", "add", "--name", "eve", "--role", "operator", "--home", there.home, "--json"))
    for command in ("verify", "list"):
        assert_refuses(tide("audit", command, "--url", there.url, "--api-key", made["key"]), "reading the audit log needs admin")
