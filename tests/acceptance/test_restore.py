"""Backups that are restored: a run of then goes on or says why it cannot, and what was revoked since stays so."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import SITES, WORLD, start_all
from tests.acceptance.harness import Net, net
from tests.acceptance.test_survival import at_the_gate, begun, experiment, undisturbed
from tests.cli.world import tide_process
from tests.services import Postgres, program, why_no_postgres
from tideline.algorithms import METHODS
from tideline.client.http import Client, Endpoint
from tideline.core.errors import IdentityRefused, Unreachable
from tideline.engine.simulation.federation import SimSite, simulate
from tideline.learning.formats.folder import read_folder

pytestmark = pytest.mark.processes
REGISTRY = "tests.acceptance.gated:METHODS"
RESTORED = "restored"
LEASE = ("--lease", "1")
FEDAVG: dict[str, Any] = {"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": SITES, "seed": 5, "reference": None}


def why_no_dump() -> str:
    """Why no backup can be taken; nothing if one can."""
    missing = [name for name in ("pg_dump", "pg_restore", "createdb") if not Path(program(name)).exists()]
    return f"NOT TESTED: {', '.join(missing)} is not installed" if missing else ""


def needed() -> None:
    """Skip where Postgres or its programs are missing, loudly; in CI that is a failure."""
    why = why_no_postgres() or why_no_dump()
    if why and os.environ.get("CI", "").lower() == "true":
        pytest.fail(why)
    if why:
        pytest.skip(why)


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    needed()
    made = Postgres(tmp_path_factory.mktemp("restore"))
    yield made
    made.kill()


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    """The URL of an empty database. What was restored from it is dropped with it."""
    where = at(postgres)
    postgres.do("createdb", *where, "federation")
    yield postgres.url_of("federation")
    postgres.do("dropdb", *where, "--force", "--if-exists", "federation")
    postgres.do("dropdb", *where, "--force", "--if-exists", RESTORED)


@pytest.fixture
def federation(tmp_path: Path, data: dict[str, Path], database: str, request: pytest.FixtureRequest) -> Iterator[Net]:
    """A coordinator on the database and three agents, with the registry that the test names."""
    with net(tmp_path, getattr(request, "param", REGISTRY), database, str(tmp_path / "parts")) as made:
        start_all(made, data, *LEASE)
        yield made


def at(postgres: Postgres) -> tuple[str, ...]:
    return "--host=127.0.0.1", f"--port={postgres.port}", "--username=postgres"


def back_up(federation: Net, postgres: Postgres) -> None:
    """The database first, then the parts, as the book says; and every site's home."""
    postgres.do("pg_dump", *at(postgres), "--format=custom", "--file=backup", "federation")
    shutil.copytree(federation.home / "parts", federation.home / "parts-backup")
    for name in SITES:
        shutil.copytree(federation.home / f"home-{name}", federation.home / f"backup-{name}")


def restore(federation: Net, postgres: Postgres) -> None:
    """Into another database, for a coordinator with a new home behind the ports of the old one. The agents are not touched."""
    federation.kill("coordinator")
    postgres.do("createdb", *at(postgres), RESTORED)
    postgres.do("pg_restore", *at(postgres), f"--dbname={RESTORED}", "--exit-on-error", "backup")
    federation.database, federation.parts = postgres.url_of(RESTORED), str(federation.home / "parts-backup")
    federation.ports[RESTORED] = federation.ports["coordinator"]
    federation.coordinator(*LEASE, name=RESTORED)


def end(federation: Net, run: str) -> dict[str, Any]:
    """How a run ended, as the restored coordinator tells."""
    there, found = federation.client(RESTORED), dict[str, Any]()

    def over() -> bool:
        found.update(there.get(f"/runs/{run}"))
        return found["status"] not in ("waiting", "running")

    federation.until(over, f"run {run} to end")
    return found


@pytest.mark.nightly(job="journeys")
def test_a_key_that_was_revoked_at_one_of_two_coordinators(postgres: Postgres, database: str, tmp_path: Path) -> None:
    """It stays so at both, the restore is found once, and one confirmation is enough."""
    with net(tmp_path, database=database, parts=str(tmp_path / "parts")) as federation:
        both = ("coordinator", "second")
        for name in both:
            federation.coordinator(*LEASE, name=name)
        alice = str(federation.client().post("/keys", {"name": "alice", "role": "admin"})["key"])
        postgres.do("pg_dump", *at(postgres), "--format=custom", "--file=backup", "federation")
        federation.client().delete("/keys/alice")
        for name in both:
            federation.kill(name)
        postgres.do("createdb", *at(postgres), RESTORED)
        postgres.do("pg_restore", *at(postgres), f"--dbname={RESTORED}", "--exit-on-error", "backup")
        federation.database = postgres.url_of(RESTORED)
        for name in both:
            federation.again(name)
        for name in both:
            federation.ready(name)
            user = Client.of(Endpoint(url=f"http://127.0.0.1:{federation.ports_of(name)[1]}", api_key=alice))
            with user, pytest.raises(IdentityRefused, match="'alice' was revoked"):
                user.get("/runs")
            (warning,) = federation.client(name).get("/ready")["warnings"]
            assert "older than its witness" in warning
        federation.client("second").post("/restored/confirm")
        federation.until(lambda: not federation.client().get("/ready")["warnings"], "the first to hear of it")
        assert [entry["kind"] for entry in federation.client().get("/audit")].count("restored") == 1


