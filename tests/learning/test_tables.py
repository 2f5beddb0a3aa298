"""Tables, .csv and .parquet: what is read, and what is refused with its row and column."""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.numerics.examples import for_all
from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.core.run import Role
from tideline.learning.formats import csv_files
from tideline.learning.formats.folder import read_folder
from tideline.learning.formats.holdings import split_rows

WORLD = World(inputs=(2,), classes=3)
NAMED = World(inputs=(2,), classes=3, class_names=("flu", "cold", "healthy"))
HEAD = "a,b,y\n"
Table = dict[str, list[Any]]


def table(n: int = 10) -> Table:
    return {"a": [i / 4 for i in range(n)], "b": list(range(n)), "y": [i % 3 for i in range(n)]}


def write(folder: Path, kind: str, columns: Table, name: str = "ward") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table(columns), path)
        return path
    rows = [list(columns), *zip(*columns.values(), strict=True)]
    path.write_text("".join(",".join("" if v is None else str(v) for v in row) + "\n" for row in rows), encoding="utf-8")
    return path


def refused(folder: Path, said: str, role: Role = Role.SOURCE, world: World = WORLD) -> DataRefused:
    """The folder is refused with these words and something to do; the refusal."""
    with pytest.raises(DataRefused) as refusal:
        read_folder(folder, world, role)
    assert said in refusal.value.what, refusal.value.what
    assert refusal.value.todo and refusal.value.context["path"]
    return refusal.value


KINDS = pytest.mark.parametrize("kind", ["csv", "parquet"])


@KINDS
def test_rows_and_labels(tmp_path: Path, kind: str) -> None:
    """Features in the file's order, the column y as labels, a fifth held out."""
    write(tmp_path, kind, table())
    holdings = read_folder(tmp_path, WORLD, Role.SOURCE)
    for data, rows in zip((holdings.train, holdings.held_out), split_rows(10), strict=True):
        assert data.x.all().tolist() == [[i / 4, i] for i in rows] and data.x.all().dtype == torch.float32
        assert data.y is not None and data.y.tolist() == [i % 3 for i in rows]
        assert data.domains == ("ward",)


@for_all(
    30,
    arrays.arrays(
        st.sampled_from([np.float32, np.float64, np.int64, np.uint8]),
        st.tuples(st.integers(2, 40), st.integers(1, 4)),
        elements={"allow_nan": False, "allow_infinity": False, "min_value": 0, "max_value": 2**7},
    ),
    st.data(),
)
def test_the_same_numbers_are_the_same_samples(x: np.ndarray, data: st.DataObject) -> None:
    """Whether they stand in a .csv, a .parquet or an .npz file: x and y, to the bit."""
    y = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(x), max_size=len(x))))
    y[:2] = 0, 1
    columns = {f"f{i}": x[:, i].tolist() for i in range(x.shape[1])}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "npz").mkdir()
        np.savez(folder / "npz" / "ward.npz", x=x, y=y)
        write(folder / "csv", "csv", {**columns, "label": y.tolist()})
        write(folder / "parquet", "parquet", {**columns, "label": y.tolist()})
        world = World(inputs=(x.shape[1],), classes=3)
        role = Role.PEER if len(set(y[split_rows(len(y))[0]])) > 1 else Role.TARGET
        read = [read_folder(folder / kind, world, role) for kind in ("npz", "csv", "parquet")]
    for other in read[1:]:
        for a, b in ((read[0].train, other.train), (read[0].held_out, other.held_out)):
            assert torch.equal(a.x.all(), b.x.all())
            assert (a.y is None) == (b.y is None)
            assert a.y is None or (b.y is not None and torch.equal(a.y, b.y))


@KINDS
def test_many_rows_are_read_in_pieces(tmp_path: Path, kind: str) -> None:
    n = 2 * csv_files.ROWS + 7
    write(tmp_path, kind, table(n))
    holdings = read_folder(tmp_path, WORLD, Role.SOURCE)
    assert holdings.train.x.all()[:, 1].tolist() == split_rows(n)[0].tolist()
    assert holdings.held_out.x.all()[:, 1].tolist() == split_rows(n)[1].tolist()


