"""The password of Redis: from a file, in no URL that people write, and refused where it is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.redis import Redis, running
from tests.server.loops import LONG, on_a_loop
from tideline.cli.serving import coordinator_settings
from tideline.core.errors import ConfigRefused
from tideline_server.bell import RedisBell, RedisCounts, redis_of
from tideline_server.settings import CoordinatorSettings

PASSWORD = "a/b@c:d%2F#?"  # what a URL would read otherwise


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Redis]:
    """A Redis that asks for it."""
    with running(tmp_path, PASSWORD) as made:
        yield made


def address(folder: Path, url: str | None, password: str) -> str | None:
    """What a coordinator calls, with the password in a file."""
    file = folder / "password"
    file.write_text(password, encoding="utf-8")
    return redis_of(CoordinatorSettings(redis=url, redis_password_file=file))


async def heard(url: str) -> bool:
    """Whether a bell at an address comes to be connected; it polls until then, or until it is refused."""
    bell = RedisBell(asyncio.get_running_loop(), url, 0.01)
    bell.start()
    with structlog.testing.capture_logs() as lines:
        async with asyncio.timeout(LONG):
            while not bell.connected and not lines:
                await asyncio.sleep(0)
    await bell.close()
    assert bell.connected or "password" in lines[0]["reason"].lower() or "auth" in lines[0]["reason"].lower()
    return bool(bell.connected)


@on_a_loop
async def test_the_right_one_opens_and_others_do_not(server: Redis, tmp_path: Path) -> None:
    """The bell and the counts use it; a wrong one, or none, is told as what it is, and counts go on in this process."""
    right, wrong = address(tmp_path, server.url, f"{PASSWORD}\n"), address(tmp_path, server.url, "wrong")
    assert right is not None and wrong is not None
    assert [await heard(url) for url in (right, wrong, server.url)] == [True, False, False]
    there, away = RedisCounts(right, LONG), RedisCounts(wrong, LONG)
    assert await there.take("ann", 1, 1e9) == 0 < await there.take("ann", 1, 1e9)
    assert await away.take("ann", 1, 1e9) == 0
    await there.close()
    await away.close()


def test_the_rest_of_the_address_stays(tmp_path: Path) -> None:
    """User, port, database and query."""
    assert address(tmp_path, "rediss://ann@[::1]:1/2?protocol=3", "a b") == "rediss://ann:a%20b@[::1]:1/2?protocol=3"
    assert redis_of(CoordinatorSettings()) is None
    assert redis_of(CoordinatorSettings(redis="redis://:0ld@here")) == "redis://:0ld@here"


@pytest.mark.parametrize(
    ("url", "password", "why"),
    [
        ("redis://:0ld@here", "n3w", "Both --redis and --redis-password-file hold a password"),
        (None, "n3w", "no host of a Redis"),
        ("redis://here", "", "is not one line"),
        ("redis://here", "one\ntwo", "is not one line"),
    ],
)
def test_what_cannot_be_meant_is_refused(url: str | None, password: str, why: str, tmp_path: Path) -> None:
    """Before anything starts, and without the password in the words."""
    with pytest.raises(ConfigRefused, match=why) as refused:
        address(tmp_path, url, password)
    assert "n3w" not in str(refused.value) and "0ld" not in str(refused.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """Its name is said."""
    with pytest.raises(ConfigRefused, match="none cannot be read"):
        redis_of(CoordinatorSettings(redis="redis://here", redis_password_file=tmp_path / "none"))


def test_an_empty_variable_names_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where containers take a certificate or a password away again; other variables say what they say."""
    for name in ("REDIS_PASSWORD_FILE", "TLS_CERT", "TLS_KEY"):
        monkeypatch.setenv(f"TIDELINE_{name}", "")
    monkeypatch.setenv("TIDELINE_TLS_CLIENT_CA", "ca.pem")
    made = coordinator_settings({})
    assert (made.redis_password_file, made.tls_cert, made.tls_key, made.tls_client_ca) == (None, None, None, Path("ca.pem"))
