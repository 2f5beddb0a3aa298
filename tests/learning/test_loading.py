"""Rows that are read ahead: the same for any number of threads, none of which is left, and errors with their place."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor, nn

from tideline.core.errors import DataRefused
from tideline.core.rows import Augment, Flip, MemoryRows, Rows
from tideline.core.step import Data
from tideline.learning.fit import batches, cross_entropy, fit, remeasure
from tideline.learning.loading.ahead import drawn, in_order, in_parts
from tideline.learning.loading.augmented import Augmented
from tideline.learning.loading.workers import MOST, STEP, Workers, cores, reading_ahead
from tideline.learning.rows.dataset import DatasetRows
from tideline.learning.rows.decoded import DecodedRows

N, SHAPE = 203, (1, 6, 6)
X = torch.rand(N, *SHAPE, generator=Generator().manual_seed(1))
NUMBERS = [0, 1, 4, 64]


def decoded(decode: Callable[[int], Tensor] = X.__getitem__) -> DecodedRows:
    """The same rows as if each were decoded from a file."""
    return DecodedRows(N, SHAPE, decode)


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("tideline-rows")]


def passes(rows: Rows, workers: int) -> tuple[list[Tensor], int]:
    """Two epochs of mini-batches, and what the generator gives afterwards."""
    rng = Generator().manual_seed(3)
    with reading_ahead(workers):
        found = [x for _ in range(2) for _, x in drawn(rows, batches(N, 16, rng), rng)]
    return found, int(torch.randint(2**40, (), generator=rng))


@pytest.mark.parametrize("workers", NUMBERS)
def test_mini_batches_are_those_of_rows_in_memory(workers: int) -> None:
    (found, after), (expected, then) = passes(decoded(), workers), passes(MemoryRows(X), 0)
    assert len(found) == len(expected) and all(map(torch.equal, found, expected))
    assert after == then and not threads()


@pytest.mark.parametrize("workers", NUMBERS)
def test_what_is_drawn_does_not_depend_on_the_threads(workers: int) -> None:
    """Augmented rows draw one number an epoch from the step's generator; two epochs are not alike."""
    rows = Augmented(decoded(), Augment(flip=Flip.BOTH, crop=(0.4, 0.9)))
    (found, after), (expected, then) = passes(rows, workers), passes(rows, 0)
    assert all(map(torch.equal, found, expected)) and after == then
    plain, _ = passes(decoded(), 0)
    assert not torch.equal(found[0], plain[0])


@pytest.mark.parametrize("workers", NUMBERS)
@pytest.mark.parametrize("size", [None, 1, 50, 203, 1000])
def test_parts_are_those_of_the_rows(workers: int, size: int | None) -> None:
    with reading_ahead(workers):
        found = list(in_parts(decoded(), size))
    assert list(map(len, found)) == list(map(len, decoded().parts(size))) and torch.equal(torch.cat(found), X)
    assert [len(part) for part in in_parts(DecodedRows(0, SHAPE, X.__getitem__))] == [0]


def test_large_images_are_read_by_several_threads() -> None:
    seen, shape = set[str](), (3, 600, 600)

    def decode(row: int) -> Tensor:
        seen.add(threading.current_thread().name)
        meeting.wait(60)
        return torch.full(shape, float(row))

    meeting = threading.Barrier(2)
    with reading_ahead(2):
        (part,) = in_parts(DecodedRows(6, shape, decode), 6)
    assert len(seen) == 2 and part[:, 0, 0, 0].tolist() == list(range(6))


def trained(rows: Rows, workers: int) -> Tensor:
    """The weights of a linear layer after two epochs."""
    rng = Generator().manual_seed(5)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(36), nn.Linear(36, 3))
    by = torch.optim.SGD(net.parameters(), 0.1)
    data = Data(rows, torch.arange(N) % 3, torch.zeros(N, dtype=torch.int64), ("a",))
    with reading_ahead(workers):
        fit(net, data, cross_entropy, by, epochs=2, batch=16, rng=rng)
        remeasure(net, rows, 16, rng)
    return torch.cat([each.flatten().float() for each in net.state_dict().values()])


@pytest.mark.parametrize("workers", NUMBERS)
def test_training_gives_equal_bytes(workers: int) -> None:
    """With rows as they are, and changed at random; batch norm is measured by rows as they are."""
    assert torch.equal(trained(decoded(), workers), trained(MemoryRows(X), 0))
    rows = Augmented(MemoryRows(X), Augment(flip=Flip.HORIZONTAL))
    assert torch.equal(trained(rows, workers), trained(rows, 0))


