"""Whose the rows of a site are: said by a column, an array, a list beside files, or by Python; and whole units are held out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from tests.learning.test_tables import KINDS, WORLD, refused, table, write
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.run import Role
from tideline.core.step import View
from tideline.learning.formats.folder import read_folder
from tideline.learning.formats.holdings import Holdings
from tideline.learning.formats.inspection import inspect
from tideline.learning.formats.units import held_units, place_of
from tideline.learning.partition import folders
from tideline.learning.partition.deals import Deal
from tideline.learning.sites.module import site_of
from tideline.learning.sites.site import Site, holdings_of

PATIENTS = [f"p{i % 7}" for i in range(40)]
IMAGES = World(inputs=(1, 4, 4), classes=2)


def ward(folder: Path, kind: str, settings: str = "", **more: list[object]) -> Path:
    write(folder, kind, {**table(40), **more})
    if settings:
        (folder / "transforms.toml").write_text(f"[ward]\n{settings}\n")
    return folder


def groups(data_units: Tensor | None, names: list[str], rows: list[int]) -> bool:
    """Whether numbers are alike just where names are."""
    assert data_units is not None
    of = [names[row] for row in rows]
    return [a == b for a in of for b in of] == [a == b for a in data_units.tolist() for b in data_units.tolist()]


def sides(found: Holdings) -> tuple[list[int], list[int]]:
    """The rows on each side, by the feature b, which counts them."""
    train, held = ([int(v) for v in data.x.batch(torch.arange(len(data)))[:, 1]] for data in (found.train, found.held_out))
    return train, held


@KINDS
@pytest.mark.parametrize(
    "settings", ['unit = "patient"', 'unit = "patient"\ndrop = ["patient"]', 'unit = "patient"\nunit_column = "id"']
)
def test_a_column_says_whose_rows_are(tmp_path: Path, kind: str, settings: str) -> None:
    """It is no feature, dropped or not, and may have another name; whole units are held out."""
    column = "id" if "unit_column" in settings else "patient"
    found = read_folder(ward(tmp_path / "d", kind, settings, **{column: list(PATIENTS)}), WORLD, Role.SOURCE)
    train, held = sides(found)
    assert found.train.unit == found.held_out.unit == "patient"
    assert groups(found.train.units, PATIENTS, train) and groups(found.held_out.units, PATIENTS, held)
    assert not {PATIENTS[i] for i in train} & {PATIENTS[i] for i in held} and sorted(train + held) == list(range(40))
    learnt = found.view(View.LEARN, Role.SOURCE)
    assert learnt.units is not None and len(learnt.units) == len(learnt)
    assert found.view(View.TRAIN, Role.TARGET).units is found.train.units


@KINDS
def test_a_target_without_labels_has_units_too(tmp_path: Path, kind: str) -> None:
    columns = table(40)
    del columns["y"]
    write(tmp_path / "d", kind, {**columns, "patient": PATIENTS})
    (tmp_path / "d" / "transforms.toml").write_text('[ward]\nunit = "patient"\n')
    found = read_folder(tmp_path / "d", WORLD, Role.TARGET)
    assert found.train.units is not None and len(found.train.units) == len(found.train)


def test_a_csv_is_read_alike_by_both_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tideline.learning.formats.columns import fast_csv, fast_rows

    folder = ward(tmp_path / "d", "csv", 'unit = "patient"', patient=list(PATIENTS))
    fast = read_folder(folder, WORLD, Role.SOURCE)

    def unsure(*given: object) -> object:
        raise fast_csv.Unsure

    monkeypatch.setattr(fast_rows, "marks", unsure)
    slow = read_folder(folder, WORLD, Role.SOURCE)
    assert fast.train.units is not None and torch.equal(fast.train.units, slow.train.units)  # type: ignore[arg-type]


@KINDS
def test_rows_that_are_named_to_be_held_out_stay_there(tmp_path: Path, kind: str) -> None:
    words = ["test" if i < 8 else "train" for i in range(40)]
    settings = 'unit = "patient"\nheld_out = "side"'
    found = read_folder(ward(tmp_path / "d", kind, settings, patient=list(PATIENTS), side=list(words)), WORLD, Role.SOURCE)
    assert sides(found)[1] == list(range(8)) and found.held_out.units is not None and len(found.held_out.units) == 8


def test_which_units_are_held_out_follows_from_their_names_alone() -> None:
    names = {f"patient {i}" for i in range(300)}
    held = held_units(names, 0.2)
    assert 30 < len(held) < 90 and held == {name for name in names if place_of(name) < 0.2}
    for name in sorted(names)[:20]:
        assert held_units(names - {name}, 0.2) == held - {name}
    assert len(held_units({"a", "b"}, 0.001)) == len(held_units({"a", "b"}, 0.95)) == 1
    with pytest.raises(DataRefused, match="cannot be split in two"):
        held_units({"a"}, 0.2)


@KINDS
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ('unit = "patient"', "no column 'patient' that says whose"),
        ('unit = "patient"\nunit_column = "id"', "unit_column names the column 'id'"),
        ('unit = "row"', "cannot name a unit"),
        ('unit = "two words"', "cannot name a unit"),
        ('unit_column = "a"', "unit does not say what its rows belong to"),
        ('unit = "patient"\nunit_column = "y"', "used for two things"),
    ],
)
def test_settings_that_say_nothing(tmp_path: Path, kind: str, settings: str, said: str) -> None:
    refused(ward(tmp_path / "d", kind, settings), said)


@KINDS
def test_a_row_without_a_unit_is_refused_by_its_row(tmp_path: Path, kind: str) -> None:
    holes: list[object] = [None if i == 3 else "p" + str(i) for i in range(40)]
    error = refused(ward(tmp_path / "d", kind, 'unit = "patient"', patient=holes), "nothing says to which unit it belongs")
    assert ("line 5" if kind == "csv" else "row 3") in error.what


def test_all_domains_of_a_site_have_one_unit(tmp_path: Path) -> None:
    """The same name is the same unit, in whichever domain; one that says none is refused."""
    write(tmp_path / "d", "csv", {**table(40), "patient": PATIENTS})
    write(tmp_path / "d", "csv", {**table(40), "patient": PATIENTS[::-1]}, name="lab")
    (tmp_path / "d" / "transforms.toml").write_text('[ward]\nunit = "patient"\n[lab]\nunit = "patient"\n')
    found = read_folder(tmp_path / "d", WORLD, Role.SOURCE)
    assert found.train.units is not None and len(found.train.units.unique()) < 7
    (tmp_path / "d" / "transforms.toml").write_text('[ward]\nunit = "patient"\n[lab]\ndrop = ["patient"]\n')
    refused(tmp_path / "d", "ward.csv: patient")


def arrays(folder: Path, kind: str, unit: object = PATIENTS) -> Path:
    folder.mkdir()
    found = {"x": np.random.default_rng(0).random((40, 2)), "y": np.arange(40) % 3}
    if unit is not None:
        found["unit"] = np.array(unit)
    if kind == "npz":
        np.savez(folder / "scanner.npz", **found)
    else:
        for key, each in found.items():
            np.save(folder / (f"scanner.{key}.npy" if key != "x" else "scanner.npy"), each)
    (folder / "transforms.toml").write_text('[scanner]\nunit = "patient"\n')
    return folder


@pytest.mark.parametrize("kind", ["npz", "npy"])
@pytest.mark.parametrize("unit", [PATIENTS, [i % 7 for i in range(40)]])
def test_an_array_says_whose_rows_are(tmp_path: Path, kind: str, unit: list[object]) -> None:
    found = read_folder(arrays(tmp_path / "d", kind, unit), WORLD, Role.SOURCE)
    assert found.train.unit == "patient" and found.train.domains == ("scanner",)
    both = torch.cat([found.train.units, found.held_out.units])  # type: ignore[list-item]
    assert len(both) == 40 and not set(found.train.units.tolist()) - set(range(7))  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["npz", "npy"])
@pytest.mark.parametrize(
    ("unit", "said"), [(None, "no array 'unit'"), (PATIENTS[:3], "shape (3,)"), ([0.5] * 40, "float64"), ([" "] * 40, "row 0")]
)
def test_arrays_that_do_not_say_it(tmp_path: Path, kind: str, unit: object, said: str) -> None:
    refused(arrays(tmp_path / "d", kind, unit), said)


def pictures(folder: Path, lines: list[str] | None = None) -> Path:
    """Twelve images of two classes, of three patients."""
    names = [f"{i % 2}/{i:02}.png" for i in range(12)]
    for i, name in enumerate(names):
        (folder / "camera" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4), i, np.uint8)).save(folder / "camera" / name)
    given = ["file,unit", *(f"{name},p{i % 3}" for i, name in enumerate(names))] if lines is None else lines
    if given:
        (folder / "camera" / "units.csv").write_text("".join(f"{line}\n" for line in given))
    (folder / "transforms.toml").write_text('[camera]\nunit = "patient"\n')
    return folder


def test_a_list_beside_images_says_whose_they_are(tmp_path: Path) -> None:
    found = read_folder(pictures(tmp_path / "d"), IMAGES, Role.SOURCE)
    assert found.train.units is not None and found.held_out.units is not None
    assert not set(found.train.units.tolist()) & set(found.held_out.units.tolist()) or len(found.held_out.units) in (4, 8)
    report = inspect(tmp_path / "d", IMAGES, Role.SOURCE).domains[0]
    assert (report.unit, report.units, report.ignored) == ("patient", 3, ())


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "no units.csv"),
        (["path,who"], "does not begin with the line file,unit"),
        (["file,unit", "0/00.png,p1"], "names no unit of 11 of 12 files"),
        (["file,unit", "0/00.png,p1", "0/00.png,p2"], "names a file twice"),
        (["file,unit", "0/00.png"], "line 2 has 1 cells"),
        (["file,unit", '0/00.png,"p1'], "cannot be read"),
        (["file,unit", *(f"{i % 2}/{i:02}.png," for i in range(12))], "row 0"),
    ],
)
def test_lists_that_do_not_say_it(tmp_path: Path, lines: list[str], said: str) -> None:
    refused(pictures(tmp_path / "d", lines), said, world=IMAGES)


def test_a_deal_keeps_whose_rows_are(tmp_path: Path) -> None:
    for kind in ("npz", "npy", "images"):
        source = tmp_path / kind
        world = IMAGES if kind == "images" else WORLD
        pictures(source) if kind == "images" else arrays(source, kind)
        second = "other" if kind == "images" else f"other.{kind}"
        copy_domain(source, "camera" if kind == "images" else "scanner", second)
        dealt = folders.sites_of(source, Deal(leave_out="other", clients=2, domains=1))
        into = {tmp_path / "out" / kind / site: hands for site, hands in dealt.hands.items()}
        folders.write_sites(source, into)
        for folder in into:
            found = read_folder(folder, world, Role.TARGET)
            assert found.held_out.unit == "patient" and found.held_out.units is not None


def copy_domain(folder: Path, name: str, second: str) -> None:
    import shutil

    if second == "other":
        shutil.copytree(folder / name, folder / second)
    for path in list(folder.glob(f"{name}*.np*")):
        shutil.copyfile(path, folder / path.name.replace(name, "other", 1))
    (folder / "transforms.toml").write_text(f'[{name}]\nunit = "patient"\n[other]\nunit = "patient"\n')


def given(**more: object) -> Site:
    x, y = torch.arange(80.0).view(40, 2), torch.arange(40) % 3
    return Site(**{"train": (x, y), "unit": "patient", "units": PATIENTS, **more})  # type: ignore[arg-type]


def test_python_says_whose_rows_are() -> None:
    """Of all datasets one after the other; as texts, numbers or an array; and a dict does, too."""
    found = holdings_of(given(), WORLD, Role.SOURCE)
    assert found.train.unit == "patient" and found.train.units is not None and found.held_out.units is not None
    assert not set(found.train.units.tolist()) & set(found.held_out.units.tolist())
    test = (torch.zeros(3, 2), torch.arange(3))
    more = holdings_of(given(test=test, units=np.array([*PATIENTS, "p1", "new", "p2"])), WORLD, Role.SOURCE)
    assert len(more.train.units) == 40 and len(more.held_out.units.unique()) == 3  # type: ignore[arg-type, union-attr]
    assert int(more.held_out.units[0]) in more.train.units.tolist()  # type: ignore[index, union-attr]
    assert site_of({"train": test, "unit": "patient", "units": [1, 2, 3]}, "f").unit == "patient"


def test_python_that_says_half_of_it() -> None:
    for more, said in (
        ({"units": None}, "units is not given"),
        ({"unit": ""}, "does not say what of"),
        ({"unit": "a b"}, "cannot name"),
    ):
        with pytest.raises(ConfigRefused, match=said):
            given(**more)
    with pytest.raises(ConfigRefused, match=r"Say it in transforms\.toml|train is a folder"):
        given(train="folder")
    with pytest.raises(DataRefused, match="units names 3 units, and there are 40 rows"):
        holdings_of(given(units=["a", "b", "c"]), WORLD, Role.SOURCE)
