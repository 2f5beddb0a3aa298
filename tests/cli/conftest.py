"""What the tests of the command line share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.world import Coordinator, make_data
from tests.logs import own_log
from tideline.learning.datasets import digits

OURS = ("HOME", "DATABASE", "URL", "API_KEY", "TOKEN", "CA")
NAMES = (*(f"TIDELINE_{word}" for word in OURS), "XDG_CONFIG_HOME")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody's own settings reach the commands."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture(autouse=True)
def own() -> Iterator[None]:
    """The log of the tests is as it was after each."""
    with own_log():
        logging.root.handlers = []
        yield


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two sites' folders of few digits."""
    folder = tmp_path_factory.mktemp("data")
    for name, domain in (("anna", "mnist"), ("bert", "usps")):
        digits.write_site(folder / name, domain, rows=40)
    return {name: folder / name for name in ("anna", "bert")}


@pytest.fixture
def there(tmp_path: Path, data: dict[str, Path]) -> Iterator[Coordinator]:
    """A coordinator behind its door."""
    with Coordinator(tmp_path / "home", data).open() as opened:
        yield opened


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A place with three domains of few features."""
    make_data(tmp_path / "data")
    return tmp_path
