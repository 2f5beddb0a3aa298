"""Data folders that several tests use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.acceptance.harness import Net, net

SITES = {"a": "source", "b": "source", "c": "target"}
WORLD = {"inputs": [6], "classes": 3, "model": "mlp"}


def write_blobs(folder: Path, seed: int) -> Path:
    """Three Gaussian classes, shifted by site."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    y = np.arange(60) % 3
    x = rng.normal(size=(60, 6)) + 2 * np.eye(3, 6)[y] + 0.3 * seed
    np.savez(folder / "blobs.npz", x=x.astype(np.float32), y=y)
    return folder


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A data folder for each site."""
    home = tmp_path_factory.mktemp("data")
    return {name: write_blobs(home / name, seed) for seed, name in enumerate(SITES)}


@contextmanager
def federated(home: Path, data: dict[str, Path], *more: str) -> Iterator[Net]:
    """A coordinator and three agents that know the shipped methods. more: options of the agents."""
    with net(home) as made:
        made.coordinator()
        for name, role in SITES.items():
            made.agent(name, data[name], role, *more)
        for name in SITES:
            made.until(lambda name=name: "enrolled" in made.log(name), f"{name} to enrol")  # type: ignore[misc]
        yield made


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Path]) -> Iterator[Net]:
    """A coordinator and three agents that know the shipped methods."""
    with federated(tmp_path_factory.mktemp("net"), data) as made:
        yield made
