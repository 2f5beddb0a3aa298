"""What is told of a folder is what an agent would see."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.learning.images_on_disk import picture, save, save_classes
from tests.learning.test_tables import KINDS, table, write
from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.core.run import Role
from tideline.learning.formats.folder import read_folder
from tideline.learning.formats.holdings import split_rows
from tideline.learning.formats.inspection import ClassCount, FolderReport, inspect

IMAGES = World(inputs=(3, 8, 8), classes=3)
FEATURES = World(inputs=(2,), classes=3)


def agrees(report: FolderReport, path: Path, world: World, role: Role) -> None:
    """The report says that a folder can be used where it can be read, with as many rows; else the same refusal."""
    try:
        holdings = read_folder(path, world, role)
    except DataRefused as error:
        assert error.what in [refusal["what"] for refusal in report.refused] and not report.usable
        return
    assert report.usable and not any(d.refused for d in report.domains)
    assert sum(d.held_out or 0 for d in report.domains) == len(holdings.held_out)
    left_out = sum(d.unscored or 0 for d in report.domains)
    assert sum(d.samples or 0 for d in report.domains) == holdings.train.count + len(holdings.held_out) + left_out
    assert sum(d.bare or 0 for d in report.domains) == holdings.train.count - len(holdings.train)
    assert all(d.labelled == holdings.held_out.labelled for d in report.domains)
    for data, side in ((holdings.train, "train"), (holdings.held_out, "held_out")):
        if data.y is not None:
            counted = [sum(getattr(d.classes[c], side) for d in report.domains) for c in range(world.classes)]
            assert counted == np.bincount(data.y.numpy(), minlength=world.classes).tolist()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Images in classes, images in an array; a folder and files that are no data."""
    save_classes(tmp_path / "ward", {"0": 4, "1": 3, "2": 3})
    save(tmp_path / "ward" / "0" / "00.png", picture(0, 9, 7, 1))
    (tmp_path / "ward" / "0" / "old.gif").write_text("x")
    np.savez(tmp_path / "scans.npz", x=np.stack([picture(i) for i in range(10)]), y=np.arange(10) % 3)
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / ".hidden").write_text("x")
    return tmp_path


@pytest.mark.parametrize("role", list(Role))
def test_a_folder_that_can_be_used(site: Path, role: Role) -> None:
    report = inspect(site, IMAGES, role)
    agrees(report, site, IMAGES, role)
    scans, ward = report.domains
    assert (scans.name, scans.kind, ward.name, ward.kind) == ("scans", ".npz", "ward", "images")
    assert ward.content is not None and ward.content.shapes == {"8 x 8 x 3": 9, "9 x 7": 1}
    assert ward.content.types == {"8-bit": 10} and (ward.content.low, ward.content.high) == (0, 255)
    assert ward.ignored == ("0/old.gif",) and report.ignored == ("empty/", "notes.txt")
    assert sum((c.train or 0) + c.held_out for c in ward.classes) == (2 if role is Role.TARGET else 10)
    assert ward.balance is not None and 0 < ward.balance <= 1


def test_without_a_world_one_that_fits_is_told(site: Path) -> None:
    report = inspect(site, None, None)
    assert report.world is not None and report.usable and not report.given and report.role == "source"
    assert (report.world["inputs"], report.world["classes"], report.world["model"]) == ([3, 8, 8], 3, "lenet")
    agrees(report, site, IMAGES, Role.SOURCE)


def test_names_of_folders_are_proposed_as_names_of_classes(tmp_path: Path) -> None:
    save_classes(tmp_path / "a", {"owl": 3, "cat": 3})
    save_classes(tmp_path / "b", {"dog": 6})
    report = inspect(tmp_path, None, None)
    assert report.usable and report.world is not None and report.world["class_names"] == ["cat", "dog", "owl"]
    assert report.domains[0].classes[1] == ClassCount("dog", 0, 0)
    (tmp_path / "classes.txt").write_text("owl\ndog\ncat\nbat\n")
    report = inspect(tmp_path, None, None)
    assert report.usable and report.world is not None and report.world["class_names"] == ["owl", "dog", "cat", "bat"]


def test_without_labels(tmp_path: Path) -> None:
    """The site is a target, any number of classes will do, and a source is refused."""
    for i in range(5):
        save(tmp_path / "ward" / f"{i}.png", picture(i, 6, 6, 1))
    report = inspect(tmp_path, None, None)
    assert report.usable and report.role == "target" and report.domains[0].labelled is False
    assert report.world is not None and (report.world["inputs"], report.world["model"]) == ([1, 6, 6], "mlp")
    assert report.domains[0].balance is None
    agrees(inspect(tmp_path, None, Role.SOURCE), tmp_path, IMAGES, Role.SOURCE)


