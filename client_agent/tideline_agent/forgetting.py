"""What an agent's home remembers of runs, and how it forgets them: only the site's owner decides that, for the models are his.

working/RUN   locked by the agent while it works for the run: nobody forgets it meanwhile
forgotten/    what is being deleted
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tideline.core.algorithm import Methods, load_methods, resolve
from tideline.core.errors import FederationError, Malformed, Refused
from tideline.core.run import RunId
from tideline_agent.vault import FolderVault

RUNS, WORKING, FORGOTTEN = "runs", "working", "forgotten"


@dataclass(frozen=True)
class Kept:
    """A run in a home: the bytes that it takes, when the newest was written, and whether its last exchange was answered."""

    run: RunId
    bytes: int
    last: float
    over: bool


def kept(home: Path, methods: str) -> dict[RunId, Kept]:
    """Every run of which there is something in the home."""
    known, vault = load_methods(methods), FolderVault(home / RUNS)
    folders = sorted(folder for folder in vault.folder.iterdir() if folder.is_dir())
    return {RunId(f.name): Kept(RunId(f.name), *taken(f), is_over(vault, RunId(f.name), known)) for f in folders}


def taken(folder: Path) -> tuple[int, float]:
    """The bytes of a run's files, and when the newest was written."""
    seen = [file.stat() for file in folder.rglob("*") if file.is_file()]
    return sum(each.st_size for each in seen), max((each.st_mtime for each in seen), default=folder.stat().st_mtime)


def is_over(vault: FolderVault, run: RunId, methods: Methods) -> bool:
    """Whether the run's last exchange was answered here. Of a method that is no longer known, nobody can say."""
    try:
        brief, head = vault.brief(run), vault.head(run)
        algorithm = resolve(methods, brief["method"])
        return head is not None and head.cursor >= len(algorithm.plan(algorithm.configure(brief["config"]))) - 1
    except (FederationError, KeyError):
        return False


def forget(home: Path, run: RunId) -> None:
    """A run's folder is gone from the vault; `clear` deletes it. Raises Refused while the agent works for it."""
    for name in (WORKING, FORGOTTEN):
        (home / name).mkdir(exist_ok=True)
    try:
        with held(home / WORKING / run, wait=False):
            FolderVault(home / RUNS).path(run).replace(home / FORGOTTEN / uuid.uuid4().hex)
    except BlockingIOError:
        raise Refused(f"The agent works for run {run} now", "Wait until it has answered, or have the run cancelled") from None


def clear(home: Path) -> None:
    """Delete what was forgotten, also what a command left that was killed."""
    shutil.rmtree(home / FORGOTTEN, onerror=passed_over)


def passed_over(what: Any, path: Any, info: Any) -> None:
    """What another has deleted by now is no error."""
    if not isinstance(info[1], FileNotFoundError):
        raise info[1]


@contextlib.contextmanager
def at_work(home: Path, run: RunId) -> Iterator[None]:
    """Nobody forgets the run as long as the block lasts. An odd name, and a full disk, are the order's own affair."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(Malformed, OSError):
            FolderVault(home / RUNS).path(run)
            (home / WORKING).mkdir(exist_ok=True)
            stack.enter_context(held(home / WORKING / run, wait=True))
        yield


@contextlib.contextmanager
def held(path: Path, wait: bool) -> Iterator[None]:
    """The only one to hold a lock file, which is gone afterwards. Raises BlockingIOError where one does not wait for another."""
    with locked(path, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB)):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def locked(path: Path, how: int) -> IO[str]:
    """The lock file, locked. Whoever held it before has unlinked it: then it is another file by now."""
    while True:
        file = path.open("w")
        try:
            fcntl.flock(file, how)
            if path.stat().st_ino == os.fstat(file.fileno()).st_ino:
                return file
        except FileNotFoundError:
            pass
        except BaseException:
            file.close()
            raise
        file.close()
