"""Numbers of real processes are those of the run's own result, and those that dashboards and alerts ask for are there."""

from __future__ import annotations

import json
import re
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.conftest import WORLD
from tests.acceptance.harness import ROOT, Net, net
from tests.services import free_port
from tideline.client.certificates import issue_coordinator

pytestmark = pytest.mark.processes
SITES = {"a": "source", "c": "target"}
DEPLOYED = ROOT / "deploy" / "metrics"
FUNCTIONS = {
    *("sum", "rate", "increase", "max", "min", "by", "le", "histogram_quantile", "time", "absent", "and", "or", "on"),
    "unless",
}
Numbers = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Watched(Net):
    """A federation whose numbers are looked at, and the run that it has done."""

    agents: dict[str, int]
    told: dict[str, Any]

    def look(self, address: str, key: str = "", ca: Path | None = None) -> Numbers:
        """The numbers at an address, as Prometheus reads them."""
        request = urllib.request.Request(f"{address}/metrics", headers={"Authorization": f"Bearer {key}"} if key else {})
        context = None if ca is None else ssl.create_default_context(cafile=str(ca))
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            families = text_string_to_metric_families(answer.read().decode())
            return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}

    def here(self) -> Numbers:
        return self.look(f"http://127.0.0.1:{self.http}", (self.folder / "admin.key").read_text())

    def at(self, name: str) -> Numbers:
        return self.look(f"http://127.0.0.1:{self.agents[name]}")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Path]) -> Iterator[Watched]:
    """A coordinator, agents with numbers, and one run."""
    made = Watched(tmp_path_factory.mktemp("net"))
    made.agents = {name: free_port() for name in SITES}
    try:
        made.coordinator()
        for name, role in SITES.items():
            made.agent(name, data[name], role, "--metrics", str(made.agents[name]))
        made.told = made.ended(made.run({"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": SITES, "seed": 5}))
        assert made.told["status"] == "completed", made.told["cause"]
        yield made
    finally:
        made.stop()


def total(numbers: Numbers, name: str, **labels: str) -> float:
    """The sum over all samples that have these labels."""
    wanted = set(labels.items())
    return sum(value for (known, told), value in numbers.items() if known == name and wanted <= set(told))


def test_the_coordinators_numbers_are_those_of_the_run(watched: Watched) -> None:
    """Rounds, replies, bytes and waits by phase; runs and agents as the database has them."""
    numbers, phases = watched.here(), watched.told["phases"]
    for name in {phase["name"] for phase in phases}:
        mine = [phase for phase in phases if phase["name"] == name]
        labels = {"method": "fedavg", "phase": name}
        assert total(numbers, "tideline_rounds_closed_total", **labels) == len(mine)
        assert total(numbers, "tideline_replies_total", **labels, verdict="accepted") == sum(phase["replies"] for phase in mine)
        assert total(numbers, "tideline_round_wait_seconds_sum", **labels) == pytest.approx(
            sum(p["seconds"] for p in mine), abs=0.01
        )
    assert total(numbers, "tideline_part_bytes_total", direction="in") == sum(c["bytes_up"] for c in watched.told["clients"])
    assert total(numbers, "tideline_part_bytes_total", direction="out") == sum(c["bytes_down"] for c in watched.told["clients"])
    assert total(numbers, "tideline_runs", status="completed") == 1 and total(numbers, "tideline_runs") == 1
    assert total(numbers, "tideline_clients", standing="approved") == total(numbers, "tideline_agents_listening") == len(SITES)
    assert total(numbers, "tideline_orders_open") == 0
    watched.until(lambda: total(watched.here(), "tideline_turns_waiting") == 0, "the looks at runs that are under way to end")
    assert total(numbers, "tideline_store_up") == total(numbers, "tideline_worker_up") == 1
    assert total(numbers, "tideline_leases_total") == 0 and total(numbers, "tideline_disk_free_bytes") > 0
    assert total(numbers, "tideline_parts") > 0
    watched.until(lambda: total(watched.here(), "tideline_parts_bytes") > 0, "the parts to be weighed, which no scrape waits for")


def test_calls_are_counted_by_what_they_came_to(watched: Watched) -> None:
    """At both doors, by template and status; whatever somebody types is `other`."""
    for path in ("/runs/none", "/no/such/address", "/wp-admin.php"):
        with pytest.raises(urllib.error.HTTPError):
            watched.look(f"http://127.0.0.1:{watched.http}{path}", (watched.folder / "admin.key").read_text())
    numbers = watched.here()
    assert total(numbers, "tideline_http_requests_total", method="POST", route="/runs", code="201") == 1
    assert total(numbers, "tideline_http_requests_total", route="other", code="404") == 3
    assert total(numbers, "tideline_grpc_calls_total", call="Enrol", code="OK") == len(SITES)
    assert total(numbers, "tideline_grpc_calls_total", call="Report", code="OK") == total(numbers, "tideline_replies_total")
    assert total(numbers, "tideline_store_transaction_seconds_count", kind="write") > 10
    with pytest.raises(urllib.error.HTTPError, match="401"):
        watched.look(f"http://127.0.0.1:{watched.http}")


