"""A cache holds rows of any shape and type, and they are the rows without one, to the bit."""

from __future__ import annotations

import os
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.learning.test_cache import cache, dtypes, files, opened, same
from tideline.core.asked.world import Kind, World
from tideline.core.run import Role
from tideline.learning.cache.cached_rows import CachedRows
from tideline.learning.formats.folder import read_folder
from tideline.learning.loading.ahead import in_parts

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