@pytest.mark.nightly(job="journeys")
def test_a_backup_of_an_open_round(federation: Net, postgres: Postgres, data: dict[str, Path], tmp_path: Path) -> None:
    """Everything is killed and only the backup is left: agents started with the same commands finish the round and the run."""
    run = at_the_gate(federation, tmp_path)
    back_up(federation, postgres)
    for name in SITES:
        federation.kill(name)
    restore(federation, postgres)
    for name in SITES:
        federation.again(name)
    (tmp_path / "go").touch()
    result = end(federation, run)
    assert (result["status"], result["state_digest"]) == ("completed", undisturbed(data)), result["cause"]


@pytest.mark.nightly(job="journeys")
def test_a_backup_from_before_the_last_replies(
    federation: Net, postgres: Postgres, data: dict[str, Path], tmp_path: Path
) -> None:
    """Agents have delivered what the backup asks for: asked again, they answer from their vaults, and no step is done twice."""
    run = federation.run(experiment(tmp_path, closing=True))
    federation.until(lambda: all(begun(tmp_path, name) for name in SITES), "three sites to wait at the gate")
    back_up(federation, postgres)
    (tmp_path / "go").touch()
    federation.until(lambda: bool(begun(tmp_path, "closing")), "all replies to be there")
    restore(federation, postgres)
    (tmp_path / "go-closing").touch()
    result = end(federation, run)
    assert (result["status"], result["state_digest"]) == ("completed", undisturbed(data)), result["cause"]
    assert [len(begun(tmp_path, name)) for name in SITES] == [1, 1, 1], "no step was done twice"


@pytest.mark.nightly(job="journeys")
def test_a_backup_from_rounds_ago(federation: Net, postgres: Postgres, data: dict[str, Path], tmp_path: Path) -> None:
    """Sites' memories are newer than the backup: the run stalls and says so; with homes as old as the backup it is resumed."""
    run = at_the_gate(federation, tmp_path)
    back_up(federation, postgres)
    (tmp_path / "go").touch()
    federation.completed(run)
    restore(federation, postgres)
    result = end(federation, run)
    assert result["status"] == "stalled"
    assert "a: This site's memory is past exchange 1 and the reply to it is no longer kept" in result["cause"]
    assert {f["kind"] for client in result["clients"] for f in client["failures"]} == {"MemoryAhead"}
    for name in SITES:
        federation.kill(name)
        shutil.rmtree(federation.home / f"home-{name}")
        shutil.move(federation.home / f"backup-{name}", federation.home / f"home-{name}")
        federation.again(name)
    federation.client(RESTORED).post(f"/runs/{run}/resume", {})
    result = end(federation, run)
    assert (result["status"], result["state_digest"]) == ("completed", undisturbed(data)), result["cause"]


@pytest.mark.nightly(job="journeys")
@pytest.mark.parametrize("federation", ["tideline.algorithms:METHODS"], indirect=True)
def test_a_method_without_memory_does_not_mind(federation: Net, postgres: Postgres, data: dict[str, Path]) -> None:
    """However old the backup is, sites work again what it asks for, to the same bytes."""
    run = federation.run(FEDAVG)
    federation.until(lambda: federation.result(run)["cursor"] >= 0, "the first round to open")
    back_up(federation, postgres)
    federation.completed(run)
    restore(federation, postgres)
    result = end(federation, run)
    sites = {n: SimSite(lambda w, r, n=n: read_folder(data[n], w, r)) for n in SITES}
    assert (result["status"], result["state_digest"]) == ("completed", simulate(METHODS, FEDAVG, sites)["state_digest"]), result


REFUSED = 2
RUN = {"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": {"b": "source"}, "reference": None}


@pytest.fixture
def keyed_federation(tmp_path: Path, data: dict[str, Path]) -> Iterator[Net]:
    """A coordinator with an API key and two agents."""
    with net(tmp_path) as made:
        made.coordinator()
        for name in ("a", "b"):
            made.agent(name, data["a"])
            made.heard(name, "enrolled")
        yield made


def dump(keyed_federation: Net, *more: str) -> None:
    """The database as the book says, and what else is named of the coordinator's home."""
    with (
        closing(sqlite3.connect(keyed_federation.folder / "coordinator.db")) as source,
        closing(sqlite3.connect(keyed_federation.home / "backup.db")) as target,
    ):
        source.backup(target)
    for name in more:
        shutil.copytree(keyed_federation.folder / name, keyed_federation.home / f"backup-{name}")


