"""A real Prometheus reads a real federation: its targets are up, its rules loaded, and every panel of the dashboard is drawn."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from tests.acceptance.conftest import SITES, WORLD
from tests.acceptance.harness import ROOT, Net
from tests.acceptance.raw import Raw, refused
from tests.services import free_port

pytestmark = [pytest.mark.processes, pytest.mark.nightly(job="journeys")]
DEPLOYED = ROOT / "deploy" / "metrics"
# Panels that show nothing as long as nothing of theirs has happened: no Redis, nothing refused, no lease taken over.
EMPTY = {
    ("Database, worker, Redis", "tideline_redis_up"),
    ("gRPC failures per second", 'sum by (call, code) (rate(tideline_grpc_calls_total{code!="OK"}[5m]))'),
    ("Agents: failures per hour", "3600 * sum by (instance, kind) (rate(tideline_agent_failures_total[10m]))"),
    ("Leases per hour", "3600 * sum by (instance, what) (rate(tideline_leases_total[15m]))"),
}


class Prometheus:
    """A server beside a federation."""

    def __init__(self, folder: Path, coordinator: str, agents: list[str], key: str) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        (folder / "tideline.key").write_text(key)
        shutil.copy(DEPLOYED / "alerts.yml", folder)
        (folder / "prometheus.yml").write_text(yaml.safe_dump(configured(folder, coordinator, agents)))
        program = shutil.which("prometheus")
        assert program is not None
        words = ["--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={self.address}"]
        with (folder / "prometheus.log").open("w") as said:
            self.process = subprocess.Popen([program, *words], cwd=folder, stdout=said, stderr=said)

    def ask(self, what: str, **given: str) -> Any:
        """What its API answers; None while it is starting."""
        try:
            with urllib.request.urlopen(
                f"http://{self.address}/api/v1/{what}?{urllib.parse.urlencode(given)}", timeout=60
            ) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def value(self, expression: str) -> list[Any]:
        found = self.ask("query", query=expression)
        assert found is not None, expression
        return [each for each in found["result"] if each["value"][1] != "NaN"]


def configured(folder: Path, coordinator: str, agents: list[str]) -> Any:
    """The project's own configuration, at these addresses, every second."""
    told = yaml.safe_load((DEPLOYED / "prometheus.yml").read_text())
    told["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s"}
    ours, theirs = told["scrape_configs"]
    ours["authorization"]["credentials_file"] = str(folder / "tideline.key")
    ours["static_configs"], theirs["static_configs"] = [{"targets": [coordinator]}], [{"targets": agents}]
    return told


@pytest.fixture(scope="module")
def sight(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Path]) -> Iterator[tuple[Net, Prometheus]]:
    """A coordinator and three agents with numbers, and a Prometheus with a viewer's key that looked all along a run."""
    if shutil.which("prometheus") is None:
        pytest.skip("NOT TESTED: there is no prometheus here; the package of this name has it")
    folder = tmp_path_factory.mktemp("net")
    net, ports = Net(folder), {name: free_port() for name in SITES}
    prometheus = None
    try:
        net.coordinator()
        for name, role in SITES.items():
            net.agent(name, data[name], role, "--metrics", str(ports[name]))
        key = net.client().post("/keys", {"name": "prometheus", "role": "viewer"})["key"]
        (folder / "prometheus").mkdir()
        targets = [f"127.0.0.1:{port}" for port in ports.values()]
        prometheus = Prometheus(folder / "prometheus", f"127.0.0.1:{net.http}", targets, key)
        net.until(lambda: all_up(prometheus, 1 + len(targets)), "the targets to be up")
        given = {"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": SITES}
        # A counter may be seen first when a short run is over, and does not rise then. It does with the second run.
        for seed in (5, 6):
            net.completed(net.run({**given, "seed": seed}))
            net.until(lambda: bool(prometheus.value("tideline_rounds_closed_total > 0")), "a look at the run")
        net.until(lambda: bool(prometheus.value("rate(tideline_rounds_closed_total[10m]) > 0")), "a look after the run")
        yield net, prometheus
    finally:
        if prometheus is not None:
            prometheus.process.terminate()
            prometheus.process.wait(30)
        net.stop()


def all_up(prometheus: Prometheus, count: int) -> bool:
    """Whether so many targets answer, each to its second look at least."""
    found = prometheus.ask("targets")
    up = [] if found is None else [each for each in found["activeTargets"] if each["health"] == "up"]
    return len(up) == count and len(prometheus.value("count_over_time(up[1m]) > 1")) == count


def test_every_panel_is_drawn(sight: tuple[Net, Prometheus]) -> None:
    """Each query of the dashboard is taken, and gives something where something has happened."""
    _, prometheus = sight
    panels = json.loads((DEPLOYED / "dashboard.json").read_text())["panels"]
    asked = {(panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", ())}
    assert len(asked) > 25
    assert {each for each in asked if not prometheus.value(each[1])} <= EMPTY


def test_the_panels_of_what_went_wrong(sight: tuple[Net, Prometheus]) -> None:
    net, prometheus = sight
    with grpc.insecure_channel(net.address) as channel:
        assert refused(Raw(channel, "stranger").beat)[0] == "IdentityRefused"
    failing = next(expression for title, expression in EMPTY if title == "gRPC failures per second")
    net.until(lambda: bool(prometheus.value(failing)), "the refusal to be drawn")


def test_the_rules_are_loaded_and_rest(sight: tuple[Net, Prometheus]) -> None:
    """Every alert is evaluated without an error, and none fires over a federation that is well."""
    net, prometheus = sight
    net.until(lambda: all(rule["health"] == "ok" for rule in rules_of(prometheus)), "the rules to be evaluated")
    written = yaml.safe_load((DEPLOYED / "alerts.yml").read_text())
    assert {rule["name"] for rule in rules_of(prometheus)} == {r["alert"] for group in written["groups"] for r in group["rules"]}
    assert {rule["name"] for rule in rules_of(prometheus) if rule["state"] == "firing"} == set()


def rules_of(prometheus: Prometheus) -> list[Any]:
    return [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
