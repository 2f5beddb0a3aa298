"""The admin keys of a coordinator: its own, in its home, and the one that replicas share."""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Iterator
from pathlib import Path

import structlog

from tideline.core.errors import ConfigRefused
from tideline.engine.coordinator.api_keys import hash_of
from tideline_server.settings import CoordinatorSettings

log = structlog.get_logger()
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
    return None if given is None else hash_of(checked(given))


def checked(given: str) -> str:
    """A key that replicas share. Raises ConfigRefused for one that can be guessed."""
    key = given.strip()
    if len(key) < SHORTEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigRefused(
            f"The admin key that replicas share is not {SHORTEST_KEY} or more visible characters in one line",
            "Make one with: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'",
            path="admin_key_file",
        )
    return key


class AdminKeys(Collection[str]):
    """The hashes of the admin keys as their files have them now: a file that is replaced counts from the next call on.

    One that is gone, or holds no key, changes nothing until the coordinator starts again; the log says so.
    """

    def __init__(self, settings: CoordinatorSettings) -> None:
        self._own, self._shared = settings.folder / "admin.key", settings.admin_key_file
        if settings.admin_key is not None or self._shared is None:
            self._shared = None
        else:
            self._shared = self._shared.expanduser()
        self.own, self.shared = hash_of(admin_key(settings.folder)), shared_key(settings)
        self._seen = self._stamps()

    def __iter__(self) -> Iterator[str]:
        stamps = self._stamps()
        if stamps != self._seen:
            self._seen = stamps
            self._reload()
        return iter([each for each in (self.own, self.shared) if each is not None])

    def __len__(self) -> int:
        return 1 if self.shared is None else 2

    def __contains__(self, hashed: object) -> bool:
        return any(hashed == each for each in self)

    def _stamps(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(map(stamp_of, (self._own, self._shared)))

    def _reload(self) -> None:
        try:
            own = checked(self._own.read_text(encoding="utf-8"))
            shared = None if self._shared is None else checked(self._shared.read_text(encoding="utf-8"))
        except (OSError, ValueError, ConfigRefused) as error:
            log.warning("admin_key_not_read", reason=type(error).__name__)
            return
        self.own = hash_of(own)
        self.shared = self.shared if shared is None else hash_of(shared)
        log.info("admin_key_changed")


def stamp_of(path: Path | None) -> tuple[int, int] | None:
    """What changes with a file; None where there is none."""
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_ino)
