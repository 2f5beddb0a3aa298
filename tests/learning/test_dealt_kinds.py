"""Deals of arrays of any shape, mapped arrays, scans and sounds: what is written is what was there, and agents can read it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.learning.scans_on_disk import dicom, nifti, sound
from tideline.core.asked.world import Kind, World
from tideline.core.errors import DataRefused
from tideline.core.run import Role
from tideline.learning.formats import arrays, folder
from tideline.learning.partition import folders
from tideline.learning.partition.deals import Deal, Hand
from tideline.learning.partition.folders import read_dealt, sites_of, write_sites

N = 12
WORLDS = {
    "vector": World(inputs=(5,), classes=2),
    "sequence": World(inputs=(3, 7), classes=2),
    "image": World(inputs=(4, 6, 6), classes=2),
    "volume": World(inputs=(1, 3, 4, 5), classes=2),
    "volumes": World(inputs=(2, 2, 3, 4, 5), classes=2),
    "tokens": World(inputs=(9,), classes=2, dtype=Kind.INT64, vocabulary=50),
}
RULE = Deal(leave_out="b", clients=2, domains=1, seed=3, target_share=0.25)


def drawn(world: World, seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    if world.tokens:
        return rng.integers(0, world.vocabulary, (N, *world.inputs))
    return rng.random((N, *world.inputs), np.float32)


def npz(path: Path, x: np.ndarray[Any, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path.with_suffix(".npz"), x=x, y=np.arange(N) % 2)


def npy(path: Path, x: np.ndarray[Any, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path.with_suffix(".npy"), x)
    np.save(path.with_suffix(".y.npy"), (np.arange(N) % 2).astype(np.uint8))


def fortran(path: Path, x: np.ndarray[Any, Any]) -> None:
    npy(path, np.asfortranarray(x))


def same(path: Path, world: World, out: Path, rule: Deal = RULE) -> dict[str, Path]:
    """Folders of a deal, held to what the same deal is without a copy: rows, labels and sides."""
    sites = sites_of(path, rule)
    into = {site: out / site for site in sites.hands}
    write_sites(path, {into[site]: hands for site, hands in sites.hands.items()})
    kept = read_dealt(path, world, sites.hands, sites.roles)
    for site, mine in kept.items():
        theirs = folder.read_folder(into[site], world, sites.roles[site])
        for one, other in ((mine.train, theirs.train), (mine.held_out, theirs.held_out)):
            assert rows_of(one) == rows_of(other), site
    return into


def rows_of(side: Any) -> list[tuple[bytes, int | None]]:
    """Each row's bytes and label, in an order of their own: files are listed by names, which a deal may change."""
    labels = [None] * len(side) if side.y is None else side.y.tolist()
    rows = [each.numpy().tobytes() for each in side.x.all("this test")]
    return sorted(zip(rows, labels, strict=True), key=lambda row: (row[0], str(row[1])))


@pytest.mark.parametrize(
    ("shape", "write"), [*((shape, npy) for shape in WORLDS), *((x, npz) for x in ("volume", "tokens")), ("image", fortran)]
)
def test_arrays_of_any_shape(
    tmp_path: Path, shape: str, write: Callable[[Path, Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also written some rows at a time, and with hidden labels that their type cannot hold."""
    monkeypatch.setattr(arrays, "STREAMED_BYTES", 1 << 10)
    for seed, name in enumerate("abc"):
        write(tmp_path / "all" / name, drawn(WORLDS[shape], seed))
    into = same(tmp_path / "all", WORLDS[shape], tmp_path / "out")
    if write is not npz:
        site = into["unseen"]
        assert np.load(site / "b.npy", mmap_mode="r", allow_pickle=False).dtype == drawn(WORLDS[shape], 1).dtype
        assert int(np.load(site / "b.y.npy", allow_pickle=False).min()) == -1, "the target share's other rows have no labels"
        assert not list(site.glob("*.validation_idx.npy"))


def slices(path: Path, i: int) -> None:
    dicom(path.with_suffix(".dcm"), np.full((4, 4), 100 * i))


def series(path: Path, i: int) -> None:
    """With a name that looks as if it had a suffix, as the numbers of real ones do."""
    for place in range(2):
        dicom(path.with_name(f"1.2.840.{i}") / f"{place}.DCM", np.full((4, 4), 100 * i + place), place=place)


def packed(path: Path, i: int) -> None:
    nifti(path.with_suffix(".nii.gz"), np.full((5, 4, 3), float(i)))


def beep(path: Path, i: int) -> None:
    sound(path.with_suffix(".wav"), np.sin(np.arange(16000) * (i + 1) / 50) / 2)


FILES = {
    "dicom": (slices, World(inputs=(1, 4, 4), classes=2, class_names=("p", "q"))),
    "series": (series, World(inputs=(1, 2, 4, 4), classes=2, class_names=("p", "q"))),
    "nifti": (packed, World(inputs=(1, 3, 4, 5), classes=2, class_names=("p", "q"))),
    "audio": (beep, World(inputs=(1, 64, 98), classes=2, class_names=("p", "q"))),
}


def filled(path: Path, kind: str) -> None:
    write, _ = FILES[kind]
    for at, name in enumerate("abc"):
        for i in range(N):
            write(path / name / "pq"[i % 2] / f"{i:02}", i + N * at)


@pytest.mark.nightly(job="formats")
@pytest.mark.parametrize("kind", FILES)
def test_scans_and_sounds(tmp_path: Path, kind: str) -> None:
    """Files are copied as they are, a series with its slices; names that may tell something are not there without a label."""
    filled(tmp_path / "all", kind)
    into = same(tmp_path / "all", FILES[kind][1], tmp_path / "out")
    names = sorted(each.name for each in (into["unseen"] / "b" / "-1").iterdir())
    assert len(names) == 9 and all(name.partition(".")[0].isdigit() for name in names)
    assert {name.partition(".")[2] for name in names} == {{"dicom": "dcm", "nifti": "nii.gz", "audio": "wav"}.get(kind, "")}


@pytest.mark.nightly(job="formats")
@pytest.mark.parametrize("kind", FILES)
def test_a_row_that_is_on_both_sides_is_there_twice(tmp_path: Path, kind: str) -> None:
    """As in a deal without a target share, under a name that its reader knows."""
    filled(tmp_path / "all", kind)
    own = {"b": Hand(train=np.array([0]), held=np.arange(N))}
    write_sites(tmp_path / "all", {tmp_path / "out": own})
    read = folder.read_folder(tmp_path / "out", FILES[kind][1], Role.TARGET)
    assert (len(read.train), len(read.held_out)) == (1, N)


def test_every_kind_of_domain_is_dealt() -> None:
    assert set(folders.KINDS) == set(folder.KINDS)


@pytest.mark.parametrize("write", [npz, npy])
def test_arrays_without_labels_are_refused(tmp_path: Path, write: Callable[[Path, Any], None]) -> None:
    for name in "abc":
        write(tmp_path / name, drawn(WORLDS["volume"], 0))
    if write is npy:
        (tmp_path / "c.y.npy").unlink()
    else:
        np.savez(tmp_path / "c.npz", x=drawn(WORLDS["volume"], 0))
    with pytest.raises(DataRefused, match=r"c\.np[yz]: there are no labels") as refused:
        sites_of(tmp_path, RULE)
    assert "clients learn from them" in refused.value.todo


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    for name in "abc":
        npy(tmp_path / name, drawn(WORLDS["sequence"], 0))
    (tmp_path / "b.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(DataRefused, match=r"b\.npy cannot be read as an .npy file"):
        sites_of(tmp_path, RULE)
