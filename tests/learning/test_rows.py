"""Rows of every kind give the same bytes for the same numbers, no label can be reached from a target's, and memory is limited."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.learning.images_on_disk import save_classes
from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.core.rows import WHOLE, MemoryRows, Rows, check_whole, joined
from tideline.core.run import Role
from tideline.core.step import Data, View
from tideline.engine.compute.step_runner import masked
from tideline.learning.formats import folder
from tideline.learning.formats.folder import read_folder
from tideline.learning.formats.memory import memory_bytes
from tideline.learning.rows import scratch
from tideline.learning.rows.dataset import DatasetRows, data_of
from tideline.learning.rows.decoded import DecodedRows
from tideline.learning.rows.scratch import MappedRows

SHAPE = (2, 3)
WORLD = World(inputs=(4,), classes=3, model="mlp")


class Pairs:
    """A dataset of (x, y); some rows may be exchanged."""

    def __init__(self, x: Tensor, y: Tensor, **odd: Any) -> None:
        self.x, self.y, self.odd = x, y, {int(row.removeprefix("row")): given for row, given in odd.items()}

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> object:
        if callable(given := self.odd.get(i)):
            return given()
        return self.x[i], self.odd.get(i, self.y[i])


def mapped(x: Tensor) -> Rows:
    rows = scratch.room(x.shape, held=0)
    rows.tensor.copy_(x)
    return rows


def several(x: Tensor) -> Rows:
    cut = len(x) // 3
    return joined([mapped(x[:cut]), MemoryRows(x[cut:]), decoded(x[:0])])


def decoded(x: Tensor) -> Rows:
    return DecodedRows(len(x), tuple(x.shape[1:]), x.__getitem__)


def chosen(x: Tensor) -> Rows:
    """Every row of a larger whole, put back in order."""
    return decoded(torch.cat([x, x]).flip(0)).at(torch.arange(2 * len(x) - 1, -1, -1)).at(torch.arange(len(x)))


KINDS: dict[str, Callable[[Tensor], Rows]] = {
    "memory": MemoryRows,
    "mapped": mapped,
    "decoded": decoded,
    "dataset": lambda x: DatasetRows(Pairs(x, torch.zeros(len(x))), tuple(x.shape[1:])),
    "chosen": chosen,
    "joined": several,
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
@pytest.mark.parametrize("n", [0, 1, 7, 30])
def test_rows_of_every_kind_are_alike(kind: str, n: int) -> None:
    """Length, shape, dtype, batches of any numbers, parts, views of views, and all rows."""
    x = torch.randn(n, *SHAPE, generator=torch.Generator().manual_seed(n))
    rows = KINDS[kind](x)
    assert (len(rows), rows.shape, rows.dtype) == (n, SHAPE, torch.float32)
    assert torch.equal(rows.all(), x) and torch.equal(rows.at(torch.arange(n)).all(), x)
    for size in (None, 1, 4, 100):
        parts = list(rows.parts(size))
        assert torch.equal(torch.cat(parts), x) and all(len(part) <= (size or 512) for part in parts)
    empty = rows.batch(torch.zeros(0, dtype=torch.int64))
    assert empty.shape == (0, *SHAPE) and len(rows.at(torch.zeros(0, dtype=torch.int64))) == 0
    if n:
        some = torch.randint(n, (2 * n,), generator=torch.Generator().manual_seed(1))
        assert torch.equal(rows.batch(some), x[some]) and torch.equal(rows.at(some).all(), x[some])
        assert torch.equal(rows.at(some).at(some[:n].flip(0)).batch(torch.arange(n)), x[some][some[:n].flip(0)])
    with pytest.raises(IndexError):
        rows.batch(torch.tensor([n]))


def test_all_rows_at_once_have_a_limit() -> None:
    """The refusal names who asked, and the way out; rows in memory are there already."""
    rows = DecodedRows(1 << 20, (3, 64, 64), lambda row: torch.zeros(3, 64, 64))
    with pytest.raises(DataRefused, match="central training wants them all at once") as told:
        rows.all("central training")
    assert "in batches" in told.value.todo
    check_whole(WHOLE // 4, (1,), "")


def test_a_full_disk_is_refused() -> None:
    with pytest.raises(DataRefused, match="no room") as told:
        scratch.empty((1 << 50, 8))
    assert "TMPDIR" in told.value.todo


def test_an_array_is_mapped(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((5, 4), np.float32)
    np.save(tmp_path / "x.npy", x)
    rows = MappedRows.of_array(tmp_path / "x.npy")
    rows.tensor.zero_()
    assert np.array_equal(np.load(tmp_path / "x.npy", allow_pickle=False), x)
    np.save(tmp_path / "x.npy", x.astype(np.float64))
    with pytest.raises(DataRefused, match="float64"):
        MappedRows.of_array(tmp_path / "x.npy")


def raises() -> object:
    raise KeyError("Svensson")


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (raises, "reading it raised KeyError"),
        (lambda: (torch.zeros(5), 1), "x is 5; the world expects 4"),
        (lambda: (torch.full((4,), torch.nan), 1), "NaN"),
        (lambda: (torch.zeros(4), 1, 2), "3 things"),
        (lambda: ("Svensson", 1), "of the type str"),
        (lambda: (torch.zeros(4), 7123), "none of the classes 0 to 2"),
        (lambda: (torch.zeros(4), 1.5), "no whole number"),
        (lambda: torch.zeros(4), "no label"),
    ],
)
def test_a_bad_row_is_named(odd: Callable[[], object], words: str) -> None:
    given = Pairs(torch.zeros(20, 4), torch.zeros(20, dtype=torch.int64), row17=odd)
    with pytest.raises(DataRefused, match=f"row 17 of the site's dataset: .*{words}") as told:
        data_of(given, WORLD, labels=True)
    assert "Svensson" not in told.value.what and "7123" not in told.value.what


def test_a_stream_is_refused() -> None:
    with pytest.raises(DataRefused, match="has no length"):
        data_of(iter([]), WORLD, labels=True)  # type: ignore[arg-type]


def reachable(value: object, seen: dict[int, object] | None = None) -> dict[int, object]:
    """Every object that attributes, closures and containers of a value lead to."""
    seen = {} if seen is None else seen
    if id(value) in seen or isinstance(value, type):
        return seen
    seen[id(value)] = value
    inner: list[object] = list(getattr(value, "__dict__", {}).values()) if not isinstance(value, Tensor) else []
    inner += [getattr(value, f.name) for f in fields(value)] if is_dataclass(value) else []
    inner += [cell.cell_contents for cell in value.__closure__ or ()] if isinstance(value, FunctionType) else []
    inner += list(value) if isinstance(value, tuple | list) else [*value, *value.values()] if isinstance(value, dict) else []
    inner += [value.__self__] if hasattr(value, "__self__") else []
    for each in inner:
        reachable(each, seen)
    return seen


@pytest.mark.parametrize("held", [0, 1 << 30])
def test_no_label_of_a_dataset_can_be_reached_at_a_target(held: int) -> None:
    """Only x goes on; a reader that lets the dataset itself through is refused."""
    given = Pairs(torch.randn(9, 4), torch.arange(9) % 3)
    data = masked(data_of(given, WORLD, labels=False, held=held), View.TRAIN, Role.TARGET)
    found = reachable(data)
    assert id(given) not in found and id(given.y) not in found and torch.equal(data.x.all(), given.x)
    open_rows = replace(data, x=DatasetRows(given, (4,)))
    assert id(given.y) in reachable(open_rows)
    with pytest.raises(DataRefused, match="may hold labels"):
        masked(open_rows, View.TRAIN, Role.TARGET)


def same(one: Data, other: Data) -> None:
    assert torch.equal(one.x.all(), other.x.all()) and torch.equal(one.domain, other.domain)
    assert (one.y is None) == (other.y is None) and (one.y is None or other.y is None or torch.equal(one.y, other.y))


@pytest.mark.parametrize("role", [Role.SOURCE, Role.TARGET])
def test_a_large_folder_gives_the_same_rows(tmp_path: Path, role: Role) -> None:
    """Images decoded when asked for, arrays in a scratch file; no folder of a class can be reached at a target."""
    save_classes(tmp_path / "ward", {"0": 6, "1": 7})
    np.savez(tmp_path / "scan.npz", x=np.arange(640, dtype=np.uint8).reshape(10, 8, 8), y=np.arange(10) % 2)
    world = World(inputs=(1, 8, 8), classes=2)
    small, large = read_folder(tmp_path, world, role), read_folder(tmp_path, world, role, held=0)
    same(small.train, large.train)
    same(small.held_out, large.held_out)
    assert not isinstance(large.train.x, MemoryRows)
    names = [each for each in reachable(large.view(View.TRAIN, role)).values() if isinstance(each, str) and "/" in each]
    assert bool(names) == (role is Role.SOURCE)
    if role is Role.TARGET:
        masked(large.train, View.TRAIN, role)
    for image in (tmp_path / "ward").rglob("*.png"):
        image.unlink()
    with pytest.raises(DataRefused, match="can no longer be"):
        large.held_out.x.all()


MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("", {}, MACHINE),
        ("0::/\n", {"memory.max": "max\n"}, MACHINE),
        ("0::/\n", {"memory.max": "2000000\n"}, 2_000_000),
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "3000000"}, 3_000_000),
        ("0::/a/b\n", {"a/b/memory.max": "1000000", "a/memory.max": "3000000"}, 1_000_000),
        ("0::/not/seen\n", {"memory.max": "4000000"}, 4_000_000),
        ("5:cpu:/x\n4:memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "5000000"}, 5_000_000),
        ("4:cpu,memory:/docker/abc\n", {"memory/memory.limit_in_bytes": "6000000"}, 6_000_000),
        ("4:memory:/a\n", {"memory/a/memory.limit_in_bytes": "9223372036854771712"}, MACHINE),
        ("0::/\n", {"memory.max": "nonsense"}, MACHINE),
        ("no group\n", {}, MACHINE),
    ],
)
def test_the_least_limit_holds(tmp_path: Path, groups: str, files: dict[str, str], expected: int) -> None:
    """Of the group and of those above it, in both versions; what cannot be read is no limit."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert memory_bytes(tmp_path) == expected


def test_without_such_files(tmp_path: Path) -> None:
    assert memory_bytes(tmp_path) == MACHINE and 0 < memory_bytes() <= MACHINE


def test_rows_are_held_in_memory_as_far_as_the_container_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World((1000,), 2, "linear")
    for limit, held in ((4_000_000, True), (3_999_999, False)):
        monkeypatch.setattr(folder, "memory_bytes", lambda limit=limit: limit)
        assert folder.in_memory(1000, world, 1 << 30) is held
