"""The fast reader of .csv files beside the slow one: equal values to the bit, and equal refusals."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example
from hypothesis import strategies as st

from tests.numerics.examples import for_all
from tideline.core.asked.world import World, world_in
from tideline.core.errors import DataRefused
from tideline.core.run import Role
from tideline.learning.formats import csv_files
from tideline.learning.formats.columns import fast_csv
from tideline.learning.formats.columns.fast_csv import Unsure
from tideline.learning.formats.folder import read_folder

PLAIN = World(inputs=(2,), classes=3)
MIXED = world_in({"columns": {"b": {"missing": "median"}, "a": ["x", "1", "e e"]}, "missing": "indicator", "classes": 3})
CELLS = st.sampled_from(
    [
        *("0", "1", "2", "-1", "1.5", " 2 ", "+3", ".5", "5.", "1e5", "1E-3", "0.1", "1e308", "1e-320", "123456789012345678901"),
        *("", "NA", "nan", "-nan", "inf", "Infinity", "null", "N/A", "x", "e e", "1_000", "0x10", "1,5", "1;5", "١", "é", "True"),
        *('"1"', '"x"', '""', '"NA"', '"1,5"', 'x"', '"x"y', '"x""y"', '"a\nb"', '"1', "\u00a01", "\t1", "1\0", "1e400", "--1"),
        *("0.30000000000000004", "2.2250738585072011e-308", "9007199254740993", "1.7976931348623157e308"),
    ]
)
WORDS = st.sampled_from(["x", "1", "e e", " x ", "1.0", '"x"', "", "NA", '"e e"'])
GAPS = st.sampled_from(["1", "2.5", "", "NA", "null", '""', "nan"])
NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr) | st.floats(-1e30, 1e30).map(repr)


@st.composite
def tables(draw: st.DrawFn) -> bytes:
    """A table of two features, a label and a text, now and then with something odd."""
    separator, end = draw(st.sampled_from([",", ";", "\t"])), draw(st.sampled_from(["\n", "\r\n", "\n", "\r"]))
    odd = draw(st.booleans())
    cell = NUMBERS | CELLS if odd else NUMBERS
    first, second = draw(st.sampled_from([(cell, cell), (NUMBERS, NUMBERS), (WORDS, NUMBERS), (WORDS, GAPS)]))
    rows = draw(st.lists(st.tuples(first, second, st.sampled_from(["0", "1", "2", ""]), CELLS if odd else NUMBERS), max_size=8))
    head = draw(st.sampled_from(["a,b,y,note", '"a","b",y,note', "a, b ,y,note", "\n\na,b,y,note"])).replace(",", separator)
    lines = [head, *(separator.join(row) for row in rows), *draw(st.sampled_from([[""], ["", ""], [], ["1"], ["", "  "]]))]
    bom = draw(st.sampled_from(["", "", "\ufeff"]))
    ends = b"\xff\n" if draw(st.integers(0, 20)) == 0 else b""
    return f"{bom}{end.join(lines)}".encode() + ends


def outcome(folder: Path, world: World) -> Any:
    """What an agent reads, or why it refuses."""
    try:
        found = read_folder(folder, world, Role.PEER)
    except DataRefused as error:
        return error.what, error.todo, {key: value for key, value in error.context.items() if key != "said"}
    sides = (found.train, found.held_out)
    rows = [x for side in sides for x in (side.x, side.bare) if x is not None]
    return [x.all().double().numpy().tobytes() for x in rows], [None if side.y is None else side.y.tolist() for side in sides]


def both(folder: Path, world: World) -> tuple[Any, Any]:
    fast = outcome(folder, world)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast_csv, "check_head", refuse)
        return fast, outcome(folder, world)


def refuse(*given: object) -> None:
    raise Unsure


@pytest.mark.parametrize("world", [PLAIN, MIXED], ids=["plain", "mixed"])
@for_all(100, tables())
@example(b'a,b,y,note\n1,2,0,"x\n2,3,1,y"\n3,4,2,z\n')
@example(b'a,b,y,note\n1,2,0,"x"y\n2,3,1,z\n')
@example(b"a,b,y,note\r\n1,2,0,x\r\n\r\n2,-nan,1,z\r\n")
def test_both_readers_say_the_same(world: World, content: bytes) -> None:
    separator = next(s for s in (b";", b"\t", b",") if s in content.split(b"note")[0])
    with tempfile.TemporaryDirectory() as name:
        (folder := Path(name)).joinpath("ward.csv").write_bytes(content)
        more = "" if world.columns else 'columns = ["a", "b"]\n'
        (folder / "transforms.toml").write_text(f"[ward]\nseparator = {json.dumps(separator.decode())}\n{more}")
        fast, slow = both(folder, world)
    assert fast == slow


def spied(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the slow reader's second pass was asked."""
    asked, slow = list[bool](), csv_files.slow_numbers
    monkeypatch.setattr(csv_files, "slow_numbers", lambda *given: asked.append(True) or slow(*given))
    return asked


@pytest.mark.parametrize(
    "text",
    [
        "a,b,y\n1,2,0\n3,4,1\n5,6,2\n",
        '\ufeff"a","b","y"\r\n"1","2","0"\r\n\r\n"3","4","1"\r\n5,6,2',
        'note;a;b;y\n"one; two";1;2;0\nx;3;4;1\ny;5;6;2\n',
    ],
)
def test_usual_tables_are_read_fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Quotes around cells, a byte order mark, Windows line ends and other separators among them."""
    asked = spied(monkeypatch)
    (tmp_path / "ward.csv").write_bytes(text.encode())
    separator = ";" if ";" in text else ","
    (tmp_path / "transforms.toml").write_text(f'[ward]\ncolumns = ["a", "b"]\nseparator = "{separator}"\n')
    found = read_folder(tmp_path, PLAIN, Role.SOURCE)
    rows = torch.cat([found.train.x.all(), found.held_out.x.all()])
    assert sorted(rows.tolist()) == [[1, 2], [3, 4], [5, 6]] and not asked


@pytest.mark.parametrize("rows", [0, 1, 500])
def test_blocks_end_at_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """A bad cell far down is named by its line, after blocks that were read fast."""
    monkeypatch.setattr(fast_csv, "BLOCK", 200)
    lines = [f"{i},{i / 8},{i % 3}" for i in range(600)]
    (tmp_path / "ward.csv").write_text("a,b,y\n" + "\n".join(lines))
    fast, slow = both(tmp_path, PLAIN)
    assert fast == slow and isinstance(fast[0], list)
    lines[rows] = "1,two,0"
    (tmp_path / "ward.csv").write_text("a,b,y\n" + "\n".join(lines))
    fast, slow = both(tmp_path, PLAIN)
    assert fast == slow and f"line {rows + 2}, column 2" in fast[0]


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ward.csv").write_text("a,b,y\n1,2,0\n3,4,1\n5,6,2\n")
    fast = outcome(tmp_path, PLAIN)
    monkeypatch.setitem(sys.modules, "pyarrow.csv", None)
    asked = spied(monkeypatch)
    assert outcome(tmp_path, PLAIN) == fast and asked


def test_a_long_line_is_left_to_the_slow_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ward.csv").write_text("a,b,y,note\n1,2,0,\n3,4,1," + "x" * 140_000 + "\n5,6,2,\n")
    (tmp_path / "transforms.toml").write_text('[ward]\ndrop = ["note"]\n')
    fast, slow = both(tmp_path, PLAIN)
    assert fast == slow and "field larger than field limit" in fast[0]