@KINDS
def test_names_are_labels(tmp_path: Path, kind: str) -> None:
    """Words are numbered by the names of the classes, like the names of folders."""
    write(tmp_path, kind, {**table(), "y": ["cold", "healthy"] * 5})
    assert set(read_folder(tmp_path, NAMED, Role.SOURCE).train.y.tolist()) == {1, 2}  # type: ignore[union-attr]
    error = refused(tmp_path, "column y: the label is none of the classes 0 to 2")
    assert "cold" not in str(error)
    (tmp_path / "classes.txt").write_text("healthy\ncold\nflu\n")
    assert set(read_folder(tmp_path, WORLD, Role.SOURCE).train.y.tolist()) == {0, 1}  # type: ignore[union-attr]


@KINDS
def test_settings_of_columns(tmp_path: Path, kind: str) -> None:
    n = 10
    columns = {"id": [f"p{i}" for i in range(n)], **table(), "split": ["train", "test"] * 5}
    columns["diagnosis"] = columns.pop("y")
    write(tmp_path, kind, columns)
    (tmp_path / "transforms.toml").write_text('[ward]\nlabel = "diagnosis"\nheld_out = "split"\ndrop = ["id"]\nscale = 2\n')
    holdings = read_folder(tmp_path, WORLD, Role.SOURCE)
    assert holdings.held_out.x.all().tolist() == [[i / 8, i / 2] for i in range(1, n, 2)]
    (tmp_path / "transforms.toml").write_text('[ward]\nlabel = "diagnosis"\nheld_out = "split"\ncolumns = ["b", "a"]\n')
    assert read_folder(tmp_path, WORLD, Role.SOURCE).held_out.x.all().tolist() == [[i, i / 4] for i in range(1, n, 2)]


@KINDS
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('label = "yy"', "label names the column 'yy', which is not there"),
        ('drop = ["c"]', "drop names the column 'c'"),
        ('columns = ["a", "c"]', "columns names the column 'c'"),
        ('columns = ["a", "a"]', "columns names a column twice"),
        ('columns = ["a", "b"]\nlabel = "b"', "the column 'b' is used for two things"),
        ('label = "y"\ndrop = ["y"]', "the column 'y' is used for two things"),
        ('label = "b"\nheld_out = "b"', "the column 'b' is used for two things"),
        ('columns = ["a"]', "1 columns of features; the world expects 2"),
        ('drop = ["y"]\nlabel = "a"', "1 columns of features; the world expects 2"),
        ('held_out = "a"\ncolumns = ["b", "y"]', "column a: the word does not say whether the row is held out"),
        ("invert = true", "invert has no meaning for a table"),
        ('unreadable = "skip"', "unreadable has no meaning for a table"),
        ("mean = [1, 2, 3]", "mean has 3 numbers"),
    ],
)
def test_bad_settings_are_refused(tmp_path: Path, kind: str, text: str, said: str) -> None:
    """Of columns that are not there, named twice or of the wrong number; the refusal lists what there is."""
    write(tmp_path, kind, table())
    (tmp_path / "transforms.toml").write_text(f"[ward]\n{text}\n")
    error = refused(tmp_path, said)
    assert ("not there" not in said) or error.context["columns"] == ["a", "b", "y"]


def test_numbers_may_name_columns(tmp_path: Path) -> None:
    """Where the owner says so; else it is a first line that was forgotten."""
    (tmp_path / "ward.csv").write_text("400.5,401,402\n1,2,3\n4,5,6\n")
    assert "columns" in refused(tmp_path, "the first line holds numbers", Role.TARGET).todo
    (tmp_path / "transforms.toml").write_text('[ward]\ncolumns = ["402", "400.5"]\n')
    assert sorted(read_folder(tmp_path, WORLD, Role.TARGET).train.x.all().tolist())[0] in ([3, 1], [6, 4])


@KINDS
@pytest.mark.parametrize("word", ["TEST", "true", "1", "Yes", "held_out"])
def test_words_of_a_split(tmp_path: Path, kind: str, word: str) -> None:
    write(tmp_path, kind, {**table(), "split": [word if i in (2, 5) else "train" for i in range(10)]})
    (tmp_path / "transforms.toml").write_text('[ward]\nheld_out = "split"\n')
    assert read_folder(tmp_path, WORLD, Role.SOURCE).held_out.x.all()[:, 1].tolist() == [2, 5]


