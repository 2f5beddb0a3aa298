"""What a site writes down before it answers, so that a restart, or a coordinator that asks again, gets no second answer."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from tideline.core.errors import FederationError, StorageFull
from tideline.secure.masks import Part

Key = tuple[Part, ...]  # of which the second names the run
OVER = ""  # no other note is empty


class NotebookBroken(FederationError):
    """A note cannot be read, so what the site has answered before is not known."""


class Notebook(Protocol):
    """Notes by key, written once. What `note` returns is on the disk, and what it raised for is not answered."""

    def note(self, key: Key, what: str) -> str:
        """Write something down, unless there is a note of that key. The note that stands."""

    def noted(self, key: Key) -> str | None:
        """The note that stands; None where there is none."""

    def forget(self, key: Key) -> None:
        """Have no note of that key any more: for secrets that are of no use, never for what was answered."""

    def close(self, run: str) -> None:
        """Have one note for all of a run that asks for nothing more: from then on each of its keys has the note OVER."""


class MemoryNotebook:
    """Notes in a dictionary, for simulations and tests."""

    def __init__(self) -> None:
        self._notes: dict[Key, str] = {}
        self._over = set[Part]()
        self._lock = threading.Lock()

    def note(self, key: Key, what: str) -> str:
        with self._lock:
            return OVER if key[1] in self._over else self._notes.setdefault(key, what)

    def noted(self, key: Key) -> str | None:
        return OVER if key[1] in self._over else self._notes.get(key)

    def forget(self, key: Key) -> None:
        with self._lock:
            self._notes.pop(key, None)

    def close(self, run: str) -> None:
        with self._lock:
            self._over.add(run)
            self._notes = {key: what for key, what in self._notes.items() if key[1] != run}


class FolderNotebook:
    """Notes as files of a folder for each run, named by their keys' hashes; of a run that is over one file is left. A note that
    was written survives a power cut.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with room(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def note(self, key: Key, what: str) -> str:
        if self._over(key[1]).exists():
            return OVER
        path = self._path(key)
        with room(self._folder):
            path.parent.mkdir(exist_ok=True)
        self._write(path, json.dumps({"key": list(key), "what": what}))
        standing = self.noted(key)
        if standing is None:
            raise broken(path, "it is gone")
        return standing

    def noted(self, key: Key) -> str | None:
        if self._over(key[1]).exists():
            return OVER
        path = self._path(key)
        try:
            read = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as cause:
            raise broken(path, str(cause)) from None
        if not isinstance(read, dict) or read.get("key") != list(key) or not isinstance(read.get("what"), str):
            raise broken(path, "it is of another key, or not whole")
        return str(read["what"])

    def forget(self, key: Key) -> None:
        with room(self._folder):
            self._path(key).unlink(missing_ok=True)

    def close(self, run: str) -> None:
        self._write(self._over(run), json.dumps({"run": run}))
        shutil.rmtree(self._of_run(run), ignore_errors=True)

    def _write(self, path: Path, text: str) -> None:
        """Have a file under a name, unless there is one."""
        new = path.with_name(f"new.{secrets.token_hex(8)}")
        with room(self._folder):
            try:
                with new.open("x") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                with suppress(FileExistsError):  # another note stands
                    os.link(new, path)
            finally:
                new.unlink(missing_ok=True)
            sync_folder(path.parent)
            sync_folder(self._folder)

    def _path(self, key: Key) -> Path:
        return self._of_run(key[1]) / hashed(key)

    def _of_run(self, run: Part) -> Path:
        return self._folder / hashed(("run", run))

    def _over(self, run: Part) -> Path:
        return self._folder / f"{hashed(('run', run))}.over"


def hashed(parts: Key) -> str:
    return sha256(json.dumps(parts).encode()).hexdigest()


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def room(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as cause:
        raise StorageFull(
            f"Nothing can be written to {folder}: {cause.strerror}", "Make room, or let the agent write there"
        ) from None


def broken(path: Path, why: str) -> NotebookBroken:
    what = f"The note {path} of what this site has answered cannot be used: {why}"
    return NotebookBroken(what, "Leave the run with this site: nobody can say whether it would answer a second time")