@KINDS
@pytest.mark.parametrize("role", list(Role))
def test_tables(tmp_path: Path, kind: str, role: Role) -> None:
    write(tmp_path, kind, table())
    agrees(inspect(tmp_path, FEATURES, role), tmp_path, FEATURES, role)
    report = inspect(tmp_path, None, role)
    assert report.world is not None and (report.world["inputs"], report.world["model"]) == ([2], "mlp")
    columns = table()
    columns["a"][7] = None
    write(tmp_path, kind, columns)
    report = inspect(tmp_path, FEATURES, role)
    agrees(report, tmp_path, FEATURES, role)
    assert report.refused[0]["column"] == "a"


def test_every_domain_that_is_refused_is_told(site: Path) -> None:
    (site / "ward" / "1" / "00.png").write_bytes(b"x")
    (site / "ward" / "2" / "01.png").write_bytes(b"x")
    np.savez(site / "b.npz", x=np.full((4, 8, 8), 300, np.float32), y=np.arange(4) % 3)
    (site / "c.csv").write_text("a,b\n1,2\n3,4\n")
    report = inspect(site, IMAGES, Role.SOURCE)
    by_name = {d.name: d for d in report.domains}
    assert {name for name, d in by_name.items() if d.refused} == {"b", "c", "ward"} and len(report.refused) == 3
    content = by_name["ward"].content
    assert content is not None and [n.partition(" ")[0] for n in content.unreadable] == ["1/00.png", "2/01.png"]
    assert by_name["b"].content is not None and by_name["b"].content.high == 300
    (site / "transforms.toml").write_text('[ward]\nunreadable = "skip"\n')
    ward = inspect(site, IMAGES, Role.SOURCE).domains[-1]
    assert ward.refused is None and ward.samples == 8 and ward.content is not None and len(ward.content.unreadable) == 2


def test_what_the_whole_site_is_refused_for(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones((4, 2)), y=np.zeros(4, int))
    agrees(inspect(tmp_path, FEATURES, Role.SOURCE), tmp_path, FEATURES, Role.SOURCE)
    np.savez(tmp_path / "b.npz", x=np.ones((4, 2)))
    agrees(inspect(tmp_path, FEATURES, Role.SOURCE), tmp_path, FEATURES, Role.SOURCE)


def test_where_nothing_is_known_no_world_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"x")
    (tmp_path / "b.csv").write_bytes(b"")
    save(tmp_path / "c" / "0.png", picture(0)).write_bytes(b"x")
    report = inspect(tmp_path, None, None)
    assert report.world is None and not report.usable and len(report.refused) == 3
    assert all(str(tmp_path / name) in r["what"] for name, r in zip(("a.npz", "b.csv", "c"), report.refused, strict=True))


def save_labels(folder: Path, kind: str, y: np.ndarray) -> None:
    if kind == "npz":
        np.savez(folder / "a.npz", x=np.ones((len(y), 2)), y=y)
    else:
        write(folder, kind, {"a": [1.0] * len(y), "b": [2.0] * len(y), "y": y.tolist()}, "a")


@pytest.mark.parametrize("kind", ["npz", "csv", "parquet"])
@pytest.mark.parametrize(
    "y",
    [np.arange(2000) % 1200, np.array([19850412123456, 1] * 10), np.array([200001, 7] * 10)],
    ids=["many classes", "one of trillions", "one of many"],
)
def test_labels_that_tell_no_world(tmp_path: Path, kind: str, y: np.ndarray) -> None:
    """No world is guessed, all else is told, and nothing is refused: the run's world may well have such classes."""
    save_labels(tmp_path, kind, y)
    report = inspect(tmp_path, None, None)
    assert report.world is None and "more than 1000 different values" in report.unguessed
    assert report.usable and report.role == "source"
    (domain,) = report.domains
    assert (domain.samples, domain.labelled, domain.classes) == (len(y), True, ()) and domain.content is not None
    known = inspect(tmp_path, World(inputs=(2,), classes=1200), None)
    assert known.usable == bool(y.max() < 1200) and not known.unguessed


def test_words_that_tell_no_world(tmp_path: Path) -> None:
    """More of them than are told; what is wrong with the samples is refused all the same."""
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{i},word{i}\n" for i in range(2000)))
    assert inspect(tmp_path, None, None).usable
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{i},word{i}\n" for i in range(2000)) + "one,word1\n")
    report = inspect(tmp_path, None, None)
    assert report.unguessed and "column 1: not a finite number" in report.refused[0]["what"]


@pytest.mark.parametrize(
    ("y", "guessed"),
    [([0, 1, "\x07"] * 7, False), ([0, 1, 99999] * 7, False), ([0, 1, "?"] * 7, True), ([0.0, 1.0, float("nan")] * 7, True)],
)
def test_a_targets_training_labels_may_hold_anything(tmp_path: Path, y: list[object], guessed: bool) -> None:
    """What an agent can use as a target is not refused for labels that it drops."""
    held = set(split_rows(len(y))[1].tolist())
    write(tmp_path, "csv", {**table(len(y)), "y": [i % 2 if i in held else label for i, label in enumerate(y)]})
    agrees(inspect(tmp_path, FEATURES, Role.TARGET), tmp_path, FEATURES, Role.TARGET)
    report = inspect(tmp_path, None, Role.TARGET)
    assert report.usable and (report.world is not None) == guessed