def test_an_agents_numbers_are_those_of_the_run(watched: Watched) -> None:
    clients = {client["name"]: client for client in watched.told["clients"]}
    replies = sum(total(watched.at(name), "tideline_agent_replies_total", verdict="accepted") for name in SITES)
    assert replies == total(watched.here(), "tideline_replies_total", verdict="accepted")
    for name in SITES:
        numbers = watched.at(name)
        assert total(numbers, "tideline_agent_steps_total", outcome="done") == total(
            numbers, "tideline_agent_replies_total", verdict="accepted"
        )
        assert total(numbers, "tideline_agent_step_seconds_count") == total(numbers, "tideline_agent_steps_total")
        assert total(numbers, "tideline_agent_part_bytes_total", direction="in") == clients[name]["bytes_down"]
        assert total(numbers, "tideline_agent_part_bytes_total", direction="out") == clients[name]["bytes_up"]
        assert total(numbers, "tideline_agent_last_contact_timestamp_seconds") > 1e9
        assert total(numbers, "tideline_agent_failures_total") == 0


def test_no_label_grows_with_the_runs(watched: Watched) -> None:
    """After a hundred more runs there is not a series more that names one of them."""
    before = set(watched.here())
    given = {"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": {"nobody": "source"}}
    runs = [watched.run(given) for _ in range(100)]
    for run in runs:
        watched.client().post(f"/runs/{run}/cancel")
    new = set(watched.here()) - before
    assert {dict(labels).get("route") for _, labels in new} <= {"/runs/{run}/cancel", "/runs", None}
    assert not any(run in str(new) for run in [*runs, "nobody"])


def test_it_is_ready(watched: Watched) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{watched.http}/ready", timeout=60) as answer:
        assert json.load(answer)["status"] == "ready"


def expressions() -> list[tuple[str, str]]:
    """Every expression of the dashboard and of the alerts, with its place."""
    board = json.loads((DEPLOYED / "dashboard.json").read_text())
    rules = yaml.safe_load((DEPLOYED / "alerts.yml").read_text())
    found = [(f"panel {panel['title']}", target["expr"]) for panel in board["panels"] for target in panel.get("targets", ())]
    return [*found, *((f"alert {rule['alert']}", rule["expr"]) for group in rules["groups"] for rule in group["rules"])]


def test_every_number_that_is_asked_for_is_told(watched: Watched) -> None:
    """What dashboard and alerts name is in a real look, and so are the labels that they sort by."""
    numbers = {**watched.here(), **watched.at("a")}
    told = {name for name, _ in numbers}
    labels = {label for _, pairs in numbers for label, _ in pairs} | {"instance", "job"}
    # There once there is a Redis, a failure, or a certificate
    later = {"tideline_redis_up", "tideline_agent_failures_total", "tideline_tls_not_after_timestamp_seconds"}
    asked = expressions()
    assert len(asked) > 20
    for where, expression in asked:
        names = set(re.findall(r"\btideline_\w+", expression))
        assert names or 'up{job="tideline"}' in expression, where
        assert names <= told | later, where
        used = set(re.findall(r"(?:by|on) ?\(([^)]*)\)", expression))
        assert {each.strip() for group in used for each in group.split(",") if each.strip()} <= labels, where


def test_the_rules_are_what_prometheus_takes() -> None:
    """Its own tool reads them, and the scrape configurations with them; each alert fires in its case."""
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("NOT TESTED: there is no promtool here; the package prometheus has it")
    configs = [("check", "config", "--syntax-only", name) for name in ("prometheus.yml", "compose-plain.yml", "compose.yml")]
    for words in (*configs, ("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")):
        done = subprocess.run([tool, *words], cwd=DEPLOYED, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_its_case() -> None:
    rules = yaml.safe_load((DEPLOYED / "alerts.yml").read_text())
    cases = [
        case for test in yaml.safe_load((DEPLOYED / "alerts_test.yml").read_text())["tests"] for case in test["alert_rule_test"]
    ]
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == alerts
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == alerts


def test_scrapes_with_tls_are_those_without() -> None:
    """The compose federation's two scrape configurations differ in TLS alone."""
    plain, tls = (yaml.safe_load((DEPLOYED / name).read_text()) for name in ("compose-plain.yml", "compose.yml"))
    (job,) = tls["scrape_configs"]
    assert job.pop("scheme") == "https" and job.pop("tls_config") and tls == plain


def test_the_end_of_the_certificate_is_told(tmp_path: Path) -> None:
    """That of the certificate which the doors show, also where another one lies in its file by now."""
    files = issue_coordinator(tmp_path / "tls", ["127.0.0.1"])
    with net(tmp_path) as made:
        made.coordinator("--tls-cert", files["certificate"], "--tls-key", files["key"])
        key, ca = (made.folder / "admin.key").read_text(), Path(files["authority"])
        issue_coordinator(tmp_path / "tls", ["127.0.0.1", "renewed.example"])
        numbers = Watched.look(made, f"https://127.0.0.1:{made.http}", key, ca)  # type: ignore[arg-type]
        shown = x509.load_pem_x509_certificate(ssl.get_server_certificate(("127.0.0.1", made.http)).encode())
    assert numbers[("tideline_tls_not_after_timestamp_seconds", ())] == shown.not_valid_after_utc.timestamp()


@pytest.mark.nightly(job="journeys")
def test_redis_is_told_where_there_is_one(tmp_path: Path) -> None:
    """0 while it is away; the coordinator is ready all the same, as it polls then."""
    with net(tmp_path) as made:
        made.coordinator("--redis", f"redis://127.0.0.1:{free_port()}")
        key = (made.folder / "admin.key").read_text()
        numbers = Watched.look(made, f"http://127.0.0.1:{made.http}", key)  # type: ignore[arg-type]
        assert numbers[("tideline_redis_up", ())] == 0
        urllib.request.urlopen(f"http://127.0.0.1:{made.http}/ready", timeout=60).close()
