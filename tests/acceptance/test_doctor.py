"""`tideline doctor`: everything is broken in turn, and each check says so, and what to do."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

from tests.acceptance.conftest import write_blobs
from tests.acceptance.harness import free_port
from tests.acceptance.test_stalls import Mute
from tests.cli.world import tide
from tests.server.grpc_port import grpc_port_of
from tideline.client import certificates
from tideline.core.run import Role
from tideline.core.tokens import Token, Trust, read_token
from tideline.engine.simulation.federation import Federation
from tideline_agent.discovery import find, note
from tideline_agent.doctor import CHECKS, Finding, State, checkup
from tideline_agent.home import identity
from tideline_agent.home.identity import recall
from tideline_agent.link import GrpcLink
from tideline_agent.settings import AgentSettings
from tideline_server.bell import LocalCounts
from tideline_server.limits import Limits

NAMES = [name for name, *_ in CHECKS]
OK, WARNING, FAILED, NOT_TRIED = State.OK, State.WARNING, State.FAILED, State.NOT_TRIED


@pytest.fixture(scope="module")
def opened() -> Iterator[tuple[Federation, int]]:
    with grpc_port_of() as made:
        yield made


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_blobs(tmp_path_factory.mktemp("doctor") / "data", 1)


@pytest.fixture
def site(opened: tuple[Federation, int], blobs: Path, tmp_path: Path, request: pytest.FixtureRequest) -> AgentSettings:
    """An agent of the test's own that has not enrolled, with a good token."""
    federation, port = opened
    federation.clock.advance(time.time() - federation.clock.now())  # it stands still by itself
    name = hashlib.sha256(request.node.name.encode()).hexdigest()[:12]
    token = Token(federation.run_service.invite(name, {}, 60.0), (f"127.0.0.1:{port}",)).text
    return AgentSettings("", blobs, (Role.SOURCE,), name, token, tmp_path / "home", device="cpu")


def enrolled(settings: AgentSettings) -> AgentSettings:
    """The same, enrolled, and without its token."""
    settings.folder.mkdir(mode=0o700)
    endpoints = find(settings).endpoints
    with closing(GrpcLink(endpoints, settings.name, identity.keys(settings.folder), threading.Event())) as link:
        link.enrol(read_token(settings.token).secret, ("source",))
    note(settings, endpoints)
    return replace(settings, token="")


def look(settings: AgentSettings, now: Callable[[], float] = time.time) -> dict[str, Finding]:
    found = list(checkup(settings, now))
    assert [f.check for f in found] == NAMES
    assert all(f.todo for f in found if f.state in (WARNING, FAILED))
    return {f.check: f for f in found}


def broken(found: dict[str, Finding], check: str, *behind: str) -> Finding:
    """The one check that failed; those behind it were not tried, all others were."""
    assert {f.check for f in found.values() if f.state is FAILED} == {check}
    assert {f.check for f in found.values() if f.state is NOT_TRIED} == set(behind)
    return found[check]


def test_all_is_well(opened: tuple[Federation, int], site: AgentSettings) -> None:
    """Before the agent enrols, with a token that is good afterwards too; and once it has enrolled."""
    federation, _ = opened
    found = look(site)
    assert [f.state for f in found.values() if f.check != "parts"] == [OK] * (len(NAMES) - 1)
    assert "has not been used up" in found["sign-in"].found and found["parts"].state is NOT_TRIED
    assert not site.folder.exists() and federation.journal.client(site.name) is None
    before = set(federation.parts.digests())
    found = look(enrolled(site))
    assert {f.state for f in found.values()} == {OK}
    assert found["sign-in"].found.startswith(f"enrolled as {site.name}") and "MB/s" in found["parts"].found
    assert set(federation.parts.digests()) == before
    assert "60 samples in blobs" in found["data"].found


BEHIND_LINE = ("tls", "version", "clock", "sign-in", "parts")


def test_a_host_that_nobody_knows(site: AgentSettings) -> None:
    told = broken(look(replace(site, coordinator="no.such.host.invalid:7800", insecure=True)), "name", "line", *BEHIND_LINE)
    assert "no.such.host.invalid has no address" in told.found and "DNS" in told.todo


def test_a_closed_port(site: AgentSettings) -> None:
    port = free_port()
    told = broken(look(replace(site, coordinator=f"127.0.0.1:{port}")), "line", *BEHIND_LINE)
    assert f"no answer from 127.0.0.1:{port}" in told.found and "7800" in told.todo


