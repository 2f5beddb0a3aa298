"""Disks that fill up in mid-run: nothing acknowledged is lost, people see why nothing moves, and freed space mends it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import SITES, start_all
from tests.acceptance.harness import Net, net
from tests.acceptance.test_survival import at_the_gate, undisturbed

pytestmark = pytest.mark.processes
DISK = 32 << 20
BLOCK = 4096
VECTOR = 250_000  # elements: a message of a megabyte
MESSAGE = 4 * VECTOR
Disk = Callable[[Path], Path]


@pytest.fixture
def disk() -> Iterator[Disk]:
    """Makes a folder a small disk of its own."""
    mounted: list[Path] = []

    def mount(folder: Path) -> Path:
        if os.geteuid() != 0:
            pytest.skip("NOT TESTED: only root can mount a small disk to fill")
        folder.mkdir(parents=True)
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", folder], capture_output=True, text=True)
        if made.returncode:
            pytest.skip(f"NOT TESTED: no small disk can be mounted here: {made.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path, leave: int = 0) -> Path:
    """Take all of a disk's room but so many bytes."""
    ballast = folder / "ballast"
    with suppress(OSError), ballast.open("ab", buffering=0) as file:
        while True:
            file.write(bytes(BLOCK))
    if leave:
        os.truncate(ballast, ballast.stat().st_size - leave)
    return ballast


def events(federation: Net, run: str) -> list[dict[str, Any]]:
    return list(federation.client().events(run))


@pytest.mark.nightly(job="journeys")
@pytest.mark.parametrize("leave", [0, 3 * MESSAGE + MESSAGE // 2], ids=["nothing", "the replies, not the state"])
def test_a_coordinator_without_room_for_parts(tmp_path: Path, data: dict[str, Path], disk: Disk, leave: int) -> None:
    """Replies are kept at their sites, or the round stays open; the reason is told; the run goes on by itself."""
    with net(tmp_path, "tests.acceptance.gated:METHODS") as federation:
        parts = disk(federation.folder / "parts")
        run = at_the_gate(start_all(federation, data), tmp_path, size=VECTOR)
        ballast = fill(parts, leave)
        (tmp_path / "go").touch()
        if leave:
            federation.until(lambda: any(e["kind"] == "held_up" for e in events(federation, run)), "the run to be held up")
            (told,) = {e["data"]["why"] for e in events(federation, run) if e["kind"] == "held_up"}
            assert "No room for a part" in told
        else:
            federation.until(lambda: all("No room for a part" in federation.log(n) for n in SITES), "the sites to be told")
            assert "No room for a part" in federation.log("coordinator")
        assert federation.result(run)["status"] == "running"
        ballast.unlink()
        federation.completed(run, undisturbed(data, size=VECTOR))


@pytest.mark.nightly(job="journeys")
def test_a_site_without_room(tmp_path: Path, data: dict[str, Path], disk: Disk) -> None:
    """Its reply is a failure that says so, in the run's cause and in its own log; resumed, the run completes."""
    with net(tmp_path, "tests.acceptance.gated:METHODS") as federation:
        home = disk(tmp_path / "home-a")
        run = at_the_gate(start_all(federation, data), tmp_path, size=VECTOR)
        ballast = fill(home)
        (tmp_path / "go").touch()
        result = federation.ended(run)
        assert result["status"] == "stalled" and "a: No room for a part" in result["cause"], result["cause"]
        assert "No room for a part" in federation.log("a")
        ballast.unlink()
        federation.client().post(f"/runs/{run}/resume", {})
        result = federation.completed(run, undisturbed(data, size=VECTOR))


@pytest.mark.nightly(job="journeys")
def test_a_site_without_room_for_its_head(tmp_path: Path, data: dict[str, Path], disk: Disk) -> None:
    """Where the reply fits and its record does not, the step counts as not done; resumed, it is done once more."""
    with net(tmp_path, "tests.acceptance.gated:METHODS") as federation:
        home = disk(tmp_path / "home-a")
        run = at_the_gate(start_all(federation, data), tmp_path)
        ballast = fill(home, leave=2 * BLOCK)  # memory and message are a block each, the head is a third
        (tmp_path / "go").touch()
        result = federation.ended(run)
        assert result["status"] == "stalled" and "a: No room for a part" in result["cause"], result["cause"]
        ballast.unlink()
        federation.client().post(f"/runs/{run}/resume", {})
        result = federation.completed(run, undisturbed(data))


@pytest.mark.nightly(job="journeys")
def test_a_journal_without_room(tmp_path: Path, data: dict[str, Path], disk: Disk) -> None:
    """Nothing is acknowledged that is not written; agents wait and live; the run goes on by itself."""
    with net(tmp_path, "tests.acceptance.gated:METHODS") as federation:
        home = disk(federation.folder)
        (tmp_path / "parts").mkdir()
        (home / "parts").symlink_to(tmp_path / "parts")
        run = at_the_gate(start_all(federation, data), tmp_path)
        for _ in range(2):  # what the log of writes holds already is room too
            with closing(sqlite3.connect(home / "coordinator.db")) as beside:
                beside.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            ballast = fill(home)
        (tmp_path / "go").touch()
        federation.until(lambda: all("No room in the store" in federation.log(n) for n in SITES), "the sites to be told")
        assert "No room in the store" in federation.log("coordinator")
        assert all(federation.running[name].poll() is None for name in ("coordinator", *SITES))
        assert federation.result(run)["status"] == "running"
        ballast.unlink()
        federation.completed(run, undisturbed(data))
