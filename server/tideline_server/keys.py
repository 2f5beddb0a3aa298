"""The admin keys of a coordinator: its own, in its home, and the one that replicas share."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from tideline.core.errors import ConfigRefused
from tideline.engine.coordinator.api_keys import hash_of
from tideline_server.settings import CoordinatorSettings

SHORTEST_KEY = 24  # characters of an admin key that a person chose


def admin_key(folder: Path) -> str:
    """The HTTP API's admin key, made at the first start."""
    return stored_secret(folder / "admin.key", 32)


def stored_secret(path: Path, nbytes: int) -> str:
    """Random text in a file that its owner alone can read, made if it is not there."""
    if not path.exists() or not path.read_text().strip():
        # Whole or not at all: a key that a full disk or a kill left empty would let everybody in.
        temporary = path.with_name(f"{path.name}.tmp")
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(nbytes))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    return path.read_text().strip()


def shared_key(settings: CoordinatorSettings) -> str | None:
    """The hash of the admin key that replicas share, if one is given. Raises ConfigRefused."""
    given = settings.admin_key
    if given is None and settings.admin_key_file is not None:
        try:
            given = settings.admin_key_file.expanduser().read_text(encoding="utf-8")
        except (OSError, ValueError) as cause:
            why = f"--admin-key-file {settings.admin_key_file} cannot be read ({type(cause).__name__})"
            raise ConfigRefused(why, "Name a file with a key in one line", path="admin_key_file") from None
    if given is None:
        return None
    key = given.strip()
    if len(key) < SHORTEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigRefused(
            f"The admin key that replicas share is not {SHORTEST_KEY} or more visible characters in one line",
            "Make one with: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'",
            path="admin_key_file",
        )
    return hash_of(key)
