"""Sign-in with real processes: a coordinator, the command line, and a provider that comes and goes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.harness import COORDINATOR, Net
from tests.oidc.provider import CLIENT, Provider
from tideline_server.main import WallClock

pytestmark = pytest.mark.processes


@contextlib.contextmanager
def closing_net(net: Net) -> Iterator[None]:
    try:
        yield
    finally:
        net.stop()


def tide(home: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """A command of a user without a login."""
    environment = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": ""}
    command = [sys.executable, "-m", "tideline", *args]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_provider_that_comes_and_goes(tmp_path: Path) -> None:
    """A user signs in, and goes on while it is away, until a coordinator starts anew, which it does without it."""
    net = Net(tmp_path / "net")
    net.home.mkdir()
    with closing_net(net), Provider(WallClock()).serving() as provider:
        provider.interval, provider.refusals = 0.0, []
        options = ("--oidc-issuer", provider.issuer, "--oidc-client-id", CLIENT, "--oidc-grant", "cardio-ops=operator")
        net.coordinator(*options)
        url = net.client().base_url
        told = tide(tmp_path, "login", "--oidc", "--url", url)
        assert told.returncode == 0, told.stderr
        assert f"alice <{provider.issuer}#42>, operator in the project default" in told.stdout
        for path in ("/.well-known/openid-configuration", "/certs", "/token"):
            provider.fault[path] = lambda handler: handler.send({}, 503)
        assert tide(tmp_path, "run", "list", "--url", url).returncode == 0
        net.kill(COORDINATOR)
        net.coordinator(*options)
        away = tide(tmp_path, "run", "list", "--url", url)
        assert away.returncode == 3 and "API keys work without it" in away.stderr
        assert net.client().get("/runs") == []


def test_wrong_options_end_the_start(tmp_path: Path) -> None:
    told = tide(tmp_path, "coordinator", "--home", str(tmp_path / "home"), "--oidc-issuer", "http://idp.example")
    assert told.returncode == 2 and "without TLS" in told.stderr
