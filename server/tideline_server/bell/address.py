"""Where Redis is, with its password."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from tideline.core.errors import ConfigRefused
from tideline_server.settings import CoordinatorSettings


def redis_of(settings: CoordinatorSettings) -> str | None:
    """The URL of Redis, which may hold a password; none without one. Raises ConfigRefused."""
    if settings.redis_password_file is None:
        return settings.redis
    password = password_in(settings)
    try:
        parts = urlsplit(settings.redis or "")
        given, name, host = parts.password, parts.username or "", parts.netloc.rpartition("@")[2]
    except ValueError:
        return settings.redis  # malformed, as whoever connects will say
    if not host:
        raise ConfigRefused(
            "--redis-password-file is given, and no host of a Redis", "Give --redis redis://HOST:PORT too", path="redis"
        )
    if given is not None:
        todo = "Leave the password out of the URL, or do not name the file"
        raise ConfigRefused("Both --redis and --redis-password-file hold a password", todo, path="redis_password_file")
    return parts._replace(netloc=f"{name}:{quote(password, safe='')}@{host}").geturl()


def password_in(settings: CoordinatorSettings) -> str:
    """What the file says, in one line. Raises ConfigRefused."""
    file, todo = settings.redis_password_file, "Name a file with the password in one line"
    assert file is not None
    try:
        password = file.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as cause:
        why = f"--redis-password-file {file} cannot be read ({type(cause).__name__})"
        raise ConfigRefused(why, todo, path="redis_password_file") from None
    if not password or "\n" in password:
        raise ConfigRefused(f"--redis-password-file {file} is not one line", todo, path="redis_password_file")
    return password
