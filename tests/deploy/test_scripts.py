"""The scripts of the compose federation, run here: their folders below one of the test's, and a real coordinator."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.acceptance.conftest import write_blobs
from tests.acceptance.harness import ROOT, Net, net
from tideline.client import certificates
from tideline.client.certificates import issue_coordinator
from tideline.client.http import Client, Endpoint
from tideline.dossier.signing import signer_in

pytestmark = pytest.mark.processes
SCRIPTS, METRICS = ROOT / "deploy" / "compose", ROOT / "deploy" / "metrics"
FOLDERS = "authority certificate trust secrets scraper grafana alerts tmp vault"
FOLDER = re.compile(rf"(?<![\w$])/({FOLDERS.replace(' ', '|')}|tokens|for)\b")
GIVEN = ("postgres", "redis", "coordinator", "admin", "demo")


class Containers:
    """What the scripts' containers would mount."""

    def __init__(self, root: Path) -> None:
        self.root, self.env = root, dict[str, str]()
        for name in ("tokens/site-1", "tokens/site-2", *FOLDERS.split(), *(f"for/{name}" for name in GIVEN)):
            self.at(name).mkdir(parents=True)

    def at(self, path: str) -> Path:
        return self.root / path

    def run(self, script: str, *args: str) -> subprocess.CompletedProcess[str]:
        for each in SCRIPTS.iterdir():
            moved = FOLDER.sub(lambda found: f"{self.root}/{found[1]}", each.read_text(encoding="utf-8"))
            moved = moved.replace("/usr/local/lib/tideline", str(self.root)).replace(" /metrics/", f" {METRICS}/")
            self.at(each.name).write_text(moved, encoding="utf-8")
            self.at(each.name).chmod(0o755)
        file = self.at(script)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        env = {name: value for name, value in os.environ.items() if not name.startswith("TIDELINE_")} | self.env | {"PATH": path}
        return subprocess.run(["sh", str(file), *args], env=env, capture_output=True, text=True, check=False)

    def done(self, script: str, *args: str) -> None:
        told = self.run(script, *args)
        assert told.returncode == 0, told.stdout + told.stderr


@pytest.fixture
def mounts(tmp_path: Path) -> Containers:
    """Empty volumes."""
    return Containers(tmp_path / "mounts")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    """A coordinator. Who kills it starts it again."""
    with net(tmp_path_factory.mktemp("net")) as made:
        made.coordinator()
        yield made


@pytest.fixture
def there(started: Net, mounts: Containers) -> Net:
    """The coordinator, whose admin key is where the scripts look for it."""
    mounts.at("secrets/admin.key").write_text((started.folder / "admin.key").read_text())
    mounts.env = {"TIDELINE_URL": f"http://127.0.0.1:{started.http}"}
    return started


