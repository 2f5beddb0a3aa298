"""Agents beside folders of images, arrays and tables train one model, and end where a simulation ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.acceptance.harness import net
from tests.learning.images_on_disk import save
from tideline.algorithms import METHODS
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.learning.formats.folder import read_folder
from tideline.learning.formats.inspection import inspect

AT_NIGHT = pytest.mark.nightly(job="journeys")

pytestmark = pytest.mark.processes
NAMES = ("bars", "dots", "rings")
IMAGES = {"inputs": [1, 8, 8], "classes": 3, "model": "lenet", "class_names": NAMES}
TABLES = {"inputs": [4], "classes": 3, "model": "mlp", "class_names": NAMES}
PER_CLASS = 20


def drawn(kind: int, rng: np.random.Generator, side: int = 8) -> np.ndarray:
    """A noisy image (side, side) of one of three kinds."""
    rows, columns = np.indices((side, side))
    shapes = (columns % 4 < 2, (rows % 4 < 2) & (columns % 4 < 2), np.hypot(rows - side / 2, columns - side / 2) < side / 3)
    return np.clip(200 * shapes[kind] + rng.integers(0, 50, (side, side)), 0, 255).astype(np.uint8)


def image_site(folder: Path, seed: int, kinds: tuple[int, ...] = (0, 1, 2), side: int = 8) -> Path:
    """A folder of PNG files, a folder for each class that the site has."""
    rng = np.random.default_rng(seed)
    for kind in kinds:
        for i in range(PER_CLASS):
            save(folder / "camera" / NAMES[kind] / f"{i:03}.png", drawn(kind, rng, side))
    return folder


def array_site(folder: Path, seed: int) -> Path:
    """The same kinds of images in one file."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    y = np.arange(3 * PER_CLASS) % 3
    np.savez(folder / "scans.npz", x=np.stack([drawn(int(kind), rng) for kind in y]), y=y)
    return folder


def columns(seed: int) -> dict[str, Any]:
    """Four features around a corner for each class, and the classes by name."""
    rng = np.random.default_rng(seed)
    y = np.arange(3 * PER_CLASS) % 3
    x = rng.normal(size=(len(y), 4)) + 4 * np.eye(3, 4)[y]
    return {**{f"f{i}": x[:, i].tolist() for i in range(4)}, "diagnosis": [NAMES[i] for i in y]}


def csv_site(folder: Path, seed: int) -> Path:
    """A .csv file with a column that is no feature."""
    folder.mkdir(parents=True)
    table = {"patient": [f"p{i}" for i in range(3 * PER_CLASS)], **columns(seed)}
    lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    (folder / "ward.csv").write_text("\n".join(lines))
    (folder / "transforms.toml").write_text('[ward]\nlabel = "diagnosis"\ndrop = ["patient"]\n')
    return folder


def parquet_site(folder: Path, seed: int) -> Path:
    folder.mkdir(parents=True)
    pq.write_table(pa.table(columns(seed)), folder / "ward.parquet")
    (folder / "transforms.toml").write_text('[ward]\nlabel = "diagnosis"\n')
    return folder


def experiment(world: Mapping[str, Any], sites: Mapping[str, Path]) -> dict[str, Any]:
    config = {"rounds": 12, "rate": 0.05, "epochs": 2}
    return {"method": "fedavg", "config": config, "world": dict(world), "roster": dict.fromkeys(sites, "source"), "seed": 3}


def simulated(given: dict[str, Any], sites: Mapping[str, Path]) -> str:
    """The digest of the same run in this process."""
    there = Federation(METHODS, {n: SimSite(lambda w, r, n=n: read_folder(sites[n], w, r)) for n in sites})
    return str(there.run(there.start(given))["state_digest"])


def trained(home: Path, world: Mapping[str, Any], sites: Mapping[str, Path]) -> tuple[dict[str, Any], dict[str, str]]:
    """A run of real processes; its result and the agents' logs."""
    with net(home) as there:
        there.coordinator()
        for name, folder in sites.items():
            there.agent(name, folder)
        result = there.ended(there.run(experiment(world, sites)))
        return result, {name: there.log(name) for name in sites}


@pytest.mark.parametrize(
    ("world", "make"),
    [
        pytest.param(
            IMAGES,
            lambda at: {"a": image_site(at / "a", 1), "b": image_site(at / "b", 2, (0, 2), 12), "c": array_site(at / "c", 3)},
            marks=AT_NIGHT,
            id="images",
        ),
        pytest.param(
            TABLES, lambda at: {"a": csv_site(at / "a", 1), "b": parquet_site(at / "b", 2)}, marks=AT_NIGHT, id="tables"
        ),
    ],
)
def test_sites_of_different_kinds_train_together(
    tmp_path: Path, world: dict[str, Any], make: Callable[[Path], dict[str, Path]]
) -> None:
    """Every site learns to tell the classes, also one that lacks a class; the bytes are those of a simulation."""
    sites = make(tmp_path / "data")
    assert all(inspect(folder, None, None).usable for folder in sites.values())
    result, logs = trained(tmp_path, world, sites)
    assert result["status"] == "completed", (result["cause"], logs)
    assert result["state_digest"] == simulated(experiment(world, sites), sites)
    assert all(client["accuracy"] > 0.9 for client in result["clients"]), result["clients"]


@pytest.mark.nightly(job="journeys")
def test_names_of_files_stay_at_the_site(tmp_path: Path) -> None:
    """A damaged image stalls the run: the coordinator is told how many, the site's own log says which."""
    sites = {"a": image_site(tmp_path / "data" / "a", 1), "b": array_site(tmp_path / "data" / "b", 2)}
    (sites["a"] / "camera" / "dots" / "anna-smith.png").write_bytes(b"x")
    with net(tmp_path) as there:
        there.coordinator()
        for name, folder in sites.items():
            there.agent(name, folder)
        run = there.run(experiment(IMAGES, sites))
        result = there.ended(run)
        assert result["status"] == "stalled" and "1 of 61 images cannot be read" in result["cause"]
        assert "anna" not in str(result) and "anna-smith.png" in there.log("a")
        (sites["a"] / "transforms.toml").write_text('[camera]\nunreadable = "skip"\n')
        there.client().post(f"/runs/{run}/resume", {})
        there.completed(run)
        assert "1 of 61 images cannot be read and are left out" in there.log("a")