def test_rows_in_memory_need_no_thread() -> None:
    with reading_ahead(4):
        list(drawn(MemoryRows(X), batches(N, 16, Generator()), Generator()))
        list(in_parts(MemoryRows(X)))
        assert not threads()


def broken(row: int) -> Tensor:
    if row == 77:
        raise OSError("patient Miller")
    return X[row]


def dying(row: int) -> Tensor:
    if row == 77:
        raise SystemExit(3)
    return X[row]


def refusing(row: int) -> Tensor:
    if row == 77:
        raise DataRefused("site/scan-77.png is cut off", "Mend it")
    return X[row]


@pytest.mark.parametrize("workers", NUMBERS)
@pytest.mark.parametrize(
    ("decode", "what"), [(broken, "Row 77 .*OSError"), (dying, "Row 77 .*SystemExit"), (refusing, "scan-77.png is cut off")]
)
def test_what_cannot_be_read_is_named(workers: int, decode: Callable[[int], Tensor], what: str) -> None:
    """By its row, without the words of a foreign error; no thread is left."""
    with pytest.raises(DataRefused, match=what) as raised, reading_ahead(workers):
        list(drawn(decoded(decode), batches(N, 16, Generator().manual_seed(2)), Generator()))
    assert "Miller" not in raised.value.what and not threads()
    with pytest.raises(DataRefused, match=what), reading_ahead(workers):
        list(in_parts(decoded(decode)))


def test_a_pass_that_is_left_ends_its_threads() -> None:
    def loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        raise ValueError("a loss")

    net = nn.Linear(36, 3)
    data = Data(decoded(), torch.zeros(N, dtype=torch.int64), torch.zeros(N, dtype=torch.int64), ("a",))
    with pytest.raises(ValueError, match="a loss"):
        fit(net, data, loss, torch.optim.SGD(net.parameters(), 0.1), epochs=1, batch=16, rng=Generator())
    assert not threads() and STEP.get() is None


class Alone:
    """A dataset that notices when two threads read it."""

    def __init__(self) -> None:
        self.reading, self.readers = threading.Lock(), set[str]()

    def __len__(self) -> int:
        return N

    def __getitem__(self, row: int) -> Tensor:
        assert self.reading.acquire(blocking=False), "two threads at once"
        self.readers.add(threading.current_thread().name)
        try:
            return X[row]
        finally:
            self.reading.release()


def test_an_owners_dataset_is_read_by_one_thread_at_a_time() -> None:
    dataset = Alone()
    found, _ = passes(DatasetRows(dataset, SHAPE), 4)
    assert len(dataset.readers) > 1 and all(map(torch.equal, found, passes(MemoryRows(X), 0)[0]))


class Table:
    """Rows in a database whose connection is of the thread that opened it."""

    def __init__(self) -> None:
        self.database = sqlite3.connect(":memory:")

    def __len__(self) -> int:
        return N

    def __getitem__(self, row: int) -> Tensor:
        (number,) = self.database.execute("SELECT ?", (row,)).fetchone()
        return X[number]


def test_an_object_that_is_bound_to_its_thread_is_read_there() -> None:
    found, _ = passes(DatasetRows(Table(), SHAPE), 4)
    assert all(map(torch.equal, found, passes(MemoryRows(X), 0)[0]))


def test_what_waits_is_bounded() -> None:
    """A step that is slow finds a few batches, however many threads there are."""
    read = list[int]()

    def decode(row: int) -> Tensor:
        read.append(row)
        return X[row]

    with reading_ahead(2):
        fed = in_order(decoded(decode), torch.arange(N).split(10))
        next(fed)
        fed.close()
    assert len(read) <= (2 + 3) * 10


def test_as_many_threads_as_one_may_have() -> None:
    assert Workers(10_000).count == MOST and Workers(-3).count == 0


@pytest.mark.parametrize(
    ("files", "most"),
    [
        ({}, 1024),
        ({"cpu.max": "max 100000\n"}, 1024),
        ({"cpu.max": "100000 100000\n"}, 1),
        ({"cpu.max": "20000 100000\n"}, 1),
        ({"cpu.max": "nonsense\n"}, 1024),
        ({"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1024),
    ],
)
def test_cores_by_quota(files: dict[str, str], most: int, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cores(tmp_path) == min(most, cores(tmp_path / "none"))
