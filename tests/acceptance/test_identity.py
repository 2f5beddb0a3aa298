"""Real processes: over TLS with a token alone, with certificates of their own, approved, revoked and killed."""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import SITES, WORLD, start_all
from tests.acceptance.harness import Net, net
from tests.cli.world import tide, tide_process
from tideline.client.http import Client, Endpoint
from tideline.core.tokens import read_token

pytestmark = pytest.mark.processes
REFUSED, UNREACHABLE = 2, 3
RUN = {"method": "fedavg", "preset": "tiny", "world": WORLD}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority with the coordinator's certificate and one for the client b."""
    out = tmp_path_factory.mktemp("tls") / "ca"
    assert tide("tls", "init", "--out", out, "--host", "127.0.0.1", "--host", "localhost").exit_code == 0
    assert tide("tls", "client", "b", "--out", out).exit_code == 0
    return out


def tideline(*args: str) -> tuple[int, str]:
    done = tide_process(*args)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def secured(federation: Net, made: Path, *more: str) -> None:
    """Start a coordinator with TLS, and people who trust it."""
    federation.coordinator("--tls-cert", str(made / "coordinator.pem"), "--tls-key", str(made / "coordinator.key"), *more)
    federation._clients["coordinator"] = Client.of(Endpoint(home=federation.folder, ca=made / "ca.pem"))


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory, made: Path) -> Iterator[Net]:
    with net(tmp_path_factory.mktemp("tls-net")) as started:
        secured(started, made)
        yield started


def invited(federation: Net, name: str, **more: object) -> str:
    return str(federation.client().post("/invites", {"name": name, "ttl_seconds": 600, **more})["token"])


def started(federation: Net, name: str, data: Path, *more: str, home: bool = True) -> list[str]:
    """The command of an agent, without any address or authority."""
    where = ("--home", str(federation.home / f"home-{name}")) if home else ()
    args = ["agent", "--data", str(data), "--role", "source", "--device", "cpu", *where, *more]
    federation.start(name, *args)
    return args


def test_a_token_is_enough(federation: Net, made: Path, data: dict[str, Path]) -> None:
    """Address and authority come from it; from then on the home knows both, and even the name."""
    token = invited(federation, "a")
    told = read_token(token)
    pem = re.findall("-----BEGIN.*?-----END CERTIFICATE-----", (made / "coordinator.pem").read_text(), re.S)[-1]
    assert told.authority == hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).digest()
    assert told.addresses == (f"127.0.0.1:{federation.grpc}",)
    started(federation, "a", data["a"], "--token", token, "--name", "a")
    federation.heard("a", "enrolled")
    federation.kill("a")
    started(federation, "a", data["a"])
    federation.heard("a", "enrolled", 2)
    run = federation.run(RUN | {"roster": {"a": "source"}})
    federation.completed(run)
    (row,) = [each for each in federation.client().get("/clients") if each["name"] == "a"]
    assert row["fingerprint"] in federation.log("a")


def test_another_authority_is_refused(federation: Net, data: dict[str, Path], tmp_path: Path) -> None:
    """Who stands at the address with other papers gets neither the token nor anything else."""
    told = read_token(invited(federation, "fooled"))
    token = type(told)(told.secret, told.addresses, told.trust, bytes(32)).text
    args = ("--data", str(data["a"]), "--role", "source", "--name", "fooled", "--home", str(tmp_path))
    code, said = tideline("agent", "--token", token, *args)
    assert code == REFUSED and "shows a certificate of another authority: expected SHA256 00:00:" in said
    assert f"got {':'.join(f'{b:02x}' for b in told.authority)}" in said and not (tmp_path / "coordinator.json").exists()