def test_one_of_two_coordinators(opened: tuple[Federation, int], site: AgentSettings) -> None:
    both = f"127.0.0.1:{free_port()},127.0.0.1:{opened[1]}"
    found = list(checkup(replace(site, coordinator=both)))
    assert [f.state for f in found if f.check == "line"] == [WARNING, OK]
    assert not any(f.state is FAILED for f in found)


def test_a_token_that_was_cut(site: AgentSettings) -> None:
    told = broken(look(replace(site, token=site.token[:-3])), "settings", "name", "line", "way", *BEHIND_LINE)
    assert "not whole" in told.found and "Copy all of it" in told.todo


def with_token(site: AgentSettings, secret: str) -> AgentSettings:
    told = read_token(site.token)
    return replace(site, token=replace(told, secret=secret).text)


def test_a_token_that_nobody_made(site: AgentSettings) -> None:
    told = broken(look(with_token(site, "A" * 32)), "sign-in", "parts")
    assert "not known here" in told.found and "tideline invite" in told.todo


def test_a_token_that_has_expired(opened: tuple[Federation, int], site: AgentSettings) -> None:
    federation, _ = opened
    federation.clock.advance(61.0)
    told = broken(look(site), "sign-in", "parts")
    assert "expired" in told.found and "tideline invite" in told.todo


def test_a_token_that_was_used(opened: tuple[Federation, int], site: AgentSettings, tmp_path: Path) -> None:
    federation, _ = opened
    secret = federation.run_service.invite("", {}, 60.0)
    enrolled(with_token(replace(site, name="early-bird", home=tmp_path / "other"), secret))
    told = broken(look(with_token(site, secret)), "sign-in", "parts")
    assert "was used by 'early-bird'" in told.found and "ask for a new one" in told.todo


def test_neither_keys_nor_a_token(opened: tuple[Federation, int], site: AgentSettings) -> None:
    told = broken(look(replace(site, token="", coordinator=f"127.0.0.1:{opened[1]}")), "sign-in", "parts")
    assert "holds no keys" in told.found and f"tideline invite --name {site.name}" in told.todo


def test_keys_that_others_can_read(site: AgentSettings) -> None:
    there = enrolled(site)
    (there.folder / identity.KEYS).chmod(0o644)
    told = broken(look(there), "sign-in", "parts")
    assert "Others may read the keys" in told.found and "chmod 600" in told.todo


def test_a_rotation_that_was_cut(site: AgentSettings) -> None:
    """The coordinator has the new keys, and the home does not know it yet: an agent finds out, and so does the doctor."""
    there = enrolled(site)
    fresh = identity.next_keys(there.folder)
    with closing(GrpcLink(find(there).endpoints, there.name, identity.keys(there.folder), threading.Event())) as link:
        link.rotate(fresh, lambda: None)
    found = look(there)
    assert {f.state for f in found.values()} == {OK} and fresh.fingerprint in found["sign-in"].found


def test_a_client_that_was_revoked(opened: tuple[Federation, int], site: AgentSettings) -> None:
    there = enrolled(site)
    opened[0].run_service.revoke(site.name, "moved away")
    told = broken(look(there), "sign-in", "parts")
    assert "was revoked on" in told.found and "moved away" in told.found and "new invitation" in told.todo


def test_a_client_that_waits_for_approval(opened: tuple[Federation, int], site: AgentSettings) -> None:
    secret = opened[0].run_service.enrolment.invite(site.name, {}, 60.0, hold=True)
    found = look(enrolled(with_token(site, secret)))
    assert found["sign-in"].state is WARNING and f"tideline clients approve {site.name}" in found["sign-in"].todo
    assert found["parts"].state is NOT_TRIED


@pytest.mark.parametrize(("off", "way"), [(86400.0, "24 h ahead of"), (-86400.0, "24 h behind")])
def test_a_clock_that_is_off_by_a_day(site: AgentSettings, off: float, way: str) -> None:
    """This machine's or the coordinator's: the agent works, but somebody should look at it."""
    found = look(site, lambda: time.time() + off)
    assert found["clock"].state is WARNING and way in found["clock"].found and "NTP" in found["clock"].todo


def test_the_store_is_tried_some_times_a_minute(blobs: Path, tmp_path: Path) -> None:
    with grpc_port_of() as (free, _):
        limits = Limits(LocalCounts(), free.clock, probes=1)
    with grpc_port_of(limits) as (federation, port):
        token = Token(federation.run_service.invite("dora", {}, 60.0), (f"127.0.0.1:{port}",)).text
        there = enrolled(AgentSettings("", blobs, (Role.SOURCE,), "dora", token, tmp_path / "home", device="cpu"))
        assert look(there)["parts"].state is OK
        again = look(there)["parts"]
        assert again.state is NOT_TRIED and "1 times within a minute" in again.found


