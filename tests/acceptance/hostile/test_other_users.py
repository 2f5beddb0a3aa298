"""Another user of a machine on which a coordinator or an agent runs, in homes that were there before with wide modes."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.conftest import SITES, WORLD, start_all
from tests.acceptance.harness import Net, net

pytestmark = pytest.mark.processes
GIVEN = {"method": "feddadil", "preset": "tiny", "world": WORLD, "roster": SITES, "seed": 5, "reference": None}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Path]) -> Net:
    """A federation that has completed a run of sites with memories; its homes were made before, open to all."""
    with net(tmp_path_factory.mktemp("net")) as federation:
        federation.forks = False  # what a process starts itself has its umask
        homes = [federation.folder, *(federation.home / f"home-{name}" for name in SITES)]
        for home in homes:
            home.mkdir()
            home.chmod(0o755)
        (federation.folder / "coordinator.db").touch(0o644)
        start_all(federation, data)
        federation.completed(federation.run(GIVEN))
    return federation


def test_nothing_can_be_read_by_others(played: Net) -> None:
    homes = [played.folder, *(played.home / f"home-{name}" for name in SITES)]
    found = [path for home in homes for path in (home, *home.rglob("*"))]
    wide = [f"{path} {stat.S_IMODE(path.lstat().st_mode):04o}" for path in found if path.lstat().st_mode & 0o077]
    assert len(found) > 50 and wide == []


def test_what_a_site_exports_is_for_its_owner(played: Net, tmp_path: Path) -> None:
    """A model that its owner wants to give away is given away by its owner."""
    home = played.home / "home-c"
    (run,) = (each.name for each in (home / "runs").iterdir())
    out = tmp_path / "model.safetensors"
    command = [sys.executable, "-m", "tideline", "site", "export", "model", "--run", run, "--home", str(home)]
    subprocess.run([*command, "--out", str(out)], check=True, umask=0o022)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
