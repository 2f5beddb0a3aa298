"""Rows from a cache are the rows without one, whatever befalls its file, the disk, the data and who writes it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import wave
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from tests.learning.images_on_disk import picture, save, save_classes
from tests.learning.test_rows import reachable
from tideline.core.asked.world import Kind, World
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.rows import Rows
from tideline.core.run import Role
from tideline.core.step import View
from tideline.engine.compute.step_runner import masked
from tideline.learning.cache.cached_rows import CachedRows
from tideline.learning.cache.folder import PART, SUFFIX, Folder, in_use, limit_in
from tideline.learning.cache.layout import DIGEST, FOOT, head_at
from tideline.learning.cache.opening import RowsCache
from tideline.learning.formats.folder import read_folder
from tideline.learning.formats.holdings import Holdings
from tideline.learning.loading.ahead import in_parts

WORLD = World(inputs=(3, 8, 8), classes=2, class_names=("cat", "dog"))
SECONDS = 120.0


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Images of several sizes in folders of classes, and arrays of few shades."""
    save_classes(tmp_path / "data" / "ward", {"cat": 6, "dog": 7})
    save(tmp_path / "data" / "ward" / "cat" / "wide.jpg", picture(1, 30, 41))
    save(tmp_path / "data" / "ward" / "dog" / "grey.png", picture(2, 11, 9, 1))
    np.savez(tmp_path / "data" / "scan.npz", x=picture(3, 20 * 6, 6, 1).reshape(20, 6, 6) % 17, y=np.arange(20) % 2)
    (tmp_path / "data" / "transforms.toml").write_text(
        "[scan]\nscale = 16\n[ward]\ninvert = true\nmean = [0.5, 0.4, 0.3]\nstd = [0.1, 0.2, 0.3]\n"
    )
    return tmp_path / "data"


def cache(site: Path, limit: int | None = None, workers: int | None = None) -> RowsCache:
    return RowsCache(Folder(site.parent / "rows", limit), workers)


def opened(site: Path, to: RowsCache | None, role: Role = Role.SOURCE, world: World = WORLD) -> Holdings:
    return read_folder(site, world, role, held=0, cache=to)


def same(one: Holdings, other: Holdings) -> None:
    """Every row, to the bit, and what belongs to it."""
    for mine, theirs in ((one.train, other.train), (one.held_out, other.held_out)):
        assert torch.equal(mine.x.all(), theirs.x.all()) and torch.equal(mine.domain, theirs.domain)
        assert (mine.y is None) == (theirs.y is None) and (mine.y is None or theirs.y is None or torch.equal(mine.y, theirs.y))


def files(site: Path, suffix: str = SUFFIX) -> list[Path]:
    return sorted((site.parent / "rows").glob(f"*{suffix}"))


def dtypes(site: Path) -> dict[str, str]:
    """Of the rows of each domain's cache."""
    heads = [head for path in files(site) if (head := head_at(path)) is not None]
    return {Path(head.domain).name: head.dtype for head in heads}


def of_ward(site: Path) -> Path:
    return next(path for path in files(site) if (head := head_at(path)) is not None and head.domain.endswith("ward"))


@pytest.mark.parametrize(
    ("role", "inputs"), [(Role.SOURCE, (3, 8, 8)), (Role.SOURCE, (1, 8, 8)), (Role.TARGET, (3, 8, 8)), (Role.TARGET, (3, 5, 13))]
)
def test_rows_are_the_same_to_the_bit(site: Path, role: Role, inputs: tuple[int, ...]) -> None:
    """In memory, decoded when asked for, written to a cache, and read from one that was there."""
    world = World(inputs=inputs, classes=2, class_names=WORLD.class_names)
    (site / "transforms.toml").write_text("[scan]\nscale = 16\n[ward]\ninvert = true\nmean = [0.5]\n")
    memory = read_folder(site, world, role)
    for to in (None, cache(site), cache(site, workers=64)):
        same(memory, opened(site, to, role, world))
    assert len(files(site)) == 2 and not files(site, PART)