def test_a_boolean_column_splits(tmp_path: Path) -> None:
    write(tmp_path, "parquet", {**table(), "split": [i < 3 for i in range(10)]})
    (tmp_path / "transforms.toml").write_text('[ward]\nheld_out = "split"\n')
    assert len(read_folder(tmp_path, WORLD, Role.SOURCE).held_out) == 3


@KINDS
def test_a_table_may_lie_on_one_side(tmp_path: Path, kind: str) -> None:
    """Where its column says so, and another domain is on the other; one row is enough for it."""
    for name, word, n in (("ward", "train", 10), ("late", "test", 1)):
        write(tmp_path, kind, {**table(n), "split": [word] * n}, name)
    (tmp_path / "transforms.toml").write_text('[ward]\nheld_out = "split"\n[late]\nheld_out = "split"\n')
    holdings = read_folder(tmp_path, WORLD, Role.SOURCE)
    assert (len(holdings.train), len(holdings.held_out)) == (10, 1)


@KINDS
def test_a_split_of_one_side_is_refused(tmp_path: Path, kind: str) -> None:
    write(tmp_path, kind, {**table(), "split": ["train"] * 10})
    (tmp_path / "transforms.toml").write_text('[ward]\nheld_out = "split"\n')
    refused(tmp_path, "holds out 0 of 10")


@KINDS
def test_labels_are_optional(tmp_path: Path, kind: str) -> None:
    """No column, or one that is empty or -1 throughout, is no labels; a source needs some."""
    for y in (None, [None] * 10, [-1] * 10):
        columns = {k: v for k, v in table().items() if k != "y"} | ({} if y is None else {"y": y})
        if kind == "parquet" and y == [None] * 10:
            columns["y"] = pa.array(y, pa.int64())
        write(tmp_path, kind, columns)
        assert not read_folder(tmp_path, WORLD, Role.TARGET).held_out.labelled
        refused(tmp_path, "no file has labels, but the site is a source")


@KINDS
def test_a_target_judges_held_out_labels_alone(tmp_path: Path, kind: str) -> None:
    held = set(split_rows(10)[1].tolist())
    write(tmp_path, kind, {**table(), "y": [str(i % 3) if i in held else "who knows" for i in range(10)]})
    holdings = read_folder(tmp_path, WORLD, Role.TARGET)
    assert holdings.train.y is None and holdings.held_out.labelled
    refused(tmp_path, "column y: the label is none of the classes")


@KINDS
@pytest.mark.parametrize("label", [3, -2, 1.5, "x", float("inf")])
def test_labels_that_are_no_class_are_refused(tmp_path: Path, kind: str, label: Any) -> None:
    y: list[Any] = [i % 3 for i in range(10)]
    y[4] = label
    y = [str(v) for v in y] if isinstance(label, str) else y
    write(tmp_path, kind, {**table(), "y": y})
    error = refused(tmp_path, f"{'line 6' if kind == 'csv' else 'row 4'}, column y: the label is none of the classes 0 to 2")
    assert error.context["row"] == 4 and error.context["column"] == "y"


@KINDS
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_missing_and_infinite_values_are_refused(tmp_path: Path, kind: str, value: float | None) -> None:
    columns = table()
    columns["a"][7] = value
    write(tmp_path, kind, columns)
    refused(tmp_path, f"{'line 9' if kind == 'csv' else 'row 7'}, column 1: ", Role.TARGET)


def test_a_word_among_numbers_is_refused(tmp_path: Path) -> None:
    """Categories and decimal commas: the cell is told to the owner, not in the sentence that leaves the site."""
    columns = table(3000)
    columns["b"][2500] = "secret"
    write(tmp_path, "csv", columns)
    error = refused(tmp_path, "line 2502, column 2: not a finite number")
    assert error.context["cell"] == "secret" and error.context["column"] == "b" and "secret" not in str(error)


