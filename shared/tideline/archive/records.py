"""Numbered records that are only added to, beside the parts: small, safe from a power cut, and never written over."""

from __future__ import annotations

import errno
import os
import re
import uuid
from pathlib import Path
from typing import Protocol

from tideline.archive.folder import room, sync

FOLDER = "witness"  # beneath the store of parts
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)  # of file systems that have no links
NAME = re.compile(r"(\d{12})\.json")


class Records(Protocol):
    """The records of one chain, counted from 1. A number may be missing. Raises Unreachable and StorageFull."""

    def last(self) -> int:
        """The highest number; 0 where there is no record."""

    def read(self, number: int) -> bytes | None: ...

    def write(self, number: int, content: bytes) -> bool:
        """Write a record, safe from a power cut. False if another has its number, which stays."""


def name_of(number: int) -> str:
    return f"{number:012d}.json"


class MemoryRecords:
    """Records in a dictionary."""

    def __init__(self) -> None:
        self.held: dict[int, bytes] = {}

    def last(self) -> int:
        return max(self.held, default=0)

    def read(self, number: int) -> bytes | None:
        return self.held.get(number)

    def write(self, number: int, content: bytes) -> bool:
        return self.held.setdefault(number, content) == content


class FolderRecords:
    """Records as files of a folder. A file gets its name by a link, which never replaces one that is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def last(self) -> int:
        if not self.folder.is_dir():
            return 0
        return max((int(found[1]) for path in self.folder.iterdir() if (found := NAME.fullmatch(path.name))), default=0)

    def read(self, number: int) -> bytes | None:
        try:
            return (self.folder / name_of(number)).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, number: int, content: bytes) -> bool:
        self._make()
        temporary = self.folder / f"{uuid.uuid4()}.tmp"
        with room(temporary), temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            self._name(temporary, self.folder / name_of(number))
        finally:
            temporary.unlink(missing_ok=True)
            sync(self.folder)
        return self.read(number) == content

    def _name(self, temporary: Path, path: Path) -> None:
        """Give a file its name, unless one has it."""
        try:
            os.link(temporary, path)
        except FileExistsError:
            return
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            if not path.exists():  # who write one at once share a database, and so write the same
                temporary.replace(path)

    def _make(self) -> None:
        with room(self.folder / "record"):
            self.folder.mkdir(parents=True, exist_ok=True)
        sync(self.folder.parent)
        sync(self.folder.parent.parent)
