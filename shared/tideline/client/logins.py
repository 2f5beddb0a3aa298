"""Keys that `tideline login` keeps for later commands: one file of this user, which nobody else may read."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlsplit

from tideline.core.errors import IdentityRefused, NotFound


@dataclass(frozen=True)
class Login:
    """A key for one coordinator, whose it is, and the certificate that vouches for the coordinator's; empty: none."""

    key: str
    name: str = ""
    role: str = ""
    ca: str = ""


def place() -> Path:
    """Where the keys lie: in $XDG_CONFIG_HOME, or in ~/.config."""
    chosen = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(chosen) if chosen.startswith("/") else Path("~/.config").expanduser()
    return base / "tideline" / "keys.toml"


def logins() -> dict[str, Login]:
    """The logins by address. Raises IdentityRefused for a file that others can read, or that cannot be read here."""
    path = place()
    try:
        with path.open("rb") as file:
            check_private(path, os.fstat(file.fileno()))
            found = tomllib.load(file)
        return {url: Login(**{k: str(v) for k, v in given.items()}) for url, given in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as cause:
        raise IdentityRefused(
            f"The keys in {path} cannot be read ({type(cause).__name__})", "Correct the file, or delete it and log in again"
        ) from None


def check_private(path: Path, facts: os.stat_result) -> None:
    """Raises IdentityRefused for a file that is not ours alone."""
    if facts.st_uid != os.geteuid():
        raise IdentityRefused(f"The keys in {path} belong to another user", "Delete the file, or set XDG_CONFIG_HOME")
    if facts.st_mode & 0o077:
        raise IdentityRefused(
            f"The keys in {path} can be read by others (mode {facts.st_mode & 0o777:04o})",
            f"chmod 600 {path}; if somebody may have read them, have the keys revoked and log in again",
        )


def keep(url: str, login: Login) -> None:
    """Keep a login, in place of the one for the same address."""
    change(lambda known: {**known, url: login})


def drop(url: str) -> None:
    """Forget the login for an address. Raises NotFound."""

    def without(known: Mapping[str, Login]) -> dict[str, Login]:
        if url not in known:
            kept = ", ".join(sorted(known)) or "none"
            raise NotFound(f"No key is kept for {url}", f"Keys are kept for: {kept}", path="url")
        return {at: login for at, login in known.items() if at != url}

    change(without)


def change(how: Callable[[Mapping[str, Login]], Mapping[str, Login]]) -> None:
    """Write the file anew, whole or not at all. Two commands at once take turns."""
    path = place()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with turn(path.with_suffix(".lock")):
        written(path, "\n".join(section(url, login) for url, login in sorted(how(logins()).items())))


@contextlib.contextmanager
def turn(path: Path) -> Iterator[None]:
    """Alone, as long as the block lasts."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def written(path: Path, text: str) -> None:
    """Write a file that only its owner may read."""
    with anew(path) as file:
        file.write(text)


@contextlib.contextmanager
def anew(path: Path) -> Iterator[TextIO]:
    """A file to write that only its owner may read. It takes its place once the block has ended well; else all is as it was."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def section(url: str, login: Login) -> str:
    """A login as TOML."""
    lines = [f"{name} = {quoted(value)}" for name, value in asdict(login).items() if value]
    return "\n".join([f"[{quoted(url)}]", *lines, ""])


def quoted(text: str) -> str:
    """A text as TOML has it: what JSON escapes, TOML escapes alike, but for one character more."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def address(url: str) -> str:
    """An address in the one form under which its login is kept. Raises nothing: what is no address has no login."""
    with contextlib.suppress(ValueError):
        there = urlsplit(url.rstrip("/"))
        return there._replace(scheme=there.scheme.lower(), netloc=there.netloc.lower()).geturl()
    return url


def as_told(login: Login) -> dict[str, Any]:
    """What may be shown of a login: not the key."""
    return {name: value for name, value in asdict(login).items() if name != "key"}
