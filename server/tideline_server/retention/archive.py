"""The audit log's archive in a folder: files that are whole, on the disk, and never changed again."""

from __future__ import annotations

import errno
import os
import time
import uuid
from pathlib import Path

from tideline.archive.folder import sync
from tideline.core.errors import ConfigRefused, StorageFull
from tideline.engine.audit.archived import Span, spans_in

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
STALE_SECONDS = 86400.0  # after which a file that nobody finished is another's no more


class FolderArchive:
    """Files of one folder, which several coordinators may share. Only this user reads them."""

    def __init__(self, folder: Path) -> None:
        """Raises ConfigRefused for a folder that cannot be made or written to."""
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            probe = folder / temporary()
            probe.touch(0o600)
            probe.unlink()
        except OSError as error:
            what = f"--audit-archive {folder} cannot be written to: {error.strerror}"
            raise ConfigRefused(what, "Name a folder that this user may write to", path="audit_archive") from None

    def spans(self) -> tuple[Span, ...]:
        return spans_in(path.name for path in self.folder.iterdir())

    def read(self, span: Span) -> bytes:
        return (self.folder / span.name).read_bytes()

    def write(self, span: Span, content: bytes) -> None:
        self._sweep()
        made = self.folder / temporary()
        try:
            with open(made, "xb", opener=private) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            made.replace(self.folder / span.name)
        except OSError as error:
            made.unlink(missing_ok=True)
            if error.errno in FULL:
                todo = "Free disk space there; the entries stay in the database until then"
                raise StorageFull(f"No room for the audit log's archive in {self.folder}", todo) from error
            raise
        sync(self.folder)

    def bytes(self) -> int:
        """Of all its files."""
        return sum((self.folder / span.name).stat().st_size for span in self.spans())

    def _sweep(self) -> None:
        """Remove what killed coordinators did not finish."""
        for path in self.folder.glob(".audit-*.tmp"):
            if time.time() - path.stat().st_mtime > STALE_SECONDS:
                path.unlink(missing_ok=True)


def temporary() -> str:
    return f".audit-{uuid.uuid4()}.tmp"


def private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
