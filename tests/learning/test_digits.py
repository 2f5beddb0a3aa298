"""The digits that ship with the package, the folders made of them, and sites half of which see them upside down."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.core.run import Role
from tideline.learning.datasets import digits
from tideline.learning.datasets.digits import DOMAINS, load, write_site
from tideline.learning.datasets.turned import turned, write_sites
from tideline.learning.formats.folder import read_folder

DATA = Path(digits.__file__).parent / "digits_data"
SHAPES = {"mnist": (28, 28), "usps": (16, 16), "optdigits": (8, 8), "coloured": (28, 28, 3)}


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_domain_has_its_shape_and_split(domain: str) -> None:
    """Samples are uint8 of the stated shape, a fifth is held out, and both sides have all ten digits."""
    raw = load(domain)
    assert raw.x.shape[1:] == SHAPES[domain]
    assert [str(a.dtype) for a in (raw.x, raw.y, raw.test_idx)] == ["uint8", "uint8", "int32"]
    assert len(raw.test_idx) == pytest.approx(len(raw.y) / 5, abs=1)
    train = np.setdiff1d(np.arange(len(raw.y)), raw.test_idx)
    assert set(raw.y[train]) == set(raw.y[raw.test_idx]) == set(range(digits.CLASSES))


@pytest.mark.parametrize("domain", DOMAINS)
def test_loading_is_repeatable(domain: str) -> None:
    """The same bytes come every time, whatever NumPy's global generator has been through."""
    first = load(domain)
    np.random.seed(99)
    again = load(domain)
    assert all(np.array_equal(getattr(first, key), getattr(again, key)) for key in ("x", "y", "test_idx"))


def test_scale_is_told_where_white_is_not_255() -> None:
    assert load("optdigits").scale == load("optdigits").x.max() == 16
    assert all(load(domain).scale is None for domain in DOMAINS if domain != "optdigits")


def test_no_handwritten_digit_is_in_two_domains() -> None:
    with (
        np.load(DATA / "mnist.npz", allow_pickle=False) as even,
        np.load(DATA / "mnist_for_coloured.npz", allow_pickle=False) as odd,
    ):
        assert set(even["row"] % 2) == {0}
        assert set(odd["row"] % 2) == {1}
        assert not {x.tobytes() for x in even["x"]} & {x.tobytes() for x in odd["x"]}


def test_coloured_digits_can_be_undone() -> None:
    """Each channel is |patch - digit|: where the digit is black, the photograph shows unchanged."""
    with np.load(DATA / "mnist_for_coloured.npz", allow_pickle=False) as arrays:
        grey, raw = arrays["x"], load("coloured")
        patches = digits.photo_patches(len(grey), digits.BACKGROUND_SEED)
        assert np.array_equal(raw.y, arrays["y"])
    assert np.array_equal(raw.x[grey == 0], patches[grey == 0])
    assert np.array_equal(raw.x[grey == 255], 255 - patches[grey == 255])
    assert len({p.tobytes() for p in patches}) > 0.99 * len(patches)


def test_the_files_stay_small() -> None:
    assert sum(f.stat().st_size for f in DATA.iterdir()) < 3_000_000
    assert {f.name for f in DATA.iterdir()} == {"README.md", "mnist.npz", "mnist_for_coloured.npz", "usps.npz"}


@pytest.mark.parametrize(("domain", "role"), [*((x, Role.SOURCE) for x in DOMAINS), ("mnist", Role.PEER), ("usps", Role.TARGET)])
def test_a_written_site_is_read(tmp_path: Path, domain: str, role: Role) -> None:
    """read_folder accepts what write_site wrote, for every role, and holds out the rows that the set holds out."""
    told = write_site(tmp_path, domain, rows=100)
    holdings = read_folder(tmp_path, World(inputs=(3, 28, 28)), role)
    assert told == {"samples": len(holdings.train), "held_out": len(holdings.held_out)} == {"samples": 80, "held_out": 20}
    assert holdings.train.labelled == (role is not Role.TARGET)
    assert holdings.held_out.labelled
    assert 0.5 < float(holdings.train.x.all().max()) <= 1.0


def rows_of(path: Path) -> tuple[list[bytes], set[bytes]]:
    """All samples of a file, and those that it holds out."""
    with np.load(path, allow_pickle=False) as arrays:
        return [x.tobytes() for x in arrays["x"]], {x.tobytes() for x in arrays["x"][arrays["test_idx"]]}