def test_types_of_pixels(tmp_path: Path) -> None:
    """Bytes stay bytes, 16 bits stay so; where a domain has several types, or floats, its rows are floats. So do features."""
    site = tmp_path / "data"
    (site / "floats").mkdir(parents=True)
    deep = (picture(1, 9, 9, 1).astype(np.uint16) * 257, picture(2, 8, 8, 1).astype(np.uint16) * 3)
    for i, x in enumerate(deep):
        save(site / "deep" / f"{i}.png", x)
        save(site / "both" / f"{i}.png", x)
        save(site / "bytes" / f"{i}.png", picture(i, 9, 9, 1))
        Image.fromarray(np.random.default_rng(i).random((7, 7), np.float32)).save(site / "floats" / f"{i}.tif")
    save(site / "both" / "2.png", picture(5, 12, 8))
    world = World(inputs=(1, 8, 8), classes=2)
    same(read_folder(site, world, Role.TARGET), opened(site, cache(site), Role.TARGET, world))
    assert dtypes(site) == {"deep": "uint16", "bytes": "uint8", "both": "float32", "floats": "float32"}
    rows = tmp_path / "tables" / "data"
    rows.mkdir(parents=True)
    np.savez(rows / "wide.npz", x=np.random.default_rng(1).normal(size=(12, 5)))
    np.savez(rows / "short.npz", x=np.random.default_rng(1).integers(-99, 99, (12, 5), np.int16))
    features = World(inputs=(5,), classes=2, model="mlp")
    same(read_folder(rows, features, Role.TARGET), opened(rows, cache(rows), Role.TARGET, features))
    assert sorted(dtypes(rows).values()) == ["float32", "int16"]


def test_a_later_start_decodes_nothing(site: Path) -> None:
    """What no longer is an image, but has its name, size and time, is as it was when it was read."""
    before = opened(site, cache(site))
    for path in (site / "ward").rglob("*.png"):
        seen = path.stat()
        path.write_bytes(bytes(seen.st_size))
        os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    same(before, opened(site, cache(site)))


def test_changed_data_are_read_anew(site: Path) -> None:
    """And what was written of them before is gone, once nobody reads it; a cache of data that are gone, too."""
    before = opened(site, cache(site))
    old = of_ward(site)
    save(site / "ward" / "cat" / "00.png", picture(77))
    after = opened(site, cache(site))
    assert old.exists(), "the first still reads it"
    assert not torch.equal(before.train.x.all(), after.train.x.all()) and len(before.train) == len(after.train)
    same(after, read_folder(site, WORLD, Role.SOURCE))
    del before
    opened(site, cache(site))
    assert not old.exists() and len(files(site)) == 2
    (site / "scan.npz").unlink()
    (site / "transforms.toml").unlink()
    del after
    opened(site, cache(site))
    assert len(files(site)) == 1


def test_files_that_vanish_meanwhile(site: Path) -> None:
    """With a cache they are not missed; without, it is the refusal that there was."""
    kept, without = opened(site, cache(site)), opened(site, None)
    before = kept.train.x.all()
    for path in (site / "ward").rglob("*.png"):
        path.unlink()
    assert torch.equal(kept.train.x.all(), before)
    with pytest.raises(DataRefused, match="can no longer be"):
        without.train.x.all()


def turn(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 16]))


