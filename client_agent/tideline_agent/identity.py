"""An agent's home: one process at a time, and a credential that only its owner can read."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from tideline.core.errors import IdentityRefused


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Two agents on one home would answer for each other. Raises IdentityRefused."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise IdentityRefused(
                f"Another agent runs with the home {folder}", "Stop it, or choose another --name or --home"
            ) from None
        yield


def credential(folder: Path) -> str:
    """The agent's secret, made before it enrols, so that a killed agent starts again with the same command."""
    path = folder / "credential"
    if not path.exists():
        temporary = folder / "credential.tmp"
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    return path.read_text().strip()
