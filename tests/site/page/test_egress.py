"""What left, by a ledger of many entries: found as a plain search would, in little memory, and each field with its bytes."""

from __future__ import annotations

import csv
import io
import json
import tracemalloc
from pathlib import Path

import pytest

from benchmarks.ledger import write
from tideline.core.settings import Plain
from tideline_agent.home.ledger import FILE, FileLedger
from tideline_agent.page.content import MOST_ROWS, egress_of
from tideline_agent.page.egress import DIGEST, Egress, Search
from tideline_agent.page.sent import as_csv, as_lines

ENTRIES = 2000
MOST_BYTES = 120  # of memory for a reply
WORDS = ("", "weights", "train/fit", "WEIGHTS model", "00000000000a", "no such", "17", "fit coordinator 19", "b3-0 rows", "beef")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("ledger")
    write(made, ENTRIES)
    return made


def plain(home: Path) -> list[dict[str, Plain]]:
    """Replies of a ledger, the newest first, as they stand there."""
    rows = [json.loads(line) for line in (home / FILE).read_text().splitlines()]
    return [row for row in reversed(rows) if row["kind"] == "reply"]


def has(row: dict[str, Plain], word: str) -> bool:
    """In its names, or in a digest, if the word may be of one."""
    names, digests = named(row)
    return word in names or bool(DIGEST.fullmatch(word) and word in digests)


def named(row: dict[str, Plain]) -> tuple[str, str]:
    details = row["details"]
    assert isinstance(details, dict)
    fields = " ".join(word for each in details["fields"] for word in each)  # type: ignore[union-attr]
    digests = " ".join(str(each[0]) for each in details["files"])  # type: ignore[union-attr,index]
    return f"{row['seq']} {row['run']} {details['step']} {fields}".lower(), digests


@pytest.mark.parametrize("text", WORDS)
def test_a_search_finds_what_a_plain_one_finds(home: Path, text: str) -> None:
    """Words in any order, in names, numbers of entries and digests. A digest's part of three signs or less is none."""
    expected = [row["seq"] for row in plain(home) if all(has(row, word) for word in text.lower().split())]
    found = Egress(home).found(Search(text=text))
    assert [sent.entry for sent in found.read()] == expected and len(found.at) == len(expected)


def test_a_digest_and_a_part_of_one(home: Path) -> None:
    row = plain(home)[7]
    digest = str(row["details"]["files"][1][0])  # type: ignore[index,call-overload]
    for word in (digest, digest[10:24], digest[:12].upper()):
        assert row["seq"] in [sent.entry for sent in Egress(home).found(Search(text=word)).read()], word


@pytest.mark.nightly(job="numbers")
def test_run_and_time(home: Path) -> None:
    """Together with words; sums are of all that was found, a page has its rows."""
    rows = plain(home)
    run, since, until = str(rows[100]["run"]), float(rows[110]["at"]), float(rows[90]["at"])  # type: ignore[arg-type]
    search = Search("weights", run, since, until)
    expected = [row for row in rows if row["run"] == run and since <= row["at"] < until]  # type: ignore[operator]
    shown = egress_of(Egress(home), search, 0)
    assert shown["found"] == len(expected) > 0 and shown["bytes"] == 12000 * len(expected)
    assert shown["runs"] == [[run, len(expected), 12000 * len(expected)]]
    last = egress_of(Egress(home), Search(), ENTRIES // 2 - 3)
    assert last["page"] == MOST_ROWS and len(last["rows"]) == 3  # type: ignore[arg-type]


def test_little_stays_in_memory(home: Path) -> None:
    """Whatever a ledger's length: what a page does not show lies in the file."""
    egress = Egress(home)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    assert egress.size() == ENTRIES // 2
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert taken < MOST_BYTES * ENTRIES // 2 + 40_000


def test_exports_have_all(home: Path) -> None:
    """Each field with its bytes and digest, in both forms."""
    found = Egress(home).found(Search())
    lines = [json.loads(line) for line in as_lines(found.read())]
    table = list(csv.DictReader(io.StringIO("".join(as_csv(found.read())))))
    assert len(lines) == len(table) == ENTRIES // 2
    first = plain(home)[0]["details"]
    assert isinstance(first, dict)
    digests = [each[0] for each in first["files"]]  # type: ignore[union-attr,index]
    assert lines[0]["sizes"] == [["model", 3900, digests[1]], ["rows", 2, digests[0]]]
    assert table[0]["sizes"] == f"model 3900 {digests[1]}; rows 2 {digests[0]}"


def test_a_line_that_changes_later_shows_no_digest(tmp_path: Path) -> None:
    """What was counted stays; the chain tells that it is another by now."""
    ledger = FileLedger(tmp_path)
    for number in (1, 2):
        ledger.record("reply", run="r", order=str(number), files=[["b3-aaaa", 1]], bytes=1, step="a/b", round=1, fields=[])
    egress = Egress(tmp_path)
    found = egress.found(Search())
    text = (tmp_path / FILE).read_text()
    (tmp_path / FILE).write_text("x" * text.index("\n") + text[text.index("\n") :])
    assert [sent.digests for sent in found.read()] == [("b3-aaaa",), ()] and egress.verify().broken


@pytest.mark.parametrize("odd", ['"bytes": "many"', '"fields": 7', '"bytes": 1e400', '"round": []'])
def test_entries_that_make_no_sense(tmp_path: Path, odd: str) -> None:
    """Another version's, or somebody's: the page says where it stops, and does not fall."""
    ledger = FileLedger(tmp_path)
    facts: dict[str, Plain] = {"run": "r", "order": "o", **json.loads(f"{{{odd}}}")}
    try:
        ledger.record("reply", **facts)
    except (ValueError, TypeError, OverflowError):
        return  # no ledger takes it
    assert Egress(tmp_path).chain().broken