def enrolled(there: Net, mounts: Containers, name: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_blobs(data, 0)
    command = there.agent_command(name, data, "source", mounts.at(f"tokens/{name}/token").read_text().strip())
    there.start(name, *command)
    there.until(lambda: any(row["name"] == name for row in there.client().get("/clients")), f"{name} to be let in")


@pytest.mark.nightly(job="services")
def test_who_is_not_enrolled_is_invited_anew(there: Net, mounts: Containers, tmp_path: Path) -> None:
    """A token that expired, or of a database that is lost, is replaced; who is enrolled is left alone, until it is revoked.

    A coordinator that is away costs no token.
    """
    tokens = {name: mounts.at(f"tokens/{name}/token") for name in ("site-1", "site-2")}
    mounts.done("invite.sh", *tokens)
    first = {name: file.read_text() for name, file in tokens.items()}
    enrolled(there, mounts, "site-1", tmp_path)
    mounts.done("invite.sh", *tokens)
    second = {name: file.read_text() for name, file in tokens.items()}
    assert second["site-1"] == first["site-1"] and second["site-2"] != first["site-2"]
    there.client().post("/clients/site-1/revoke", {"reason": "its home is lost"})
    mounts.done("invite.sh", *tokens)
    third = tokens["site-1"].read_text()
    assert third != first["site-1"]
    key = mounts.at("for/demo/key")
    with Client.of(Endpoint(url=mounts.env["TIDELINE_URL"], api_key=key.read_text().strip())) as demo:
        assert demo.get("/whoami") == {"name": "demo", "role": "operator", "project": "default", "grants": []}
    assert key.stat().st_mode & 0o777 == 0o600
    there.kill("coordinator")
    told = mounts.run("invite.sh", *tokens)
    there.again("coordinator")
    there.ready()
    assert told.returncode == 3 and "No coordinator answers" in told.stderr
    assert tokens["site-1"].read_text() == third


def names(there: Net) -> list[tuple[str, bool]]:
    """The keys that were made, and whether each is good."""
    return [(row["name"], row["revoked"] is None) for row in there.client().get("/keys") if row["name"] != "demo"]


@pytest.mark.nightly(job="services")
def test_a_scrapers_key_is_tried_and_replaced(there: Net, mounts: Containers) -> None:
    """A good one stays; one that was revoked, that is lost, or that was cut off as it was written gives way to a new one."""
    key, password = mounts.at("scraper/key"), mounts.at("grafana/password")
    mounts.done("scraper.sh")
    first, drawn = key.read_text(), password.read_text()
    mounts.done("scraper.sh")
    assert key.read_text() == first and names(there) == [("prometheus", True)]
    there.client().delete("/keys/prometheus")
    mounts.done("scraper.sh")
    second = key.read_text()
    key.unlink()
    mounts.done("scraper.sh")
    assert len({first, second, key.read_text()}) == 3
    assert names(there) == [("prometheus", False), ("prometheus", False), ("prometheus", True)]
    assert password.read_text() == drawn and len(drawn.strip()) == 43
    assert key.stat().st_mode & 0o777 == password.stat().st_mode & 0o777 == 0o644, "Prometheus and Grafana run as other users"
    with Client.of(Endpoint(url=mounts.env["TIDELINE_URL"], api_key=key.read_text().strip())) as prometheus:
        assert prometheus.get("/whoami") == {"name": "prometheus", "role": "viewer", "project": "", "grants": []}


def alerting(url: str) -> str:
    """Alertmanager's configuration, as the script prints it."""
    words = [sys.executable, str(SCRIPTS / "alerting.py"), str(METRICS / "alertmanager.yml")]
    done = subprocess.run(words, env=os.environ | {"ALERT_WEBHOOK": url}, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("url", ["", "https://hooks.example.org/a?b=c&d='e'", 'https://x" # y'])
def test_alerts_go_where_they_are_told(url: str, tmp_path: Path) -> None:
    """To the address of the environment, whatever is in it; without one they are only shown."""
    made = yaml.safe_load(alerting(url))
    (receiver,) = made["receivers"]
    assert [hook["url"] for hook in receiver.get("webhook_configs", ())] == ([url] if url else [])
    assert {made["route"]["receiver"], *(each["receiver"] for each in made["route"]["routes"])} == {receiver["name"]}
    if (tool := shutil.which("amtool")) is not None and '"' not in url:
        (tmp_path / "alertmanager.yml").write_text(alerting(url))
        done = subprocess.run([tool, "check-config", tmp_path / "alertmanager.yml"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def given(mounts: Containers) -> dict[str, str]:
    """All files that services get, by their place."""
    return {str(each.relative_to(mounts.at("for"))): each.read_text() for each in mounts.at("for").rglob("*") if each.is_file()}


def test_secrets_are_drawn_once_and_given_to_each(mounts: Containers) -> None:
    """Each service gets its own, in files that others cannot read; another start changes nothing."""
    mounts.done("setup.sh")
    first = given(mounts)
    own = {f"coordinator/{name}" for name in ("pgpass", "redis", "admin.key", "signing.key")}
    assert set(first) == own | {"postgres/password", "redis/redis.conf", "redis/password", "admin/admin.key"}
    password, redis, key = (first[name].strip() for name in ("postgres/password", "redis/password", "admin/admin.key"))
    assert len({password, redis, key}) == 3 and min(map(len, (password, redis, key))) == 43
    assert first["coordinator/pgpass"] == f"postgres:5432:*:tideline:{password}\n"
    assert f"requirepass {redis}\n" in first["redis/redis.conf"] and first["coordinator/redis"].strip() == redis
    assert signer_in(mounts.at("for/coordinator/signing.key")).fingerprint, "the key that signs dossiers"
    modes = {name: mounts.at(f"for/{name}").stat().st_mode & 0o777 for name in first}
    assert {name for name, mode in modes.items() if mode != 0o600} == {"redis/redis.conf", "redis/password"}
    assert {modes["redis/redis.conf"], modes["redis/password"]} == {0o640}, "Redis runs as another user of the same group"
    mounts.done("setup.sh")
    assert given(mounts) == first


def test_secrets_of_older_federations_go_on(mounts: Containers) -> None:
    """The database's password and the admin key lay in the same volume before; one that is lost is drawn anew."""
    mounts.at("vault/postgres").write_text("as it was")
    mounts.at("vault/admin.key").write_text("the key that users have\n")
    mounts.done("setup.sh")
    first = given(mounts)
    assert first["postgres/password"] == "as it was" and first["coordinator/admin.key"] == "the key that users have\n"
    mounts.at("vault/redis").unlink()
    mounts.done("setup.sh")
    second = given(mounts)
    assert {name for name in first if first[name] != second[name]} == {"redis/redis.conf", "redis/password", "coordinator/redis"}


def leaf(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificates(file.read_bytes())[0]


def test_a_certificate_is_made_once_and_renewed_in_time(mounts: Containers, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it lasts nothing changes; with fewer than 60 days left there is another, of the same authority."""
    monkeypatch.setattr(certificates, "LEAF_DAYS", 59)
    issue_coordinator(mounts.at("authority"), ["federation"])
    first, ca = leaf(mounts.at("authority/coordinator.pem")), mounts.at("authority/ca.pem").read_bytes()
    mounts.done("authority.sh", "federation", "localhost", "127.0.0.1")
    second = leaf(mounts.at("certificate/coordinator.pem"))
    mounts.done("authority.sh", "federation", "localhost", "127.0.0.1")
    assert first != second == leaf(mounts.at("certificate/coordinator.pem"))
    assert second.not_valid_after_utc > datetime.now(UTC) + timedelta(days=390)
    hosts = second.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert hosts.get_values_for_type(x509.DNSName) == ["federation", "localhost"]
    assert mounts.at("trust/ca.pem").read_bytes() == ca == mounts.at("authority/ca.pem").read_bytes()


def test_a_new_name_takes_a_new_certificate(mounts: Containers) -> None:
    """A federation that is opened to other machines later is known by its name there, too, to agents that trust it already."""
    mounts.done("authority.sh", "federation", "localhost", "localhost")
    first, ca = leaf(mounts.at("certificate/coordinator.pem")), mounts.at("trust/ca.pem").read_bytes()
    mounts.done("authority.sh", "federation", "localhost")
    assert leaf(mounts.at("certificate/coordinator.pem")) == first
    mounts.done("authority.sh", "federation", "localhost", "federation.example", "192.0.2.7")
    second = leaf(mounts.at("certificate/coordinator.pem"))
    hosts = second.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert first != second and "federation.example" in hosts.get_values_for_type(x509.DNSName)
    assert mounts.at("trust/ca.pem").read_bytes() == ca


def test_each_gets_what_it_needs(mounts: Containers) -> None:
    """The authority's key stays with it, the coordinator's is its own, and everybody may read whom to trust."""
    mounts.done("authority.sh", "federation")
    modes = {name: mounts.at(name).stat().st_mode & 0o777 for name in ("certificate/coordinator.key", "trust/ca.pem")}
    assert modes == {"certificate/coordinator.key": 0o600, "trust/ca.pem": 0o644}
    files = {name: sorted(file.name for file in mounts.at(name).iterdir()) for name in ("certificate", "trust")}
    assert files == {"certificate": ["coordinator.key", "coordinator.pem"], "trust": ["ca.pem"]}
    assert load_pem_private_key(mounts.at("certificate/coordinator.key").read_bytes(), None).public_key() == (
        leaf(mounts.at("certificate/coordinator.pem")).public_key()
    )


def test_a_certificate_of_others_making_stays(mounts: Containers) -> None:
    mounts.at("certificate/coordinator.pem").write_text("theirs")
    mounts.done("authority.sh", "federation")
    assert mounts.at("certificate/coordinator.pem").read_text() == "theirs" and not list(mounts.at("authority").iterdir())