def put_back(keyed_federation: Net, *more: str) -> None:
    """Stop, put the backup in place, and start with the command that there was."""
    keyed_federation.running["coordinator"].terminate()
    keyed_federation.running["coordinator"].wait(30)
    for left in keyed_federation.folder.glob("coordinator.db*"):
        left.unlink()
    shutil.copy(keyed_federation.home / "backup.db", keyed_federation.folder / "coordinator.db")
    for name in more:
        shutil.rmtree(keyed_federation.folder / name)
        shutil.copytree(keyed_federation.home / f"backup-{name}", keyed_federation.folder / name)
    keyed_federation.again("coordinator")
    keyed_federation.ready()


def keyed(keyed_federation: Net, key: str) -> Client:
    """A user with a key of the database."""
    return Client.of(Endpoint(url=f"http://127.0.0.1:{keyed_federation.http}", api_key=key))


def made_key(keyed_federation: Net, name: str) -> str:
    return str(keyed_federation.client().post("/keys", {"name": name, "role": "admin"})["key"])


def ready(keyed_federation: Net) -> dict[str, Any]:
    return dict(keyed_federation.client().get("/ready"))


def command(keyed_federation: Net, *args: str) -> str:
    done = tide_process(*args, "--home", str(keyed_federation.folder))
    assert done.returncode == 0, done.stderr
    return " ".join((done.stdout + done.stderr).split())


def test_revocations_outlive_a_restore(keyed_federation: Net, data: dict[str, Path]) -> None:
    """A key, an agent and a token that ended after the backup have ended after the restore; new keys are known."""
    alice, carl = made_key(keyed_federation, "alice"), made_key(keyed_federation, "carl")
    token = keyed_federation.client().post("/invites", {"name": "c", "ttl_seconds": 600})["token"]
    dump(keyed_federation)
    keyed_federation.client().delete("/keys/alice")
    keyed_federation.client().post("/clients/a/revoke", {"reason": "stolen"})
    assert keyed_federation.running["a"].wait(60) == REFUSED
    keyed_federation.start("c", *keyed_federation.agent_command("c", data["a"], "source", token))
    keyed_federation.heard("c", "enrolled")
    keyed_federation.client().post("/clients/b/rotate")
    keyed_federation.heard("b", "keys_rotated")
    put_back(keyed_federation)
    with pytest.raises(IdentityRefused, match="'alice' was revoked"):
        keyed(keyed_federation, alice).get("/runs")
    assert keyed(keyed_federation, carl).get("/runs") == []
    keyed_federation.again("a")
    assert keyed_federation.running["a"].wait(60) == REFUSED and "stolen" in keyed_federation.log("a")
    assert keyed_federation.running["c"].wait(60) == REFUSED, "its enrolment is forgotten, and its token used up"
    assert "database_restored" in keyed_federation.log("coordinator")
    assert "older than its witness" in ready(keyed_federation)["warnings"][0]
    keyed_federation.completed(keyed_federation.run(RUN))
    assert "older than its witness" in command(keyed_federation, "clients", "list")
    assert "older than its witness" in command(keyed_federation, "audit", "verify")
    shown = command(keyed_federation, "restored", "--confirm")
    assert "agents revoked: a" in shown and "API keys revoked: alice" in shown and "agents rekeyed: b" in shown
    assert ready(keyed_federation)["warnings"] == []
    with pytest.raises(IdentityRefused, match="'alice' was revoked"):
        keyed(keyed_federation, alice).get("/runs")


def test_a_restore_of_the_witness_too(keyed_federation: Net) -> None:
    """Agents remember that there was more: nobody is let in, and it is said, until an admin confirms."""
    alice = made_key(keyed_federation, "alice")
    dump(keyed_federation, "parts")
    keyed_federation.client().delete("/keys/alice")
    keyed_federation.client().post("/clients/a/revoke", {"reason": "stolen"})
    assert keyed_federation.running["a"].wait(60) == REFUSED
    restored = keyed_federation.home / "home-b" / "witness.json"
    before = keyed_federation.client().get("/audit/tip")
    assert before["seq"] > 1
    keyed_federation.until(lambda: '"seq": 4' in restored.read_text(), "b to remember the two revocations")
    put_back(keyed_federation, "parts")
    keyed_federation.heard("b", "nobody knows who was revoked since")
    assert "older than what agents remember" in ready(keyed_federation)["warnings"][0]
    with pytest.raises(Unreachable, match="nobody knows who was revoked"):
        keyed(keyed_federation, alice).get("/runs")
    keyed_federation.again("a")
    keyed_federation.heard("a", "approval_awaited")
    keyed_federation.client().post("/clients/a/revoke", {"reason": "stolen"})
    keyed_federation.client().delete("/keys/alice")
    assert "Confirmed" in command(keyed_federation, "restored", "--confirm")
    assert keyed_federation.running["a"].wait(60) == REFUSED and "stolen" in keyed_federation.log("a")
    keyed_federation.completed(keyed_federation.run(RUN))
    assert ready(keyed_federation)["warnings"] == []
    with pytest.raises(IdentityRefused):
        keyed(keyed_federation, alice).get("/runs")
