"""Logins that `tideline login` saves for later commands: one file, which only its owner may read."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

from tideline.core.errors import IdentityRefused, NotFound


@dataclass(frozen=True)
class Login:
    """An API key for one coordinator, its name and role, the CA certificate to trust, and a project; empty: none.

    Of a user who signed in with a provider the key is a token: issuer and client are with whom, refresh is what renews it,
    expires when it ends (seconds since the epoch), and token of which of the provider's kinds it is.
    """

    key: str
    name: str = ""
    role: str = ""
    ca: str = ""
    project: str = ""
    issuer: str = ""
    client: str = ""
    refresh: str = field(default="", repr=False)
    expires: str = ""
    token: str = ""


def file_of_logins() -> Path:
    """The file of the logins: in $XDG_CONFIG_HOME, or in ~/.config."""
    chosen = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(chosen) if chosen.startswith("/") else Path("~/.config").expanduser()
    return base / "tideline" / "keys.toml"


def logins() -> dict[str, Login]:
    """The logins by address. Raises IdentityRefused for a file that others can read, or that cannot be read here."""
    path = file_of_logins()
    try:
        with path.open("rb") as file:
            check_private(path, os.fstat(file.fileno()))
            sections = tomllib.load(file)
        return {url: Login(**{k: str(v) for k, v in given.items()}) for url, given in sections.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as cause:
        what = f"The keys in {path} cannot be read ({type(cause).__name__})"
        raise IdentityRefused(what, "Correct the file, or delete it and log in again") from None


def check_private(path: Path, facts: os.stat_result) -> None:
    """Raises IdentityRefused for a file that others own or can read."""
    if facts.st_uid != os.geteuid():
        raise IdentityRefused(f"The keys in {path} belong to another user", "Delete the file, or set XDG_CONFIG_HOME")
    if facts.st_mode & 0o077:
        what = f"The keys in {path} can be read by others (mode {facts.st_mode & 0o777:04o})"
        raise IdentityRefused(what, f"chmod 600 {path}; if somebody may have read them, revoke the keys and log in again")


def save(url: str, login: Login) -> None:
    """Save a login, in place of the one for the same address."""
    change(lambda known: {**known, url: login})


def drop(url: str) -> None:
    """Delete the login for an address. Raises NotFound."""

    def without(known: Mapping[str, Login]) -> dict[str, Login]:
        if url not in known:
            saved = ", ".join(sorted(known)) or "none"
            raise NotFound(f"No key is saved for {url}", f"Keys are saved for: {saved}", path="url")
        return {at: login for at, login in known.items() if at != url}

    change(without)


def change(how: Callable[[Mapping[str, Login]], Mapping[str, Login]]) -> None:
    """Write the file again, whole or not at all. Two commands at once take turns."""
    path = file_of_logins()
    with locked(path):
        write_private(path, "\n".join(section(url, login) for url, login in sorted(how(logins()).items())))


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_private(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file, whole or not at all, that only its owner may read, or those whom `mode` allows."""
    with new_private(path, mode) as file:
        file.write(text)


@contextlib.contextmanager
def new_private(path: Path, mode: int = 0o600) -> Iterator[TextIO]:
    """A file to write that only its owner may read. It replaces the old one if the block ends without an error."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
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
    lines = [f"{name} = {quoted(value)}" for name, value in asdict(login).items() if value]
    return "\n".join([f"[{quoted(url)}]", *lines, ""])


def quoted(text: str) -> str:
    """A TOML string. TOML has the escapes of JSON, and one character more to escape."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def address(url: str) -> str:
    """A URL in the one form under which its login is saved. What is not a URL stays as it is."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url.rstrip("/"))
        return parts._replace(scheme=parts.scheme.lower(), netloc=parts.netloc.lower()).geturl()
    return url
