"""TLS at both ports, of both replicas: tokens tell agents whom to trust, Prometheus is let in, and nothing passes without."""

from __future__ import annotations

import pytest

from tests.docker.engine import Containers, docker

pytestmark = [pytest.mark.timeout(1500)]
OVERLAYS = ("replicas", "metrics", "open")
SETTINGS = {"FEDERATION_HOST": "127.0.0.1", "GRPC_PORT": "27800"}
SERVICES = ("demo", "coordinator-2", "prometheus")  # all but Grafana
BOTH = ("coordinator", "coordinator-2")
SHAKE = (
    "import socket, ssl\n"
    "context = ssl.create_default_context(cafile='/trust/ca.pem')\n"
    "context.set_alpn_protocols(['h2'])\n"
    "for port in (7800, 7880):\n"
    "    with context.wrap_socket(socket.create_connection(({!r}, port)), server_hostname='federation') as line:\n"
    "        print(line.version())"
)
PLAIN = "import urllib.request; urllib.request.urlopen('http://federation:7880/health', timeout=5)"
TARGETS = (
    "import json, urllib.request\n"
    "found = json.load(urllib.request.urlopen('http://prometheus:9090/api/v1/targets', timeout=10))['data']['activeTargets']\n"
    "print(*(each['health'] for each in found))"
)
SCRAPE = (
    "import ssl, urllib.request\n"
    "key = open('/scraper/key').read().strip()\n"
    "asked = urllib.request.Request('https://federation:7880/metrics', headers={'Authorization': 'Bearer ' + key})\n"
    "context = ssl.create_default_context(cafile='/trust/ca.pem')\n"
    "print(urllib.request.urlopen(asked, timeout=10, context=context).read().decode())"
)


def test_the_demonstration_over_tls(federation: Containers) -> None:
    """Enrolled by tokens that carry the authority's fingerprint; no agent was given a certificate."""
    assert federation.ended("authority") == 0
    assert federation.ended("demo") == 0, federation.log("demo")
    mounts = {mount["Destination"] for mount in federation.facts("site-1")["Mounts"]}
    assert not {"/authority", "/certificate", "/trust"} & mounts and "--insecure" not in federation.log("site-1")


def test_nothing_passes_without(federation: Containers) -> None:
    """Both ports of both replicas shake hands as `federation`, and answer nobody who does not."""
    for name in BOTH:
        federation.until(lambda name=name: federation.facts(name)["State"]["Health"]["Status"] == "healthy", name)
        shake = SHAKE.format(federation.address(name, "users"))
        assert set(federation.inside("coordinator", "python", "-c", shake).split()) <= {"TLSv1.3", "TLSv1.2"}
    with pytest.raises(AssertionError, match=r"RemoteDisconnected|ConnectionResetError"):
        federation.inside("coordinator", "python", "-c", PLAIN)


def test_commands_are_typed_as_without(federation: Containers) -> None:
    """In a coordinator's container they are told whom to trust; the authority's key is in none of them."""
    federation.ended("demo")
    for name in BOTH:
        assert {run["status"] for run in federation.tideline(name, "run", "list")} == {"completed"}
        assert federation.inside(name, "sh", "-c", "find / -name ca.key 2>/dev/null || true") == ""


def test_prometheus_may_read_the_numbers(federation: Containers) -> None:
    """With the key and the certificate that it mounts, as the user that it is; done again, the record leaves the key as it is."""
    assert federation.ended("scraper") == 0, federation.log("scraper")
    volumes = [word for each in ("scraper", "trust") for word in ("--volume", f"{federation.network(each)}:/{each}:ro")]
    where = ["--rm", "--user", "65534:65534", "--network", federation.network("users"), *volumes, "--entrypoint", "python"]
    image = federation.facts("coordinator")["Image"]
    told = docker("run", *where, image, "-c", SCRAPE).stdout
    assert "tideline_tls_not_after_timestamp_seconds" in told and "tideline_store_up 1.0" in told
    docker("start", federation.container("scraper"))
    assert federation.ended("scraper") == 0, federation.log("scraper")
    keys = federation.tideline("coordinator", "keys", "list")
    assert [key["revoked"] for key in keys if key["name"] == "prometheus"] == [None]


def test_prometheus_reads_both_replicas(federation: Containers) -> None:
    """Found by their common name, over TLS, with the key that was made for it; nobody typed an address."""

    def told() -> list[str]:
        return federation.inside("coordinator", "python", "-c", TARGETS, check=False).split()

    federation.until(lambda: told() == ["up", "up"], "both replicas to be read")