def test_a_time_among_the_labels_is_no_accident(tmp_path: Path) -> None:
    """Whatever a column of a .parquet file makes its reader raise is a refusal."""
    times = pa.array([7654321] * 10, pa.int64()).cast(pa.time64("ns"))
    pq.write_table(pa.table({"a": [1.0] * 10, "y": times}), tmp_path / "a.parquet")
    assert "cannot be read as a .parquet file" in inspect(tmp_path, None, None).refused[0]["what"]


def test_folders_that_cannot_be_looked_at(tmp_path: Path) -> None:
    with pytest.raises(DataRefused, match="There is no data folder"):
        inspect(tmp_path / "none", None, None)
    with pytest.raises(DataRefused, match="holds no"):
        inspect(tmp_path, None, None)
    write(tmp_path, "csv", table())
    (tmp_path / "transforms.toml").write_text("[b]\n")
    with pytest.raises(DataRefused, match="no domain b"):
        inspect(tmp_path, None, None)


@pytest.mark.parametrize(
    ("save_as", "order"),
    [
        *((np.savez, "C"), (np.savez_compressed, "C")),
        *(pytest.param(x, "F", marks=pytest.mark.nightly(job="numbers")) for x in (np.savez, np.savez_compressed)),
    ],
)
def test_arrays_are_looked_at_in_pieces(tmp_path: Path, save_as: object, order: str) -> None:
    """Of an array few rows are in memory at a time, and every value is seen; NaN is told with its row."""
    x = np.zeros((3000, 40, 40), np.float32, order=order)  # type: ignore[call-overload]
    x[2999, 0, 0] = 1
    save_as(tmp_path / "a.npz", x=x)  # type: ignore[operator]
    tracemalloc.start()
    report = inspect(tmp_path, World(inputs=(1, 8, 8)), Role.TARGET)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert report.domains[0].content is not None and report.domains[0].content.high == 1
    assert order == "F" or peak < 0.8 * x.nbytes
    x[2998] = np.nan
    save_as(tmp_path / "a.npz", x=x)  # type: ignore[operator]
    assert "first in row 2998" in inspect(tmp_path, World(inputs=(1, 8, 8)), Role.TARGET).refused[0]["what"]
    path = tmp_path / "a.npz"
    save_as(path, x=np.random.default_rng(0).random((1000, 20, 20)))  # type: ignore[operator]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert "cannot be read as an .npz file" in inspect(tmp_path, World(inputs=(1, 8, 8)), Role.TARGET).refused[0]["what"]


@pytest.mark.parametrize(("units", "uneven"), [((0.01, 1.0, 4e6), True), ((1.0, 1.0, 900.0), False), ((0.0, 1.0, 1.0), False)])
def test_features_of_other_scales(tmp_path: Path, units: tuple[float, ...], uneven: bool) -> None:
    """A constant one has no scale. Samples of images have none either."""
    y = np.arange(40) % 2
    x = np.random.default_rng(0).uniform(-1, 1, (40, 3)) * units
    np.savez(tmp_path / "table.npz", x=x.astype(np.float32), y=y)
    content = inspect(tmp_path, None, None).domains[0].content
    assert content is not None and content.scales is not None and content.uneven is uneven
    assert content.scales[1] == pytest.approx(2 * max(units), rel=0.2)
    np.savez(tmp_path / "table.npz", x=np.zeros((40, 8, 8), np.uint8), y=y)
    content = inspect(tmp_path, None, None).domains[0].content
    assert content is not None and content.scales is None and not content.uneven


def test_measurements_as_labels_are_refused(tmp_path: Path) -> None:
    """There is no regression; names of classes that are such numbers have to be listed."""
    (tmp_path / "a.csv").write_text("x,label\n" + "".join(f"{i},{i / 7:.3f}\n" for i in range(40)))
    with pytest.raises(DataRefused, match="not whole, such as") as refused:
        inspect(tmp_path, None, Role.SOURCE)
    assert "regression" in refused.value.todo
    (tmp_path / "a.csv").write_text("x,label\n" + "".join(f"{i},{('0.5', '1.5')[i % 2]}\n" for i in range(40)))
    (tmp_path / "classes.txt").write_text("0.5\n1.5\n")
    assert inspect(tmp_path, None, Role.SOURCE).usable


@pytest.mark.parametrize("y", [np.linspace(0, 1, 40), np.zeros((40, 3), int)])
def test_arrays_of_other_tasks_are_refused(tmp_path: Path, y: Any) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((40, 2), np.float32), y=y)
    refused = inspect(tmp_path, FEATURES, Role.SOURCE).refused
    assert refused and "there is none for regression, or for several labels" in str(refused[0]["todo"])
