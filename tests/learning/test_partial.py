"""Sites that label some of their rows: what is read, what lies beside, and what is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.learning.images_on_disk import picture, save
from tests.learning.test_inspection import agrees
from tests.learning.test_tables import write as write_table
from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.core.run import Role
from tideline.core.step import View
from tideline.learning.formats.folder import read_folder
from tideline.learning.formats.inspection import inspect

N = 12
HELD = (1, 4, 7)
Y = [0, 1, 2, 0, -1, 2, -1, 1, 0, -1, 2, 1]  # rows 6 and 9 are for training, row 4 would be held out
LEARNERS = pytest.mark.parametrize("role", [Role.SOURCE, Role.PEER])
Writer = Callable[[Path, str, Sequence[int], Sequence[int]], World]


def as_arrays(folder: Path, name: str, y: Sequence[int], held: Sequence[int]) -> World:
    """An .npz file; the one feature of a row is its number."""
    folder.mkdir(exist_ok=True)
    np.savez(folder / f"{name}.npz", x=np.arange(len(y), dtype=float)[:, None], y=np.array(y), test_idx=np.array(held, int))
    return World(inputs=(1,), classes=3)


def as_table(kind: str) -> Writer:
    """A table; a label that is not known is an empty cell at one row, and -1 at the others."""

    def made(folder: Path, name: str, y: Sequence[int], held: Sequence[int]) -> World:
        cells = [None if label == -1 and i == y.index(-1) else label for i, label in enumerate(y)]
        split = ["test" if i in held else "train" for i in range(len(y))]
        write_table(folder, kind, {"a": [float(i) for i in range(len(y))], "y": cells, "split": split}, name)
        path = folder / "transforms.toml"
        path.write_text((path.read_text() if path.exists() else "") + f'[{name}]\nheld_out = "split"\n')
        return World(inputs=(1,), classes=3)

    return made


KINDS: Mapping[str, Writer] = {"arrays": as_arrays, "csv": as_table("csv"), "parquet": as_table("parquet")}
kinds = pytest.mark.parametrize("kind", KINDS)


def rows(x: torch.Tensor | None) -> list[int]:
    """The numbers of rows, in their order."""
    return [] if x is None else [round(v) for v in x.flatten().tolist()]


def refused(folder: Path, world: World, role: Role, said: str) -> None:
    """With these words and something to do, by the agent and by the look before it."""
    with pytest.raises(DataRefused) as refusal:
        read_folder(folder, world, role)
    assert said in refusal.value.what and refusal.value.todo, refusal.value.what
    agrees(inspect(folder, world, role), folder, world, role)


@kinds
@LEARNERS
def test_rows_without_labels_lie_beside(tmp_path: Path, kind: str, role: Role) -> None:
    """x and y are those of the labelled rows; held-out rows without a label are gone."""
    world = KINDS[kind](tmp_path, "a", Y, HELD)
    holdings = read_folder(tmp_path, world, role)
    train, held = holdings.train, holdings.held_out
    assert rows(train.x.all()) == [0, 2, 3, 5, 8, 10, 11] and train.y is not None and train.y.tolist() == [0, 2, 0, 2, 0, 2, 1]
    assert train.bare is not None and rows(train.bare.all()) == [6, 9] and train.bare.shape == world.inputs
    assert rows(held.x.all()) == [1, 7] and held.y is not None and held.y.tolist() == [1, 1] and held.bare is None
    assert (len(train), train.count, len(held), held.count) == (7, 9, 2, 2) and train.labelled
    assert holdings.view(View.TRAIN, role).bare is train.bare


@pytest.mark.parametrize("role", [Role.SOURCE, Role.PEER])
def test_images_without_labels_lie_in_a_folder_of_their_own(tmp_path: Path, role: Role) -> None:
    world = World(inputs=(1, 1, 1), classes=3)
    for i, label in enumerate(Y):
        save(tmp_path / "a" / str(label) / f"{i:02}.png", np.full((1, 1), 20 * i, np.uint8))
    (tmp_path / "a" / "held_out.txt").write_text("".join(f"{Y[i]}/{i:02}.png\n" for i in HELD))
    holdings = read_folder(tmp_path, world, role)
    assert holdings.train.bare is not None and rows(holdings.train.bare.all() * 255 / 20) == [6, 9]
    assert rows(holdings.train.x.all() * 255 / 20) == [0, 3, 8, 11, 2, 5, 10]
    assert holdings.held_out.y is not None and holdings.held_out.y.tolist() == [1, 1]
    agrees(inspect(tmp_path, world, role), tmp_path, world, role)


@kinds
def test_a_target_has_no_rows_beside(tmp_path: Path, kind: str) -> None:
    """Its training rows are all alike, whatever their labels; what it holds out has to have them, or nothing has."""
    world = KINDS[kind](tmp_path, "a", [label if i in HELD else -1 for i, label in enumerate([0, 1, 2] * 4)], HELD)
    train = read_folder(tmp_path, world, Role.TARGET).train
    assert len(train) == train.count == N - len(HELD) and train.y is None and train.bare is None
    (tmp_path / "b").mkdir()
    KINDS[kind](tmp_path / "b", "a", Y, HELD)
    reason = "among the held-out rows" if kind == "arrays" else "the label is none of the classes"
    refused(tmp_path / "b", world, Role.TARGET, reason)


@kinds
@pytest.mark.parametrize("role", [Role.PEER, Role.TARGET])
def test_without_any_label_all_rows_are_alike(tmp_path: Path, kind: str, role: Role) -> None:
    for name in "ab":
        world = KINDS[kind](tmp_path, name, [-1] * N, HELD)
        holdings = read_folder(tmp_path, world, role)
        assert holdings.train.y is None and holdings.held_out.y is None and holdings.train.bare is None
        agrees(inspect(tmp_path, world, role), tmp_path, world, role)
    assert rows(holdings.train.x.all()) == [i for i in range(N) if i not in HELD] * 2
    assert rows(holdings.held_out.x.all()) == [*HELD] * 2


@kinds
@LEARNERS
def test_a_whole_domain_may_be_without_labels(tmp_path: Path, kind: str, role: Role) -> None:
    """Where it says so, row for row: its training rows lie beside those of the labelled domain."""
    world = KINDS[kind](tmp_path, "a", Y, HELD)
    KINDS[kind](tmp_path, "b", [-1] * 3, (0,))
    holdings = read_folder(tmp_path, world, role)
    assert holdings.train.bare is not None and rows(holdings.train.bare.all()) == [6, 9, 1, 2]
    assert set(holdings.train.domain.tolist()) == {0}
    assert rows(holdings.held_out.x.all()) == [1, 7] and holdings.train.domains == ("a", "b")
    refused(tmp_path, world, Role.TARGET, "none of the classes" if kind != "arrays" else "among the held-out rows")


@LEARNERS
def test_a_domain_that_says_nothing_of_labels_is_refused(tmp_path: Path, role: Role) -> None:
    """Beside labelled ones: they may have been forgotten. It is told how to say that they are not known."""
    world = as_arrays(tmp_path, "a", Y, HELD)
    np.savez(tmp_path / "b.npz", x=np.ones((4, 1)))
    with pytest.raises(DataRefused, match="has no labels while other files have") as refusal:
        read_folder(tmp_path, world, role)
    assert "-1" in refusal.value.todo


@kinds
@LEARNERS
@pytest.mark.parametrize(
    ("y", "said"),
    [
        ([0, 1, -1, 0, 1, -1], "all training rows that have a label are of class 0"),
        ([-1, 1, -1, -1, 1, -1], "no training row has a label, though held-out ones have"),
        ([0, -1, 1, 0, -1, 2], "none of the 2 held-out samples has a label to score by"),
    ],
)
def test_what_is_too_little_is_refused(tmp_path: Path, kind: str, role: Role, y: list[int], said: str) -> None:
    refused(tmp_path, KINDS[kind](tmp_path, "a", y, (1, 4)), role, said)


@kinds
@LEARNERS
@pytest.mark.parametrize(("label", "row"), [(-2, 0), (3, 1)])
def test_other_labels_that_are_no_class_stay_refused(tmp_path: Path, kind: str, role: Role, label: int, row: int) -> None:
    world = KINDS[kind](tmp_path, "a", [label if i == row else each for i, each in enumerate(Y)], HELD)
    refused(tmp_path, world, role, f"y holds the label {label}" if kind == "arrays" else "the label is none of the classes")


@pytest.mark.parametrize("kind", [np.float32, np.int8])
def test_types_of_labels(tmp_path: Path, kind: type) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((N, 1)), y=np.array(Y, kind), test_idx=np.array(HELD))
    assert read_folder(tmp_path, World(inputs=(1,), classes=3), Role.SOURCE).train.count == 9


def test_unreadable_images_without_labels_can_be_left_out(tmp_path: Path) -> None:
    for i, label in enumerate(["0", "1", "-1", "-1"] * 4):
        save(tmp_path / "a" / label / f"{i:02}.png", picture(i))
    (tmp_path / "a" / "held_out.txt").write_text("0/00.png\n-1/15.png\n")
    (tmp_path / "transforms.toml").write_text('[a]\nunreadable = "skip"\n')
    world, bare = World(inputs=(3, 8, 8), classes=2), sorted((tmp_path / "a" / "-1").iterdir())
    whole = read_folder(tmp_path, world, Role.SOURCE).train.bare.all()
    bare[2].write_bytes(b"no image")
    some = read_folder(tmp_path, world, Role.SOURCE).train.bare.all()
    assert whole is not None and some is not None and torch.equal(some, whole[[0, 1, 3, 4, 5, 6]])
    for path in bare:
        path.write_bytes(b"no image")
    holdings = read_folder(tmp_path, world, Role.SOURCE)
    assert holdings.train.bare is None and len(holdings.train) == 7
    agrees(inspect(tmp_path, world, Role.SOURCE), tmp_path, world, Role.SOURCE)


def test_no_row_is_held_twice(tmp_path: Path) -> None:
    holdings = read_folder(tmp_path, as_arrays(tmp_path, "a", Y, HELD), Role.SOURCE)
    kept = (holdings.train.x.all(), holdings.train.bare.all(), holdings.held_out.x.all())
    assert sum(x.untyped_storage().nbytes() for x in kept if x is not None) == (N - 1) * 4


def test_the_local_log_tells_it_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """How many there are, of both sides; nothing where all rows are alike."""
    world = as_arrays(tmp_path, "a", Y, HELD)
    with caplog.at_level(logging.WARNING):
        read_folder(tmp_path, world, Role.SOURCE)
    (said,) = [record.getMessage() for record in caplog.records]
    assert "2 training rows have no label" in said and "1 held-out rows have none and are left out" in said
    caplog.clear()
    as_arrays(tmp_path, "a", [max(label, 0) for label in Y], HELD)
    read_folder(tmp_path, world, Role.SOURCE)
    assert not caplog.records


@kinds
@pytest.mark.parametrize("role", list(Role))
def test_the_look_before_tells_them(tmp_path: Path, kind: str, role: Role) -> None:
    """By domain, in numbers; a world is guessed from the labels that there are."""
    world = KINDS[kind](tmp_path, "a", Y, HELD)
    report = inspect(tmp_path, world, role)
    agrees(report, tmp_path, world, role)
    if role is Role.TARGET:
        return
    (domain,) = report.domains
    assert (domain.samples, domain.held_out, domain.bare, domain.unscored) == (N, 2, 2, 1)
    assert [(c.train, c.held_out) for c in domain.classes] == [(3, 0), (1, 2), (3, 0)]
    guessed = inspect(tmp_path, None, None)
    assert guessed.role == "source" and guessed.world is not None and guessed.world["classes"] == 3
