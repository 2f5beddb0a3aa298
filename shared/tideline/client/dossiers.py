"""Fetch a run's dossier, and who signs it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from tideline.client.http import DOSSIER_TIMEOUT, Client
from tideline.client.output import check_out, clean
from tideline.core.errors import ConfigRefused

SUFFIX = ".zip"


class SignerLine(TypedDict):
    """The key that signs dossiers. introduced: when the audit log was told of it."""

    fingerprint: str
    pem: str
    introduced: float | None
    entry: int | None


def check_room(out: Path, force: bool) -> None:
    """Raises ConfigRefused for a file that cannot be written, or is there already."""
    check_out(out, SUFFIX)
    if out.is_dir() or (out.exists() and not force):
        what = f"--out {clean(str(out))} is {'a folder' if out.is_dir() else 'there already'}"
        raise ConfigRefused(what, "Name another file" + ("" if out.is_dir() else ", or replace it with --force"), path="--out")


def save(client: Client, run: str, out: Path, force: bool, check: Callable[[Path], object]) -> int:
    """Fetch a run's dossier into a file that only you can read, once it was checked; its bytes. Else there is no file."""
    check_room(out, force)
    temporary = out.with_name(f".{out.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for piece in client.download(f"/runs/{run}/dossier", DOSSIER_TIMEOUT):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        check(temporary)
        check_room(out, force)  # somebody may have made it meanwhile
        nbytes = temporary.stat().st_size
        temporary.replace(out)
        return nbytes
    finally:
        temporary.unlink(missing_ok=True)
