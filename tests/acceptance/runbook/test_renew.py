"""Certificates and their authority are renewed while agents stream and a run is under way: nobody is started again."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.runbook.book import ROSTER, Book, plays
from tests.services import free_port
from tideline.client.certificates import issue_client
from tideline.client.http import Client
from tideline.core.errors import Unreachable
from tideline_agent.link import Endpoints
from tideline_agent.link.tls import chain

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]
RENEW, AUTHORITY = "Renew certificates", "Renew the authority"


def federation(book: Book, *more: str) -> dict[str, str]:
    """A coordinator with all its ports, three agents with certificates, one of them over HTTPS; the ports' addresses."""
    tls, lane = Path(book.spelt("/srv/tls")), free_port()
    (tls / "trusted.pem").write_bytes((tls / "ca.pem").read_bytes())
    given = ("--tls-client-ca", str(tls / "ca.pem"), "--bulk", str(lane), "--agents-over-http", *more)
    book.coordinator(*given, "--tls-ca", str(tls / "trusted.pem"))
    http = f"https://127.0.0.1:{book.ports['http']}"
    for name in ROSTER:
        issue_client(tls, name)
        own = ("--tls-cert", str(tls / f"{name}.pem"), "--tls-key", str(tls / f"{name}.key"))
        book.agent(name, *own, *(("--coordinator", http) if name == "hospital-c" else ()))
    return {"grpc": f"127.0.0.1:{book.ports['grpc']}", "http": http, "bulk": f"https://127.0.0.1:{lane}"}


def shown(book: Book, address: str, authority: str = "tls") -> str:
    """The number of the certificate that a port shows to an agent; nothing where it shows none."""
    tls = Path(book.spelt("/srv/tls"))
    own = (tls / "hospital-a.key").read_bytes(), (tls / "hospital-a.pem").read_bytes()
    try:
        return f"{chain(address, Endpoints((address,), own=own))[0].serial_number:x}"
    except (Unreachable, IndexError):
        return ""


def all_show_another(book: Book, ports: dict[str, str], before: dict[str, str]) -> Callable[[], bool]:
    def they_do() -> bool:
        now = {name: shown(book, address) for name, address in ports.items()}
        return all(now[name] not in ("", before[name]) for name in ports) and len(set(now.values())) == 1

    return they_do


def fingerprint_of(book: Book) -> str:
    """That of the coordinator's file, as openssl prints it."""
    return book.shell("openssl x509 -noout -fingerprint -in /srv/tls/coordinator.pem").strip()


def warned(client: Client) -> str:
    return " ".join(client.get("/ready")["warnings"])


@plays(RENEW, 0, 1, 2)
def test_certificates_are_renewed(book: Book, undisturbed: str) -> None:
    """All four ports show the new one, also after files that were no good; the streams that were open go on."""
    ports = federation(book)
    client, tls = book.client(), Path(book.spelt("/srv/tls"))
    run = book.begin(client)
    before = {name: shown(book, address) for name, address in ports.items()}
    assert len(set(before.values())) == 1 and "" not in before.values()
    whole = (tls / "coordinator.pem").read_bytes()
    (tls / "coordinator.pem").write_bytes(whole[:400])
    book.net.until(lambda: "a new certificate cannot be used" in warned(client), "the coordinator to say what is wrong")
    assert "certificate_not_renewed" in book.net.log("coordinator")
    assert {name: shown(book, address) for name, address in ports.items()} == before, "the old one is shown"
    (tls / "coordinator.pem").write_bytes(whole)
    book.play(RENEW, 0)
    book.net.until(all_show_another(book, ports, before), "all ports to show the new one")
    assert book.play(RENEW, 1).count(fingerprint_of(book).partition("=")[2]) == 2
    assert "a new certificate" not in warned(client)
    book.play(RENEW, 2)
    book.heard("hospital-b", "certificate_renewed")
    book.completed(client, run, undisturbed)
    assert not any("coordinator_away" in book.net.log(name) for name in ROSTER), "no stream was cut"
    # From here on all connect anew, with what they have taken up.
    book.stop()
    book.again()
    assert book.ended(book.client(), book.begin(book.client()))["state_digest"] == undisturbed


@plays(AUTHORITY, 0, 1, 2, 3, 4)
def test_the_authority_is_renewed(book: Book, undisturbed: str) -> None:
    """Both are announced, then the new one signs, then the old one goes; agents come back by the new one alone."""
    ports = federation(book)
    run = book.begin(book.client())
    before = {name: shown(book, address) for name, address in ports.items()}
    book.play(AUTHORITY, 0)
    book.net.until(lambda: "have not told" not in book.play(AUTHORITY, 1), "all to follow")
    book.play(AUTHORITY, 2)
    book.net.until(all_show_another(book, ports, before), "all ports to show the new one")
    assert all(name in book.play(AUTHORITY, 3) for name in ROSTER)
    book.play(AUTHORITY, 4)
    new = Path(book.spelt("/srv/tls-2/ca.pem")).read_text()
    homes = [Path(book.spelt("/srv/agents")) / name / "coordinator.json" for name in ROSTER]
    book.net.until(lambda: all(json.loads(home.read_text())["ca"] == new for home in homes), "all to forget the old one")
    book.stop()
    book.again()
    client = book.client(ca="/srv/tls-2/ca.pem")
    book.completed(client, run, undisturbed)


def test_renewed_over_and_over_under_calls(book: Book) -> None:
    """Whoever calls while certificates are exchanged is answered: no call meets a port that is closed, or without a key."""
    ports = federation(book)
    failed: list[str] = []
    over = threading.Event()

    def call(address: str) -> None:
        while not over.is_set():
            if not shown(book, address):
                failed.append(address)

    threads = [threading.Thread(target=call, args=(address,)) for address in ports.values()]
    for each in threads:
        each.start()
    try:
        for _ in range(3):
            before = {name: shown(book, address) for name, address in ports.items()}
            book.play(RENEW, 0)
            book.net.until(all_show_another(book, ports, before), "all ports to show the new one")
    finally:
        over.set()
        for each in threads:
            each.join()
    assert failed == []