def test_an_older_coordinator(site: AgentSettings) -> None:
    mute = Mute()
    try:
        told = broken(look(replace(site, coordinator=f"127.0.0.1:{mute.port}")), "sign-in", "parts")
        assert "too old to say" in told.found
    finally:
        mute.over.set()
        mute.server.stop(None)


# Data, device, disk


def test_an_empty_data_folder(site: AgentSettings, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    told = broken(look(replace(site, data=tmp_path / "empty")), "data", "parts")
    assert "no folder of images" in told.found and "Put the data of each domain" in told.todo


def test_a_data_folder_that_is_not_there(site: AgentSettings, tmp_path: Path) -> None:
    told = broken(look(replace(site, data=tmp_path / "nowhere")), "data", "parts")
    assert "is not a folder" in told.found and "holds the site's data" in told.todo


def test_data_that_cannot_be_read(site: AgentSettings, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "scan.npz").write_bytes(b"no zip")
    told = broken(look(replace(site, data=tmp_path / "bad")), "data", "parts")
    assert "scan.npz" in told.found


def test_labels_that_tell_no_world(site: AgentSettings, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "scan.npz", x=np.ones((8, 2)), y=np.array([19850412123456, 1] * 4))
    told = look(replace(site, data=tmp_path / "data"))["data"]
    assert told.state is WARNING and "8 samples in scan" in told.found and "--world FILE" in told.todo


def test_a_check_that_fails_by_itself(site: AgentSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told as one that failed, and the others are made all the same."""

    def unforeseen(*_: object) -> None:
        raise MemoryError("4 EB")

    monkeypatch.setattr(np, "unique", unforeseen)
    told = broken(look(site), "data", "parts")
    assert "MemoryError: 4 EB" in told.found


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_a_gpu_that_is_not_there(site: AgentSettings) -> None:
    told = broken(look(replace(site, device="cuda")), "device", "parts")
    assert "--device cuda" in told.found and "--device cpu" in told.todo


def test_a_home_that_cannot_be_written(site: AgentSettings, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = look(replace(site, home=tmp_path / "file" / "home"))
    assert found["disk"].state is FAILED
    assert "no folder that may be written" in found["disk"].found and "--home" in found["disk"].todo
    assert found["settings"].state is FAILED and "Not a directory" in found["settings"].found


@pytest.mark.parametrize(("free", "state"), [(5e8, WARNING), (5e7, FAILED)])
def test_a_disk_that_is_full(site: AgentSettings, monkeypatch: pytest.MonkeyPatch, free: float, state: State) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    found = look(site)
    assert found["disk"].state is state and "Free some space" in found["disk"].todo


# TLS


def issued(folder: Path, host: str = "127.0.0.1") -> tuple[bytes, bytes]:
    """Key and chain of a coordinator, by an authority of its own."""
    certificates.issue_coordinator(folder, [host])
    return (folder / "coordinator.key").read_bytes(), (folder / "coordinator.pem").read_bytes()


def pin(folder: Path) -> bytes:
    """What a token says of an authority."""
    return x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes()).fingerprint(SHA256())


def secured(blobs: Path, home: Path, federation: Federation, port: int, authority: bytes) -> AgentSettings:
    """An agent whose token pins an authority."""
    token = Token(federation.run_service.invite("nina", {}, 60.0), (f"127.0.0.1:{port}",), Trust.PINNED, authority).text
    return AgentSettings("", blobs, (Role.SOURCE,), "nina", token, home, device="cpu")


BEHIND_TLS = ("version", "clock", "sign-in", "parts")


def test_a_pinned_authority(blobs: Path, tmp_path: Path) -> None:
    """The certificate is named, and until when it is good; the right pin, another pin, and another --ca."""
    with grpc_port_of(tls=issued(tmp_path / "tls")) as (federation, port):
        good = secured(blobs, tmp_path / "home", federation, port, pin(tmp_path / "tls"))
        found = look(good)
        assert found["sign-in"].state is OK and "CN=coordinator" in found["tls"].found and "good until" in found["tls"].found
        issued(tmp_path / "others")
        told = broken(look(secured(blobs, tmp_path / "home", federation, port, pin(tmp_path / "others"))), "tls", *BEHIND_TLS)
        assert "another authority" in told.found and "new token" in told.todo
        told = broken(look(replace(good, ca=tmp_path / "others" / "ca.pem")), "tls", *BEHIND_TLS)
        assert "is not to be trusted" in told.found and "--ca" in told.todo


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_an_authority_with_a_comment(blobs: Path, tmp_path: Path, encoding: str) -> None:
    """What people write beside the certificate is nothing to anybody, in whatever letters, also where the home remembers it."""
    with grpc_port_of(tls=issued(tmp_path / "tls")) as (federation, port):
        ca = tmp_path / "ca.pem"
        ca.write_bytes("Behörde für Zürich\n".encode(encoding) + (tmp_path / "tls" / "ca.pem").read_bytes() + b"\n\xff\n")
        good = replace(secured(blobs, tmp_path / "home", federation, port, pin(tmp_path / "tls")), ca=ca)
        assert {f.state for f in look(good).values() if f.check != "parts"} == {OK}
        assert {f.state for f in look(enrolled(good)).values()} == {OK}
        assert recall(good.folder).ca.isascii()  # type: ignore[union-attr]


def test_a_certificate_of_another_host(blobs: Path, tmp_path: Path) -> None:
    with grpc_port_of(tls=issued(tmp_path, "elsewhere.example")) as (federation, port):
        told = broken(look(secured(blobs, tmp_path / "home", federation, port, pin(tmp_path))), "tls", *BEHIND_TLS)
        assert "mismatch" in told.found and "tideline tls init --host" in told.todo


def test_a_certificate_that_has_expired(blobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "LEAF_DAYS", -0.02)
    with grpc_port_of(tls=issued(tmp_path)) as (federation, port):
        told = broken(look(secured(blobs, tmp_path / "home", federation, port, pin(tmp_path))), "tls", *BEHIND_TLS)
        assert "has expired" in told.found and "renew the certificate" in told.todo
    monkeypatch.setattr(certificates, "LEAF_DAYS", 2)
    with grpc_port_of(tls=issued(tmp_path)) as (federation, port):
        found = look(secured(blobs, tmp_path / "home", federation, port, pin(tmp_path)))
        assert found["tls"].state is WARNING and "Renew it soon" in found["tls"].todo and found["sign-in"].state is OK


def test_tls_where_there_is_none(opened: tuple[Federation, int], site: AgentSettings, tmp_path: Path) -> None:
    issued(tmp_path / "tls")
    there = secured(site.data, tmp_path / "home", *opened, pin(tmp_path / "tls"))
    told = broken(look(there), "tls", *BEHIND_TLS)
    assert "does not answer with TLS" in told.found


# The command


def command(settings: AgentSettings, *more: str) -> list[str]:
    """An agent's options behind `doctor`."""
    where = ["--data", str(settings.data), "--name", settings.name, "--home", str(settings.folder), "--role", "source"]
    return ["doctor", *where, "--token", settings.token, "--device", "cpu", *more]


def test_the_command(site: AgentSettings) -> None:
    """A line for each check and an end; the options are the agent's, also those that do not matter here."""
    done = tide(*command(site, "--wait", "3", "--parallel", "2", "--no-notes"))
    assert done.exit_code == 0, done.output
    assert [line.split("  ")[0].strip() for line in done.output.splitlines()[: len(NAMES)]].count("ok") == len(NAMES) - 1
    assert done.output.splitlines()[-1] == "An agent can work with these options."
    assert "no notes of the work are sent" in done.output


def test_the_command_for_programs(site: AgentSettings) -> None:
    done = tide(*command(replace(site, data=site.data / "nowhere"), "--json"))
    told = json.loads(done.stdout)
    assert done.exit_code == 5 and told["sound"] is False
    (failed,) = (each for each in told["checks"] if each["state"] == "failed")
    assert failed["check"] == "data" and failed["todo"]


def test_images_that_cannot_be_read(site: AgentSettings, tmp_path: Path) -> None:
    """Refused as an agent refuses them; a warning where the owner has said that they are left out."""
    from PIL import Image

    for i in range(8):
        folder = tmp_path / "photos" / "scans" / str(i % 2)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), 30 * i, np.uint8)).save(folder / f"{i}.png")
    (tmp_path / "photos" / "scans" / "0" / "torn.png").write_bytes(b"\x89PNG")
    told = broken(look(replace(site, data=tmp_path / "photos")), "data", "parts")
    assert "1 of 9 images cannot be read" in told.found and "tideline data check" in told.todo
    (tmp_path / "photos" / "transforms.toml").write_text('[scans]\nunreadable = "skip"\n')
    found = look(replace(site, data=tmp_path / "photos"))
    assert found["data"].state is WARNING and "tideline data check" in found["data"].todo
