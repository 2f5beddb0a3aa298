"""Wheels of a commit or of the working tree, built so that anybody who builds again gets the same bytes.

The builder is the one that the dev group of pyproject.toml names, and times in a wheel are the commit's own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILDER = "hatchling"
PACKAGES = ("shared/tideline", "server/tideline_server", "client_agent/tideline_agent", "protos/tideline_protos")


class Failed(Exception):
    """What cannot be done, and what to do about it."""

    def __init__(self, what: str, todo: str) -> None:
        super().__init__(what)
        self.what, self.todo = what, todo


@dataclass(frozen=True)
class Wheel:
    """A wheel that was built twice to the same bytes. builder: its name and version."""

    path: Path
    sha256: str
    builder: str


def git(repository: Path, *words: str, **more: str) -> str:
    """What git says. more: of its environment. Raises Failed with git's own words."""
    environment = os.environ | more
    done = subprocess.run(["git", *words], cwd=repository, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"git {words[0]} failed: {done.stderr.strip()}", f"See what `git {' '.join(words)}` says in {repository}")
    return done.stdout.strip()


def unpack(repository: Path, tree: str, into: Path) -> Path:
    """A commit's files in a folder. Raises Failed where the history lacks the commit."""
    done = subprocess.run(["git", "archive", "--format=tar", tree], cwd=repository, capture_output=True, check=False)
    if done.returncode:
        todo = "Fetch the whole history: git fetch --unshallow"
        raise Failed(f"The history in {repository} lacks {tree}: {done.stderr.decode(errors='replace').strip()}", todo)
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(into, filter="data")
    return into


def working_tree(repository: Path, into: Path) -> Path:
    """The files of the working tree that git tracks or would track."""
    names = git(repository, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in filter(None, names):
        if (repository / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(repository / name, into / name)
    return into


def builder() -> str:
    """Name and version of what builds. Raises Failed where it is missing."""
    try:
        return f"{BUILDER} {version(BUILDER)}"
    except PackageNotFoundError:
        raise Failed(f"{BUILDER} is not installed in {sys.prefix}", "Run make, which installs the dev group") from None


def build(source: Path, out: Path, epoch: int) -> Path:
    """The wheel of a folder. epoch: seconds since 1970 that stand in the wheel. Raises Failed."""
    builder()
    command = [sys.executable, "-m", BUILDER, "build", "--target", "wheel", "--directory", str(out)]
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch)}
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
    made = sorted(out.glob("*.whl"))
    if done.returncode or len(made) != 1:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["it says nothing"]
        todo = f"See all that it says: {' '.join(command[1:])}, in a checkout of the same files"
        raise Failed(f"The wheel cannot be built: {said[0][-500:]}", todo)
    return made[0]


def build_twice(repository: Path, tree: str, out: Path, epoch: int) -> Wheel:
    """The wheel of a commit or tree, built in two places. Raises Failed where their bytes differ, and leaves none then."""
    with folder() as here, folder() as there:
        made = [build(unpack(repository, tree, each / "source"), each / "out", epoch) for each in (here, there)]
        one, two = (digest(path) for path in made)
        if one != two:
            todo = "Find what puts a time, a path or an order into the wheel: compare the two with `unzip -v`"
            raise Failed(f"Two builds of {tree} differ: {one[:12]} and {two[:12]}", todo)
        out.mkdir(parents=True, exist_ok=True)
        return Wheel(Path(shutil.copy(made[0], out / made[0].name)), one, builder())


def digest(path: Path) -> str:
    """A file's SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for the time of the block."""
    with tempfile.TemporaryDirectory(prefix="tideline-wheel-") as name:
        yield Path(name)
