"""A coordinator whose parts are in a bucket: the bytes that a directory gives, killed or cut off, and silence about secrets."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.acceptance.conftest import SITES, WORLD, start_all
from tests.acceptance.harness import Net, net
from tests.acceptance.test_survival import at_the_gate, undisturbed
from tests.cli.world import tide
from tests.s3 import SECRET, Server
from tideline.engine.coordinator.part_store import MARKER_BYTES
from tideline_server.parts.s3 import LARGE

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("as_users_do")]
METHODS = "tests.acceptance.gated:METHODS"
FEDAVG: dict[str, Any] = {"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": SITES, "seed": 5, "reference": {}}
VECTOR = LARGE // 4 + 1  # elements: a part that goes to the bucket in pieces


def objects(server: Server, where: str) -> dict[str, int]:
    """The bytes of each part that lies at a URL, by digest."""
    bucket, _, prefix = where.removeprefix("s3://").partition("/")
    return {name.removeprefix(f"{prefix}/")[3:]: size for name, size in server.objects(bucket).items()}


def state_of(federation: Net, run: str) -> dict[str, int]:
    """The files of a completed run's final state, and the marker that says whose parts these are."""
    with federation.journal() as journal:
        marker = journal.marker()
    return dict(federation.client().get(f"/runs/{run}/files")["files"]) | {str(marker): MARKER_BYTES}


def told(federation: Net) -> str:
    """What every process said, and what everybody on this machine can see of the coordinator and its worker."""
    coordinator = psutil.Process(federation.running["coordinator"].pid)
    lines = [" ".join(process.cmdline()) for process in (coordinator, *coordinator.children(recursive=True))]
    assert any("tideline_server.worker" in line for line in lines)
    return "\n".join([*lines, *(federation.log(name) for name in federation.running)])


@pytest.mark.nightly(job="journeys")
def test_a_bucket_gives_the_same_bytes(tmp_path: Path, data: dict[str, Path], s3: Server, bucket: str) -> None:
    """A run ends with one digest; afterwards the bucket holds its final state and nothing else, and the home no parts."""
    ends = []
    for name, where in (("directory", None), ("bucket", bucket)):
        (tmp_path / name).mkdir()
        with net(tmp_path / name, parts=where) as federation:
            run = start_all(federation, data).run(FEDAVG)
            result = federation.completed(run)
            ends.append((result["state_digest"], result["clients"]))
            needed = state_of(federation, run)
            assert SECRET not in told(federation)
            if where is not None:
                federation.until(lambda needed=needed: objects(s3, bucket) == needed, "the bucket to hold what is needed")
    assert ends[0] == ends[1]
    home = tmp_path / "bucket"
    assert (tmp_path / "directory" / "coordinator" / "parts").is_dir()
    assert not (home / "coordinator" / "parts").exists()
    assert not [path for path in home.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


@pytest.mark.nightly(job="journeys")
def test_a_shared_directory_gives_the_same_bytes(tmp_path: Path, data: dict[str, Path]) -> None:
    """Parts in a directory elsewhere than in the home; only they stay there."""
    where = tmp_path / "shared"
    with net(tmp_path, METHODS, parts=str(where)) as federation:
        (tmp_path / "go").touch()
        run = at_the_gate(start_all(federation, data), tmp_path, size=VECTOR)
        federation.completed(run, undisturbed(data, size=VECTOR))
        needed = state_of(federation, run)
        federation.until(lambda: {path.name for path in where.rglob("*") if path.is_file()} == needed.keys(), "the tidying")
    assert not (federation.folder / "parts").exists()


@pytest.mark.nightly(job="journeys")
def test_a_coordinator_that_lost_its_disk_but_the_journal(tmp_path: Path, data: dict[str, Path], s3: Server, bucket: str) -> None:
    """Killed while three steps work, its cache gone: started again it finds every part in the bucket, and the run completes."""
    with net(tmp_path, METHODS, parts=bucket) as federation:
        run = at_the_gate(start_all(federation, data), tmp_path, size=VECTOR)
        federation.kill("coordinator")
        shutil.rmtree(federation.folder / "cache")
        federation.again("coordinator")
        federation.ready()
        (tmp_path / "go").touch()
        result = federation.ended(run)
        out = tmp_path / "state.safetensors"
        command = ["run", "export", run, "--state", "--out", str(out), "--home", str(federation.folder)]
        subprocess.run(
            [sys.executable, "-m", "tideline", *command], check=True, capture_output=True, env=federation.environment()
        )
    assert (result["status"], result["state_digest"]) == ("completed", undisturbed(data, size=VECTOR)), result["cause"]
    assert out.stat().st_size > 4 * VECTOR


@pytest.mark.nightly(job="journeys")
def test_a_store_that_goes_away_for_a_while(tmp_path: Path, data: dict[str, Path], s3: Server, bucket: str) -> None:
    """Replies wait at their sites until it is back; nobody dies, and the run ends as if nothing had been."""
    with net(tmp_path, METHODS, parts=bucket) as federation:
        run = at_the_gate(start_all(federation, data), tmp_path, size=VECTOR)
        s3.stop()
        try:
            (tmp_path / "go").touch()
            federation.until(lambda: all("There is no answer" in federation.log(name) for name in SITES), "the sites to be told")
            assert federation.result(run)["status"] == "running"
        finally:
            s3.start()
        federation.completed(run, undisturbed(data, size=VECTOR))
        assert all(process.poll() is None for process in federation.running.values())


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("s3://no-such-bucket/a", "There is no such bucket: s3://no-such-bucket/a (404 NoSuchBucket)"),
        ("gs://bucket/a", "--parts is 'gs://bucket/a': parts cannot be stored there"),
        ("/proc/parts", "Parts cannot be stored in /proc/parts"),
    ],
)
def test_a_place_that_cannot_be_used_is_refused(tmp_path: Path, s3: Server, where: str, words: str) -> None:
    """Two lines that say what, where and what to do, exit code 2, and no secret."""
    ended = tide("coordinator", "--home", tmp_path, "--parts", where, "--grpc-port", 0, "--http-port", 0)
    assert ended.exit_code == 2, ended.stderr
    assert f"Error: {words}" in ended.stderr and "What to do: " in ended.stderr
    assert len(ended.stderr.splitlines()) == 2
    assert SECRET not in ended.stdout + ended.stderr