def test_a_turned_bit_changes_nothing(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also one that turns between two readings: the row is made again and put right, and the owner's log says so."""
    holdings = opened(site, cache(site))
    before, path = (holdings.train.x.all(), holdings.held_out.x.all()), of_ward(site)
    content, head = path.read_bytes(), head_at(path)
    assert head is not None
    for at in (0, 5 * head.stride + 7, head.data_bytes - 1):
        turn(path, at)
        assert path.read_bytes() != content
        assert torch.equal(holdings.train.x.all(), before[0]) and torch.equal(holdings.held_out.x.all(), before[1])
        assert path.read_bytes() == content and "put right" in caplog.text
        caplog.clear()
    for at in (head.data_bytes, head.end - 1, head.end + 3, len(content) - 1, len(content) - FOOT):
        turn(path, at)
        caplog.set_level(logging.INFO)
        again = opened(site, cache(site))
        assert torch.equal(again.train.x.all(), before[0]) and "written once" in caplog.text
        assert of_ward(site).read_bytes() == content
        caplog.clear()


def test_a_damaged_row_whose_source_has_changed(site: Path) -> None:
    """Nothing is left to make it of: it is refused, as without a cache, and names no file."""
    holdings, path = opened(site, cache(site)), of_ward(site)
    save(site / "ward" / "cat" / "00.png", picture(77))
    (site / "ward" / "cat" / "01.png").unlink()
    head = head_at(path)
    assert head is not None
    for row in range(2):
        turn(path, row * head.stride)
    with pytest.raises(DataRefused, match="can no longer be") as told:
        [holdings.train.x.all(), holdings.held_out.x.all()]
    assert ".png" not in told.value.what


@pytest.mark.parametrize("cut", [1, FOOT, FOOT + 40, 5000])
def test_a_cut_file_is_not_used(site: Path, cut: int) -> None:
    before = opened(site, cache(site)).train.x.all()
    path = of_ward(site)
    os.truncate(path, max(path.stat().st_size - cut, 0))
    assert torch.equal(opened(site, cache(site)).train.x.all(), before) and head_at(path) is not None


def test_unreadable_images(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Refused in the numbers of a refusal without a cache; let go, they are remembered, and the log names them each time."""
    late = save(site / "ward" / "dog" / "zz-Svensson.jpg", picture(9, 64, 64))
    late.write_bytes(late.read_bytes()[:400])
    for to in (None, cache(site), cache(site)):
        with pytest.raises(DataRefused, match="1 of 16 images cannot be read") as told:
            opened(site, to)
        assert "Svensson" not in told.value.what and "Svensson" in str(told.value.context["files"])
    with (site / "transforms.toml").open("a") as file:
        file.write('unreadable = "skip"\n')
    for to in (None, cache(site), cache(site)):
        caplog.clear()
        same(read_folder(site, WORLD, Role.SOURCE), opened(site, to))
        assert "Svensson" in caplog.text
    head = head_at(of_ward(site))
    assert head is not None and [row for row, _ in head.lost] == [15] and "Svensson" not in str(head)


def test_values_that_do_not_fit(tmp_path: Path) -> None:
    site = tmp_path / "data"
    for i in range(40):
        x = np.full((8, 8), 0.5 if i not in (23, 37) else 9.0, np.float32)
        (site / "scan").mkdir(parents=True, exist_ok=True)
        Image.fromarray(x).save(site / "scan" / f"{i:02}.tif")
    for to in (None, cache(site, workers=8)):
        with pytest.raises(DataRefused, match="pixels outside 0 to 1"):
            opened(site, to, Role.TARGET, World(inputs=(1, 8, 8), classes=2))
    assert not files(site) and not files(site, PART)


def test_nothing_of_a_target_leads_to_a_class(site: Path) -> None:
    """Its training rows are numbers, also where folders name classes; the file has no name in it."""
    holdings = opened(site, cache(site), Role.TARGET)
    data = masked(holdings.view(View.TRAIN, Role.TARGET), View.TRAIN, Role.TARGET)
    assert not [each for each in reachable(data).values() if isinstance(each, str) and ("/" in each or "cat" in each)]
    content = of_ward(site).read_bytes()
    assert not any(word in content for word in (b"cat", b"dog", b"grey.png", b"00.png"))
    assert oct((site.parent / "rows").stat().st_mode & 0o777) == "0o700" and oct(of_ward(site).stat().st_mode & 0o777) == "0o600"


BUILD = """
import os, sys, signal
from pathlib import Path
from tideline.core.asked.world import World
from tideline.core.run import Role
from tideline.learning.cache import building
from tideline.learning.cache.folder import Folder
from tideline.learning.cache.opening import RowsCache
from tideline.learning.formats.folder import read_folder
site, share, blocks = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
building.FLUSH_SECONDS = 0.0
if blocks:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (blocks, blocks))
def progress(done):
    if done >= share:
        os.kill(os.getpid(), signal.SIGKILL)
to = RowsCache(Folder(site.parent / 'rows'), 1, progress)
made = read_folder(site, World(inputs=(3, 8, 8), classes=2, class_names=('cat', 'dog')), Role.SOURCE, held=0, cache=to)
print(made.uncached, float(made.train.x.all().sum()))
"""


def built(site: Path, share: float = 2.0, blocks: int = 0) -> subprocess.CompletedProcess[str]:
    """Open a site in a process of its own, which dies by SIGKILL at a share of the writing, or may write so many bytes a file."""
    command = [sys.executable, "-c", BUILD, str(site), str(share), str(blocks)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)


def test_one_who_is_killed_while_writing(tmp_path: Path) -> None:
    """What he left is never used as a whole; the next goes on with the rows that lie there, and each is checked."""
    site = tmp_path / "data"
    save_classes(site / "ward", {"cat": 150, "dog": 150}, side=64)
    assert built(site, 0.3).returncode == -9
    (part,) = files(site, PART)
    head = head_at(part)
    assert not files(site) and head is not None and not head.digests
    said = part.read_bytes()[head.data_bytes : head.end]
    there = [i for i in range(head.count) if any(said[i * DIGEST : (i + 1) * DIGEST])]
    assert 20 < len(there) < 300
    turn(part, there[3] * head.stride)
    same(read_folder(site, WORLD, Role.SOURCE), opened(site, cache(site)))
    assert files(site) and not files(site, PART)


@pytest.mark.nightly(job="numbers")
def test_a_full_disk(tmp_path: Path, site: Path) -> None:
    """Rows that cannot be written are decoded at each use, and no half file is left."""
    (site / "scan.npz").unlink()  # without a cache it goes to a scratch file, which has no room either
    (site / "transforms.toml").unlink()
    found = built(site, blocks=1000)
    assert found.returncode == 0 and "decoded rows are not written down" in found.stderr
    uncached, total = found.stdout.split()
    assert int(uncached) == 15 and float(total) == float(read_folder(site, WORLD, Role.SOURCE).train.x.all().sum())
    assert not files(site) and not files(site, PART)


@pytest.mark.parametrize("limit", [0, 100])
def test_a_limit_that_is_too_small(site: Path, limit: int, caplog: pytest.LogCaptureFixture) -> None:
    found = opened(site, cache(site, limit))
    same(read_folder(site, WORLD, Role.SOURCE), found)
    assert found.uncached == 35 and "--rows-cache" in caplog.text and not files(site)


def test_who_was_not_used_for_longest_goes_first(site: Path) -> None:
    worlds = [World(inputs=(3, side, side), classes=2, class_names=WORLD.class_names) for side in (8, 9, 10)]
    (site / "scan.npz").unlink()
    (site / "transforms.toml").unlink()
    first = opened(site, cache(site), world=worlds[0])
    (used,) = files(site)
    opened(site, cache(site), world=worlds[1])
    (old,) = set(files(site)) - {used}
    os.utime(used, (0, 0))
    room = sum(path.stat().st_blocks * 512 for path in files(site)) + 100
    opened(site, cache(site, room), world=worlds[2])
    assert used.exists() and in_use(used) and not old.exists() and len(files(site)) == 2
    assert len(first.train.x.all())
    del first
    assert not in_use(used)
    assert Folder(site.parent / "rows").forget()[0] == 2 and not files(site)


def test_two_write_the_same(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda _: opened(site, cache(site)), range(4)))
    for each in made:
        same(made[0], each)
    assert caplog.text.count("written once") == 2 and len(files(site)) == 2


def test_batches_of_any_order(site: Path) -> None:
    holdings = opened(site, cache(site))
    rows: Rows = holdings.held_out.x
    x: Tensor = rows.all()
    some = torch.randint(len(x), (50,), generator=torch.Generator().manual_seed(1))
    assert torch.equal(rows.batch(some), x[some]) and torch.equal(rows.at(some).batch(some % 50), x[some][some % 50])
    assert rows.batch(some[:0]).shape == (0, *WORLD.inputs)
    with pytest.raises(IndexError):
        rows.batch(torch.tensor([len(x)]))


def test_sizes() -> None:
    sizes = {"20GB": 20 * 10**9, "1.5 MB": 1_500_000, "0": 0, "7": 7, "half": None}
    assert {text: limit_in(text) for text in sizes} == sizes
    for text in ("", "-1GB", "GB", "1XB", "nan", "inf", "1e99GB"):
        with pytest.raises(ConfigRefused, match="rows-cache"):
            limit_in(text)


def test_a_head_that_is_none(tmp_path: Path) -> None:
    for i, content in enumerate((b"", b"x" * 10, bytes(FOOT), b"{}" + bytes(FOOT), json.dumps({"version": 1}).encode() * 9)):
        (tmp_path / f"{i}.rows").write_bytes(content)
        assert head_at(tmp_path / f"{i}.rows") is None


rng = np.random.default_rng(3)
TOKENS = World(inputs=(9,), classes=2, model="tokens", dtype=Kind.INT64, vocabulary=1 << 21)
# name: a world, the arrays of a domain, settings, and the type in which a cache holds them
CASES: dict[str, tuple[World, NDArray[np.generic], str, str]] = {
    "token ids": (TOKENS, rng.integers(0, 1 << 21, (20, 9)), "", "int64"),
    "short token ids": (TOKENS, rng.integers(0, 99, (20, 9), np.int16), "", "int64"),
    "sequences": (World(inputs=(2, 30), classes=2), rng.normal(size=(20, 2, 30)), "mean = [0.5, 0.1]", "float32"),
    "whole sequences": (World(inputs=(2, 30), classes=2), rng.integers(-9, 9, (20, 2, 30), np.int16), "scale = 9", "int16"),
    "volumes": (World(inputs=(1, 4, 5, 6), classes=2), rng.integers(0, 255, (20, 4, 5, 6), np.uint8), "", "uint8"),
    "planes": (World(inputs=(5, 8, 8), classes=2), rng.integers(0, 255, (20, 8, 8, 5), np.uint8), "invert = true", "uint8"),
    "resized planes": (World(inputs=(5, 7, 9), classes=2), rng.integers(0, 999, (20, 5, 8, 8), np.uint16), "", "float32"),
    "first": (World(inputs=(3, 8, 8), classes=2), rng.integers(0, 255, (20, 3, 9, 9), np.uint8), 'layout = "first"', "uint8"),
}
CHOSEN = pytest.mark.parametrize(("world", "x", "settings", "dtype"), CASES.values(), ids=CASES)


def saved(tmp_path: Path, suffix: str, x: NDArray[np.generic], settings: str) -> Path:
    site = tmp_path / "data"
    site.mkdir()
    (site / "transforms.toml").write_text(f"[ward]\n{settings}\n")
    if suffix == ".npy":
        np.save(site / "ward.npy", x)
        np.save(site / "ward.y.npy", np.arange(len(x)) % 2)
    else:
        np.savez(site / "ward.npz", x=x, y=np.arange(len(x)) % 2)
    return site


@CHOSEN
@pytest.mark.parametrize(("suffix", "role"), [(".npz", Role.SOURCE), (".npy", Role.TARGET)])
def test_rows_of_any_shape(
    tmp_path: Path, role: Role, suffix: str, world: World, x: NDArray[np.generic], settings: str, dtype: str
) -> None:
    """In memory, without a cache, with a new one, and with one that is there; also in parts, and some of them."""
    site = saved(tmp_path, suffix, x, settings)
    memory = read_folder(site, world, role)
    for to in (None, cache(site), cache(site)):
        holdings = opened(site, to, role, world)
        same(memory, holdings)
        rows = holdings.train.x
        assert rows.dtype == memory.train.x.dtype == (torch.int64 if world.tokens else torch.float32)
        assert torch.equal(torch.cat(list(in_parts(rows, 3))), memory.train.x.all()) and holdings.uncached == 0
        few = torch.tensor([4, 1, 4])
        assert torch.equal(rows.at(few).batch(torch.tensor([2, 0])), memory.train.x.batch(torch.tensor([4, 4])))
    mapped = suffix == ".npy" and len(world.inputs) != 3
    assert dtypes(site) == ({} if mapped else {f"ward{suffix}": dtype})


def tone(path: Path, pitch: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes((9000 * np.sin(np.arange(8000) * pitch)).astype("<i2").tobytes())


@pytest.mark.nightly(job="formats")
def test_sounds(tmp_path: Path) -> None:
    """Spectrograms are made once, and again by other settings, or of another file of the same name."""
    site = tmp_path / "data"
    for i in range(10):
        tone(site / "ward" / ("cat", "dog")[i % 2] / f"{i}.wav", 0.1 + i / 10)
    (site / "transforms.toml").write_text("[ward]\nrate = 8000\nmel = 12\n")
    world = World(inputs=(1, 12, 98), classes=2, class_names=("cat", "dog"))
    before = opened(site, cache(site), Role.SOURCE, world)
    assert isinstance(before.train.x, CachedRows)
    same(read_folder(site, world, Role.SOURCE), before)
    (site / "transforms.toml").write_text("[ward]\nrate = 8000\nmel = 12\nwindow_ms = 24.9\n")
    longer = opened(site, cache(site), Role.SOURCE, world)
    same(read_folder(site, world, Role.SOURCE), longer)
    assert not torch.equal(before.train.x.all(), longer.train.x.all())
    tone(site / "ward" / "cat" / "0.wav", 2.0)
    same(read_folder(site, world, Role.SOURCE), opened(site, cache(site), Role.SOURCE, world))


def test_a_changed_array_is_read_anew(tmp_path: Path) -> None:
    """By the time of its file, also where rows of it are read one by one."""
    world, x, settings, _ = CASES["planes"]
    site = saved(tmp_path, ".npy", x, settings)
    before = opened(site, cache(site), Role.SOURCE, world)
    np.save(site / "ward.npy", x[::-1])
    os.utime(site / "ward.npy", (1, 1))
    after = opened(site, cache(site), Role.SOURCE, world)
    same(read_folder(site, world, Role.SOURCE), after)
    assert not torch.equal(before.train.x.all(), after.train.x.all()) and files(site)