@pytest.mark.parametrize(
    "values",
    [
        *(["x", "y"] * 5, [{"a": 1}] * 10, [[1, 2]] * 10, pa.array([1] * 10, pa.timestamp("s"))),
        pa.array(["a"] * 10).dictionary_encode(),
    ],
)
def test_columns_of_other_types_are_refused(tmp_path: Path, values: Any) -> None:
    """Texts, lists, records, times, categories: by the column's number; its name and type are for its owner."""
    write(tmp_path, "parquet", {**table(), "b": values})
    error = refused(tmp_path, "column 2 holds no numbers")
    assert error.context["column"] == "b" and error.context["kind"]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float32(), pa.float16(), pa.decimal128(9, 2)])
def test_every_type_of_number_is_read(tmp_path: Path, kind: pa.DataType) -> None:
    bits = np.arange(10) % 2
    narrow = pa.array(bits.astype(np.float16)) if kind == pa.float16() else pa.array(bits).cast(pa.int8()).cast(kind)
    write(tmp_path, "parquet", {**table(), "b": narrow})
    assert read_folder(tmp_path, WORLD, Role.SOURCE).held_out.x.all()[:, 1].tolist() == [i % 2 for i in split_rows(10)[1]]


@KINDS
def test_a_world_of_images_is_refused(tmp_path: Path, kind: str) -> None:
    write(tmp_path, kind, table())
    refused(tmp_path, "a table of features; the world expects images", world=World(inputs=(1, 8, 8)))


@KINDS
@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_rows_are_refused(tmp_path: Path, kind: str, n: int) -> None:
    columns: Table = {name: pa.array(v[:n], pa.float64()) if kind == "parquet" else v[:n] for name, v in table().items()}  # type: ignore[misc]
    write(tmp_path, kind, columns)
    refused(tmp_path, f"there is {n or 'no'} row", Role.TARGET)


def test_duplicate_columns_of_a_parquet_file_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_arrays([pa.array([1.0, 2.0])] * 2, ["a", "a"]), tmp_path / "ward.parquet")
    refused(tmp_path, "columns 1 and 2 have the same name", Role.TARGET)


def test_names_with_dots(tmp_path: Path) -> None:
    write(tmp_path, "parquet", {"a": [1, 2, 3], "a.b": [4, 5, 6]})
    assert read_folder(tmp_path, WORLD, Role.TARGET).held_out.x.all().tolist()[0][1] in (4, 5, 6)


@pytest.mark.parametrize("cut", [0, 10, 200])
def test_a_damaged_parquet_file_is_refused(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path, "parquet", table())
    path.write_bytes(path.read_bytes()[:cut])
    refused(tmp_path, "cannot be read as a .parquet file")


@for_all(60, st.integers(0, 10**6), st.integers(1, 255))
def test_damage_to_parquet_is_refused_or_harmless(place: int, change: int) -> None:
    """One changed byte gives a refusal or holdings of the right shape, never another error."""
    with tempfile.TemporaryDirectory() as name:
        path = write(Path(name), "parquet", table(4))
        content = bytearray(path.read_bytes())
        content[place % len(content)] ^= change
        path.write_bytes(content)
        try:
            assert read_folder(name, WORLD, Role.TARGET).train.x.shape == WORLD.inputs
        except DataRefused as error:
            assert error.context["path"]


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "parquet", table())
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert "tideline[parquet]" in refused(tmp_path, "need the package pyarrow").todo


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        ("1,2,0\n3,4,1\n5,6,2\n", "the first line holds numbers"),
        ("a,a,y\n1,2,0\n", "columns 1 and 2 have the same name"),
        (",a,y\n0,1,2\n", "column 1 has no name"),
        ("a;b;y\n1;2;0\n", "the first line has no comma but ';'"),
        ("y,label,a,b\n1,2,0,1\n", "there is a column y and a column label"),
        (HEAD + "1,2,0\n1,2\n", "line 3 has 2 cells; the first line names 3 columns"),
        (HEAD + "1,2,0\n1,2,0,7\n", "line 3 has 4 cells"),
        (HEAD + '1,2,0\n1,"2" 3,0\n', "line 3: "),
        (HEAD + '1,2,0\n1,"2,0\n', "line 3: "),
        (HEAD + "1,2,0\n1,\x00,1\n5,6,2\n7,8,0\n", "line 3, column 2: not a finite number"),
    ],
)
def test_broken_tables_are_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "ward.csv").write_text(text)
    refused(tmp_path, said)


