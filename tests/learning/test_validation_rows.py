"""Rows for validation: which they are, named or drawn, in every kind of folder; and what training sees of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.cli.world import tide
from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.core.rows import MemoryRows
from tideline.core.run import Role
from tideline.core.step import Data, View
from tideline.learning.formats.folder import read_folder
from tideline.learning.formats.holdings import Holdings, carve

TABLE = World(inputs=(2,), classes=2, model="mlp")
PICTURES = World(inputs=(1, 8, 8), classes=2)


def npz(folder: Path, n: int = 20, **more: Any) -> Path:
    folder.mkdir(exist_ok=True)
    x = np.stack([np.arange(n), np.arange(n)], 1).astype(np.float32)
    np.savez(folder / "ward.npz", x=x, y=np.arange(n) % 2, **more)
    return folder


def csv(folder: Path, words: list[str]) -> Path:
    folder.mkdir(exist_ok=True)
    lines = [f"{i},{i},{i % 2},{word}" for i, word in enumerate(words)]
    (folder / "ward.csv").write_text("\n".join(["a,b,y,split", *lines]) + "\n")
    (folder / "transforms.toml").write_text('[ward]\nheld_out = "split"\n')
    return folder


def images(folder: Path, n: int = 20, **named: list[int]) -> Path:
    for i in range(n):
        place = folder / "ward" / str(i % 2)
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), 10 * i, np.uint8)).save(place / f"{i:02d}.png")
    for name, rows in named.items():
        (folder / "ward" / f"{name}.txt").write_text("".join(f"{i % 2}/{i:02d}.png\n" for i in rows))
    return folder


def seen(folder: Path, world: World = TABLE, role: Role = Role.SOURCE, unit: float = 1.0) -> dict[View, list[int]]:
    """The rows of each view, by the number that each sample holds."""
    held = read_folder(folder, world, role)
    found = {view: held.view(view, role).x.all("x").flatten(1)[:, 0] / unit for view in View}
    return {view: sorted(round(v) for v in rows.tolist()) for view, rows in found.items()}


def consistent(views: dict[View, list[int]], n: int) -> None:
    """Training is learning and validation together; the held-out rows are the others."""
    assert sorted(views[View.LEARN] + views[View.VALIDATION]) == views[View.TRAIN]
    assert sorted(views[View.TRAIN] + views[View.HELD_OUT]) == list(range(n))


def test_arrays_name_them(tmp_path: Path) -> None:
    views = seen(npz(tmp_path, validation_idx=np.array([3, 4, 9]), test_idx=np.array([0, 19])))
    assert views[View.VALIDATION] == [3, 4, 9] and views[View.HELD_OUT] == [0, 19]
    consistent(views, 20)


def test_without_named_held_out_rows_they_are_drawn_from_the_others(tmp_path: Path) -> None:
    views = seen(npz(tmp_path, validation_idx=np.array([3, 4, 9])))
    assert views[View.VALIDATION] == [3, 4, 9] and len(views[View.HELD_OUT]) == 3
    consistent(views, 20)


def test_none_may_be_named(tmp_path: Path) -> None:
    views = seen(npz(tmp_path, validation_idx=np.array([], np.int64)))
    assert views[View.VALIDATION] == [] and views[View.LEARN] == views[View.TRAIN]


def test_a_table_names_them(tmp_path: Path) -> None:
    words = ["train", "Validation", "test", "train", " validation ", "train", "test", "train"]
    views = seen(csv(tmp_path, words))
    assert views[View.VALIDATION] == [1, 4] and views[View.HELD_OUT] == [2, 6]
    consistent(views, 8)


def test_a_parquet_table_names_them(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    words = ["train", "validation", "test", "train", "validation", "train", "test", "train"]
    rows = {"a": list(range(8)), "b": list(range(8)), "y": [i % 2 for i in range(8)], "split": words}
    parquet.write_table(pyarrow.table(rows), tmp_path / "ward.parquet")
    (tmp_path / "transforms.toml").write_text('[ward]\nheld_out = "split"\n')
    views = seen(tmp_path)
    assert views[View.VALIDATION] == [1, 4] and views[View.HELD_OUT] == [2, 6]


def test_images_name_them(tmp_path: Path) -> None:
    views = seen(images(tmp_path, held_out=[0, 19], validation=[3, 4]), PICTURES, unit=10 / 255)
    assert views[View.VALIDATION] == [3, 4] and views[View.HELD_OUT] == [0, 19]
    consistent(views, 20)


def test_a_targets_have_no_labels(tmp_path: Path) -> None:
    held = read_folder(npz(tmp_path, validation_idx=np.array([3, 4, 9])), TABLE, Role.TARGET)
    assert held.view(View.VALIDATION, Role.TARGET).y is None and len(held.view(View.VALIDATION, Role.TARGET)) == 3


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"validation_idx": np.array([3, 20])}, "validation_idx names row 20; the rows are 0 to 19"),
        ({"validation_idx": np.array([3, 3])}, "validation_idx names a row twice"),
        ({"validation_idx": np.array([0.5])}, "validation_idx is float64 of shape"),
        ({"validation_idx": np.array([3]), "test_idx": np.array([3, 4])}, "row 3 is named to be held out and for validation"),
        ({"validation_idx": np.arange(19)}, "all rows but 1 are named for validation, and none to be held out"),
        ({"validation_idx": np.arange(18), "test_idx": np.array([18, 19])}, "names all rows to train on for validation"),
        ({"validation_idx": np.array([None])}, "validation_idx is an array of Python objects"),
    ],
)
def test_rows_that_cannot_be_for_validation(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    with pytest.raises(DataRefused, match=words):
        read_folder(npz(tmp_path, **more), TABLE, Role.SOURCE)


def test_files_that_cannot_be_for_validation(tmp_path: Path) -> None:
    for at, (named, words) in enumerate(
        (
            ({"validation": [40]}, "entry 1 of validation.txt names no image of this domain"),
            ({"validation": [1, 1]}, "entry 2 of validation.txt names an image twice"),
            ({"validation": [1], "held_out": [1]}, "is named to be held out and for validation"),
        )
    ):
        with pytest.raises(DataRefused, match=words):
            read_folder(images(tmp_path / str(at), **named), PICTURES, Role.SOURCE)


def test_a_word_that_says_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataRefused, match="the word does not say") as refused:
        read_folder(csv(tmp_path, ["train", "test", "valid"]), TABLE, Role.SOURCE)
    assert "validation" in refused.value.todo


def test_the_check_counts_them(tmp_path: Path) -> None:
    folder = npz(tmp_path / "data", validation_idx=np.array([3, 4, 9]), test_idx=np.array([0, 19]))
    told = tide("data", "check", folder)
    assert told.exit_code == 0, told.output
    line = next(line for line in told.stdout.splitlines() if line.strip().startswith("ward"))
    assert [word for word in line.split() if word.isdigit()][:4] == ["20", "15", "3", "2"]


def data(n: int, bare: int = 0) -> Data:
    x = torch.arange(n).float()[:, None]
    rows = MemoryRows(torch.zeros(bare, 1)) if bare else None
    return Data(MemoryRows(x), torch.arange(n) % 2, torch.arange(n) % 3, ("a", "b", "c"), rows)


@pytest.mark.parametrize(("n", "held", "chosen"), [(70, 20, 9), (8, 2, 1), (2, 1, 1), (1, 1, 0), (9, 91, 8)])
def test_what_is_parted_is_whole(n: int, held: int, chosen: int) -> None:
    """Each training row is to learn from or to select by, with its label and domain; one stays to learn from."""
    holdings = Holdings(data(n), data(held))
    parts = holdings.parted
    learn, select = parts[View.LEARN], parts[View.VALIDATION]
    assert len(select) == chosen and len(learn) == n - chosen >= 1
    for part in (learn, select):
        numbers = part.x.all("x")[:, 0].long()
        assert part.y is not None and torch.equal(part.y, numbers % 2) and torch.equal(part.domain, numbers % 3)
    both = torch.cat([each.x.all("x")[:, 0] for each in (learn, select)])
    assert torch.equal(both.sort().values, torch.arange(n).float())


def test_rows_without_labels_are_to_learn_from() -> None:
    parts = Holdings(data(10, bare=4), data(3)).parted
    assert parts[View.LEARN].bare is not None and len(parts[View.LEARN].bare) == 4
    assert parts[View.VALIDATION].bare is None


def test_named_rows_are_taken_as_they_are() -> None:
    parts = Holdings(data(10), data(3), torch.tensor([2, 7])).parted
    assert parts[View.VALIDATION].x.all("x")[:, 0].tolist() == [2.0, 7.0] and len(parts[View.LEARN]) == 8
    held = replace(Holdings(data(10), data(3), torch.tensor([2, 7])), validation=torch.tensor([], dtype=torch.int64))
    assert len(held.parted[View.VALIDATION]) == 0


def test_the_draw_depends_on_numbers_alone() -> None:
    assert carve(70, 100).tolist() == carve(70, 100).tolist() != carve(71, 100).tolist()
    assert len(carve(70, 100, 0.0)) == 0 and len(carve(1, 100)) == 0