@pytest.mark.nightly(job="journeys")
def test_a_kill_during_enrolment(federation: Net, data: dict[str, Path]) -> None:
    """Whenever: the same command enrols it, with the keys that it made first."""
    token, keys = invited(federation, "k"), federation.home / "home-k" / "keys.pem"
    started(federation, "k", data["a"], "--token", token, "--name", "k")
    federation.until(keys.exists, "the keys")
    federation.kill("k")
    first = keys.read_bytes()
    federation.again("k")
    federation.until(lambda: any(each["name"] == "k" for each in federation.client().get("/clients")), "the enrolment")
    federation.kill("k")
    assert keys.read_bytes() == first
    federation.client().post("/clients/k/rotate")
    federation.again("k")
    federation.until(lambda: (keys.parent / "keys.next.pem").exists() or keys.read_bytes() != first, "the rotation to begin")
    federation.restart("k")
    federation.until(lambda: keys.read_bytes() != first and not (keys.parent / "keys.next.pem").exists(), "the new keys")
    federation.heard("k", "enrolled")


def test_a_held_agent_waits(federation: Net, data: dict[str, Path]) -> None:
    """It says its fingerprint, which the coordinator's list has too, and begins when a person says so."""
    started(federation, "h", data["a"], "--token", invited(federation, "h", hold=True), "--name", "h")
    federation.heard("h", "approval_awaited")
    (row,) = [each for each in federation.client().get("/clients") if each["name"] == "h"]
    assert row["standing"] == "pending" and row["fingerprint"] in federation.log("h")
    assert federation.client().post("/clients/h/approve")["standing"] == "approved"
    federation.heard("h", "enrolled")
    federation.running["h"].terminate()
    assert federation.running["h"].wait(30) == 0


def test_agents_with_certificates(made: Path, data: dict[str, Path], tmp_path: Path) -> None:
    """Where the coordinator asks for them: the certificate's name has to be the client's."""
    own = ("--tls-cert", str(made / "b.pem"), "--tls-key", str(made / "b.key"))
    with net(tmp_path) as federation:
        secured(federation, made, "--tls-client-ca", str(made / "ca.pem"))
        started(federation, "b", data["b"], "--token", invited(federation, "b"), "--name", "b", *own)
        federation.heard("b", "enrolled")
        rest = ("--data", str(data["a"]), "--role", "source", "--wait", "0")
        code, said = tideline(
            "agent", "--token", invited(federation, "c"), "--name", "c", "--home", str(tmp_path / "c"), *rest, *own
        )
        assert code == REFUSED and "The certificate is that of b, not of 'c'" in said
        code, said = tideline("agent", "--token", invited(federation, "d"), "--name", "d", "--home", str(tmp_path / "d"), *rest)
        assert code == UNREACHABLE, said


@pytest.mark.nightly(job="journeys")
@pytest.mark.parametrize("quorum", [1, 3])
def test_revoked_in_the_middle_of_a_run(quorum: int, data: dict[str, Path], tmp_path: Path) -> None:
    """The run goes on with its quorum, or stalls with the reason; the agent ends and says why, and so does its next start."""
    with net(tmp_path) as federation:
        start_all(federation, data)
        long = {"config": {"rounds": 400}, "roster": dict(SITES), "waiting": {"min_replies": quorum, "deadline": 600}}
        run = federation.run(RUN | long)
        federation.until(lambda: federation.result(run)["cursor"] > 1, "the run to be under way")
        federation.client().post("/clients/b/revoke", {"reason": "the site has left"})
        assert federation.running["b"].wait(60) == REFUSED
        assert "was revoked on" in federation.log("b") and "the site has left" in federation.log("b")
        if quorum == 3:
            federation.until(lambda: federation.result(run)["status"] == "stalled", "the run to stall")
            assert "b: b was revoked on" in federation.result(run)["cause"]
        else:
            at = federation.result(run)["cursor"]
            federation.until(lambda: federation.result(run)["cursor"] > at + 3, "the run to go on")
            (site,) = [each for each in federation.result(run)["clients"] if each["name"] == "b"]
            assert {failure["kind"] for failure in site["failures"]} == {"Revoked"}
        federation.again("b")
        assert federation.running["b"].wait(60) == REFUSED
        (tmp_path / "home-b" / "keys.pem").unlink()  # it may come back as a new one, by a new invitation
        federation.agent("b", data["b"])
        federation.heard("b", "enrolled", 2)