@pytest.mark.parametrize("content", [b"a,b\n1,\xff\n", b"\xff\xfea\x00", b"\x89PNG\r\n\x1a\n"])
def test_other_bytes_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ward.csv").write_bytes(content)
    refused(tmp_path, "a byte that is not UTF-8", Role.TARGET)


def test_a_huge_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "LONGEST", 1000)
    (tmp_path / "ward.csv").write_text(HEAD + "1,2,0\n" + "1," * 600)
    refused(tmp_path, "a line is longer than 1000 characters")
    (tmp_path / "ward.csv").write_text(HEAD + '1,2,"' + "x\n" * 100_000)
    refused(tmp_path, "field larger than field limit")


def test_a_folder_for_a_table_is_refused(tmp_path: Path) -> None:
    for name in ("ward.csv", "ward.parquet"):
        (tmp_path / name).mkdir()
        refused(tmp_path, "cannot be read as a ")
        (tmp_path / name).rmdir()


def test_spellings_of_a_table(tmp_path: Path) -> None:
    """A byte order mark, Windows line ends, blank lines, quotes, spaces, capitals in the suffix, another separator."""
    (tmp_path / "ward.CSV").write_bytes('\ufeffa, b ,y\r\n"1", 2 ,0\r\n\r\n3,4e0,1\r\n5,6,2'.encode())
    (tmp_path / "tabs.csv").write_text("a\tb\ty\n1\t2\t0\n3\t4\t1\n")
    (tmp_path / "transforms.toml").write_text('[tabs]\nseparator = "\\t"\n')
    holdings = read_folder(tmp_path, WORLD, Role.SOURCE)
    assert holdings.train.domains == ("tabs", "ward")
    rows = sorted(torch.cat([holdings.train.x.all(), holdings.held_out.x.all()]).tolist())
    assert rows == [[1, 2], [1, 2], [3, 4], [3, 4], [5, 6]]


def test_dropped_columns_may_hold_anything(tmp_path: Path) -> None:
    """Texts of several lines too; lines are counted as an editor counts them."""
    (tmp_path / "ward.csv").write_text('a,b,note\n1,2,"one,\ntwo"\n3,4,\nx,6,\n')
    (tmp_path / "transforms.toml").write_text('[ward]\ndrop = ["note"]\n')
    refused(tmp_path, "line 5, column 1", Role.TARGET)


def test_values_beyond_float32_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ward.csv").write_text("a,b\n1,2\n3,1e300\n")
    refused(tmp_path, "too large for float32", Role.TARGET)


@pytest.mark.parametrize("lines", [2, 3, 5])
def test_a_table_that_changes_while_it_is_read_is_refused(tmp_path: Path, lines: int) -> None:
    from tideline.learning.formats.classes import Classes
    from tideline.learning.formats.surveys import Place
    from tideline.learning.formats.transforms import PLAIN

    path = tmp_path / "ward.csv"
    path.write_text("a,b\n" + "1,2\n" * 4)
    survey = csv_files.survey(Place(path, PLAIN, Classes(3)), WORLD, Role.TARGET)
    path.write_text("a,b\n" + "1,2\n" * lines)
    with pytest.raises(DataRefused, match="changed while it was read"):
        list(survey.pieces())


def test_names_that_are_numbers(tmp_path: Path) -> None:
    """Where a class is called 1, a 1 means that class, and no number."""
    write(tmp_path, "csv", {**table(), "y": [3, 1] * 5})
    world = World(inputs=(2,), classes=3, class_names=("3", "2", "1"))
    assert set(read_folder(tmp_path, world, Role.SOURCE).train.y.tolist()) == {0, 2}  # type: ignore[union-attr]
    write(tmp_path, "csv", {**table(), "y": [3, 0] * 5})
    refused(tmp_path, "none of the classes 3, 2, 1", world=world)
