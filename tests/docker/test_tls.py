"""TLS at both doors: tokens tell agents whom to trust, and nothing passes without."""

from __future__ import annotations

import pytest

from tests.docker.engine import Containers

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1500)]
OVERLAYS = ("tls",)
SHAKE = (
    "import socket, ssl\n"
    "context = ssl.create_default_context(cafile='/authority/ca.pem')\n"
    "context.set_alpn_protocols(['h2'])\n"
    "for port in (7800, 7880):\n"
    "    with context.wrap_socket(socket.create_connection(('federation', port)), server_hostname='federation') as line:\n"
    "        print(line.version())"
)
PLAIN = "import urllib.request; urllib.request.urlopen('http://federation:7880/health', timeout=5)"


def test_the_demonstration_over_tls(federation: Containers) -> None:
    """Enrolled by tokens that carry the authority's fingerprint; no agent was given a certificate."""
    assert federation.ended("authority") == 0
    assert federation.ended("demo") == 0, federation.log("demo")
    mounts = {mount["Destination"] for mount in federation.facts("site-1")["Mounts"]}
    assert "/authority" not in mounts and "--insecure" not in federation.log("site-1")


def test_nothing_passes_without(federation: Containers) -> None:
    """Both doors shake hands as `federation`, and answer nobody who does not."""
    assert set(federation.inside("coordinator", "python", "-c", SHAKE).split()) <= {"TLSv1.3", "TLSv1.2"}
    with pytest.raises(AssertionError, match=r"RemoteDisconnected|ConnectionResetError"):
        federation.inside("coordinator", "python", "-c", PLAIN)