def test_parts_are_disjoint_and_cover(tmp_path: Path) -> None:
    """Three sites that share a domain have each digit once among them, and its side of the split does not change."""
    counts = [write_site(tmp_path / str(i), "mnist", i, 3) for i in range(3)]
    read = [rows_of(tmp_path / str(i) / "mnist.npz") for i in range(3)]
    raw = load("mnist")
    assert sorted(x for rows, _ in read for x in rows) == sorted(x.tobytes() for x in raw.x)
    assert set.union(*(held for _, held in read)) == {x.tobytes() for x in raw.x[raw.test_idx]}
    assert sorted(c["samples"] for c in counts) == [666, 667, 667]


def test_writing_again_changes_nothing(tmp_path: Path) -> None:
    for name in ("one", "two", "two"):
        write_site(tmp_path / name, "optdigits", 1, 2)
    for file in ("optdigits.npz", "transforms.toml"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_a_folder_may_hold_several_domains(tmp_path: Path) -> None:
    """Domains are written side by side, and a transforms.toml that is there is kept."""
    (tmp_path / "transforms.toml").write_text("[usps]\ninvert = true\n")
    for domain in ("usps", "optdigits"):
        write_site(tmp_path, domain, rows=50)
    assert tomllib.loads((tmp_path / "transforms.toml").read_text()) == {"usps": {"invert": True}, "optdigits": {"scale": 16}}
    assert read_folder(tmp_path, World(), Role.SOURCE).train.domains == ("optdigits", "usps")


def test_labels_can_be_left_out(tmp_path: Path) -> None:
    write_site(tmp_path, "usps", rows=20, labels=False)
    with np.load(tmp_path / "usps.npz", allow_pickle=False) as arrays:
        assert set(arrays.files) == {"x", "test_idx"}
    assert not read_folder(tmp_path, World(), Role.TARGET).held_out.labelled


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"domain": "minst"}, "did you mean mnist"),
        ({"domain": "mnist", "part": 2, "parts": 2}, "no part 2 of 2"),
        ({"domain": "mnist", "part": -1}, "no part -1"),
        ({"domain": "mnist", "parts": 501}, "cannot be dealt in 501 parts"),
        ({"domain": "mnist", "rows": 1}, "rows is 1"),
    ],
)
def test_impossible_sites_are_refused(tmp_path: Path, given: dict[str, object], said: str) -> None:
    """Unknown domains, missing parts and too few rows are refused, and nothing is written."""
    with pytest.raises(ConfigRefused) as refusal:
        write_site(tmp_path / "site", **given)  # type: ignore[arg-type]
    assert said in str(refusal.value)
    assert not (tmp_path / "site").exists()


ROLES = ("source", "source", "target", "target")


def test_each_site_without_labels_has_a_labelled_one_that_sees_alike() -> None:
    """Not the one in its own place, so that an order of names gives nothing away; one labelled site has nobody to differ from."""
    assert turned(ROLES) == [False, True, True, False]
    assert turned(("source", "target", "target")) == [False] * 3
    assert turned(("source", "source", "target")) == [False, True, True]


def test_rows_are_dealt_once_and_turned(tmp_path: Path) -> None:
    """All rows of the style, each at one site, on one side; of a turned site by half a turn. The same again at each writing."""
    folders = [tmp_path / str(i) for i in range(4)]
    written = write_sites(folders, "mnist", ROLES)
    raw, sites = load("mnist"), [np.load(folder / "mnist.npz", allow_pickle=False) for folder in folders]
    seen = [site["x"][:, ::-1, ::-1] if half_turn else site["x"] for site, half_turn in zip(sites, turned(ROLES), strict=True)]
    assert sorted(x.tobytes() for own in seen for x in own) == sorted(x.tobytes() for x in raw.x)
    assert [len(site["test_idx"]) for site in sites] == [each["held_out"] for each in written] == [125, 125, 312, 312]
    assert sum(sum(each.values()) for each in written) == len(raw.x)
    again = [tmp_path / f"again {i}" for i in range(4)]
    assert write_sites(again, "mnist", ROLES) == written
    assert (again[1] / "mnist.npz").read_bytes() == (folders[1] / "mnist.npz").read_bytes()
