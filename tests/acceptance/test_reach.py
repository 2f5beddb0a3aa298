"""Where an agent looks for its coordinators: what was given, what is announced, and what it makes of either."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from structlog.testing import capture_logs

from tests.acceptance.test_doctor import issued
from tests.listening import listening
from tests.server.grpc_port import grpc_port_of
from tests.services import free_port
from tideline.core.errors import ConfigRefused, Refused, Unreachable
from tideline.core.run import Role
from tideline.core.tokens import MOST_ANNOUNCED, Token, Trust
from tideline.engine.simulation.federation import Federation
from tideline_agent.discovery import find, introduced
from tideline_agent.home import identity
from tideline_agent.home.identity import Memo, recall, remember
from tideline_agent.link import Announcement, Endpoints, GrpcLink
from tideline_agent.main import admission
from tideline_agent.reach import OwnFiles, Reach
from tideline_agent.reach.announced import announced_in
from tideline_agent.settings import AgentSettings, check
from tideline_server.rpc.announcing import Announcement as Said

PLAIN = Endpoints(("127.0.0.1:1",))


@dataclass
class Doors:
    """Ports of one federation, each of which can be closed, and what all of them announce."""

    said: Said = field(default_factory=Said)
    federation: Federation | None = None
    tls: tuple[bytes, bytes] | None = None
    open: dict[str, ExitStack] = field(default_factory=dict)

    def door(self) -> str:
        stack = ExitStack()
        self.federation, port = stack.enter_context(grpc_port_of(tls=self.tls, said=lambda: self.said, of=self.federation))
        self.open[address := f"127.0.0.1:{port}"] = stack
        return address

    def close(self, address: str) -> None:
        self.open.pop(address).close()

    def token(self, address: str, name: str, trust: Trust = Trust.PLAIN, authority: bytes = b"") -> str:
        """An invitation that names an address."""
        assert self.federation is not None
        return Token(self.federation.run_service.invite(name, {}, 60.0), (address,), trust, authority).text


@pytest.fixture
def doors() -> Iterator[Doors]:
    made = Doors()
    yield made
    for address in list(made.open):
        made.close(address)


class Site:
    """An agent without work: it enrols, gives signs of life, and looks for coordinators when it is told to."""

    def __init__(self, settings: AgentSettings) -> None:
        self.settings = settings
        found = find(settings)
        self.stop, keys = threading.Event(), identity.keys(settings.folder)
        endpoints = introduced(found, lambda fetch: fetch())
        session = str(identity.new_session(settings.folder))
        self.link = GrpcLink(endpoints, settings.name, keys, self.stop, session=session)
        self.reach = Reach(settings, found.memo, self.link)
        self.link.hearing = self.reach
        self.keys = keys

    def enrol(self) -> Site:
        assert admission(self.link, self.settings, self.keys, self.reach.note)
        return self

    def beat(self) -> bool:
        try:
            self.link.beat({})
        except Unreachable:
            return False
        return True

    @property
    def memo(self) -> Memo:
        found = recall(self.settings.folder)
        assert found is not None
        return found


@pytest.fixture
def site(doors: Doors, tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Enrolled by a token that names an address; more: settings."""
    with ExitStack() as stack:

        def started(address: str, **more: object) -> Site:
            name = f"site-{tmp_path.name}"[:60]
            home = tmp_path / "home"
            home.mkdir(mode=0o700, exist_ok=True)
            given = {"token": doors.token(address, name), "wait": 0.0, "home": home} | more
            coordinator = str(given.pop("coordinator", ""))
            made = Site(AgentSettings(coordinator, tmp_path, (Role.SOURCE,), name, **given))  # type: ignore[arg-type]
            stack.enter_context(closing(made.link))
            return made.enrol()

        yield started


def test_an_agent_finds_its_coordinator_at_another_address(doors: Doors, site: Callable[..., Site]) -> None:
    """What was announced is called once nobody answers; what is announced no more is forgotten then, and so after a restart."""
    old = doors.door()
    doors.said = Said((old,))
    there = site(old)
    new = doors.door()
    doors.said = Said((new,))
    assert there.beat() and there.link.address == old, "as long as it answers, it is called"
    assert there.memo.addresses == (old,) and there.memo.others == (new,)
    assert doors.federation is not None
    doors.close(old)
    assert not there.beat() and there.link.lost.is_set()
    assert there.reach.search() and there.link.address == new and there.beat() and not there.link.lost.is_set()
    assert there.memo.addresses == (new,) and there.memo.others == ()
    there.link.close()
    again = Site(there.settings)
    with closing(again.link):
        assert again.link.endpoints.addresses == (new,), "the token that the agent is still started with names the old one"
        assert again.enrol().beat()


def test_addresses_that_were_given_stay(doors: Doors, site: Callable[..., Site]) -> None:
    """First, whatever is announced; until the owner gives others, which begins anew."""
    old, new = doors.door(), doors.door()
    doors.said = Said((new,))
    there = site(old, coordinator=old)
    doors.close(old)
    assert not there.beat() and there.reach.search() and there.beat()
    assert there.memo.addresses == (old, new) and there.memo.given == (old,)
    assert find(replace(there.settings, token="")).endpoints.addresses == (old, new)
    assert find(replace(there.settings, token="", coordinator="")).endpoints.addresses == (old, new)
    other = find(replace(there.settings, token="", coordinator="127.0.0.1:9"))
    assert other.called == ("127.0.0.1:9",)


def test_an_owner_pins_addresses(doors: Doors, site: Callable[..., Site]) -> None:
    """Then nothing is taken up, what was taken up before is not called, and the coordinator knows that it is so."""
    old, new = doors.door(), doors.door()
    doors.said = Said((new,))
    there = site(old, coordinator=old)
    assert there.beat() and there.memo.others == (new,)
    there.link.close()
    pinned = Site(replace(there.settings, pin_addresses=True, token=""))
    with closing(pinned.link):
        assert pinned.enrol().beat() and pinned.reach.has == (doors.said.id, True)
        assert pinned.memo.addresses == (old,) and pinned.memo.announced == ()
        doors.close(old)
        assert not pinned.beat() and not pinned.reach.search() and pinned.link.address == old
    with pytest.raises(ConfigRefused, match="--pin-addresses needs the addresses"):
        check(replace(there.settings, pin_addresses=True, coordinator=""))


def mute(server: socket.socket) -> None:
    """A service that says something else, and hangs up."""
    while True:
        try:
            line, _ = server.accept()
        except OSError:
            return
        with line:
            line.sendall(b"220 mail.example ESMTP\r\n")


def test_an_address_at_which_nobody_or_somebody_else_answers(doors: Doors, site: Callable[..., Site]) -> None:
    """It is in nobody's way: a closed port, another service, and a coordinator of others, which knows no such agent."""
    old = doors.door()
    with listening(mute) as other, grpc_port_of() as (_, foreign):
        doors.said = Said((f"127.0.0.1:{free_port()}", f"127.0.0.1:{other}", f"127.0.0.1:{foreign}"))
        there = site(old)
        assert there.beat() and len(there.memo.others) == 3
        with capture_logs() as lines:
            assert not there.reach.search() and not there.reach.search()
        assert [line["event"] for line in lines] == ["address_tried"] * 3, "each is told once"
        assert there.link.address == old and there.beat() and there.memo.addresses == (old,)


def test_a_new_start_while_the_given_address_is_dead(doors: Doors, site: Callable[..., Site]) -> None:
    """What the home has learned is tried, also by an agent that has just begun."""
    old, new = doors.door(), doors.door()
    doors.said = Said((new, old))
    there = site(old, coordinator=old)
    assert there.beat()
    there.link.close()
    doors.close(old)
    again = Site(there.settings)
    with closing(again.link):
        with pytest.raises(Unreachable):
            again.enrol()
        assert again.reach.search() and again.enrol().beat()


def test_it_is_looked_for_beside_the_work(doors: Doors, site: Callable[..., Site]) -> None:
    """The thread that an agent has for it: from the first call that fails to another address."""
    old, new = doors.door(), doors.door()
    doors.said = Said((new, old))
    there = site(old)
    there.reach.begin(there.stop)
    doors.close(old)
    while there.link.address != new:
        there.beat()
    assert there.beat()


BAD = {
    "too many": (tuple(f"h{i}:1" for i in range(MOST_ANNOUNCED + 1)), "17 addresses are announced"),
    "no port": (("coordinator.example",), "cannot be called"),
    "no number": (("a:port",), "cannot be called"),
    "a user": (("https://ann:secret@a",), "cannot be called"),
    "a file": (("file:///etc/passwd",), "cannot be called"),
    "spaces": (("a b:1",), "cannot be called"),
    "a line": (("a:1\nevil:2",), "odd characters"),
    "too long": (("a" * 300 + ":1",), "too long"),
    "letters of others": (("а:1",), "odd characters"),
    "in the clear": (("coordinator.example:7800",), "without TLS"),
    "http": (("http://coordinator.example",), "without TLS"),
}


@pytest.mark.parametrize(("addresses", "words"), BAD.values(), ids=BAD)
def test_what_is_malformed_is_refused(addresses: tuple[str, ...], words: str) -> None:
    with pytest.raises(Refused, match=words):
        announced_in(Announcement(id="1", addresses=addresses), PLAIN, insecure=False)


def test_started_with_tls_nothing_is_called_in_the_clear() -> None:
    """Not even where the owner allows it for others, and not on this machine. What is spoken to over TLS may be anywhere."""
    known = Endpoints(("a:1",), system=True)
    for insecure in (False, True):
        with pytest.raises(Refused, match="in the clear"):
            announced_in(Announcement(addresses=["http://127.0.0.1:80"]), known, insecure)
    mixed = ["http://127.0.0.1:80", "a.example:7800", "https://b"]
    assert announced_in(Announcement(addresses=mixed), known, insecure=True).addresses == ("a.example:7800", "https://b")
    assert announced_in(Announcement(addresses=mixed[1:]), PLAIN, insecure=False).addresses == ("https://b",)
    good = ["coordinator.example:7800", "https://b.example/tideline", "[2001:db8::1]:7800"]
    assert announced_in(Announcement(addresses=[*good, good[0]]), known, insecure=False).addresses == tuple(good)
    assert announced_in(Announcement(addresses=["b.example:1", "http://b"]), PLAIN, insecure=True).addresses == (
        "b.example:1",
        "http://b",
    )


def test_a_refusal_is_told_once_and_changes_nothing(doors: Doors, site: Callable[..., Site]) -> None:
    old = doors.door()
    doors.said = Said(("nonsense",))
    with capture_logs() as lines:
        there = site(old)
        assert there.beat() and there.beat()
    assert sum(line["event"] == "announcement_refused" for line in lines) == 1
    assert there.reach.has == (doors.said.id, True) and there.memo.others == () and there.memo.addresses == (old,)


def test_a_home_that_cannot_be_written(doors: Doors, site: Callable[..., Site]) -> None:
    """As on a full disk: the agent goes on with what it has heard, says so once, and writes it when it can."""
    old, new = doors.door(), doors.door()
    there = site(old)
    in_the_way = there.settings.folder / "coordinator.json.tmp"
    in_the_way.mkdir()
    doors.said = Said((new,))
    with capture_logs() as lines:
        assert there.beat() and there.beat()
    assert sum(line["event"] == "addresses_not_written" for line in lines) == 1
    assert there.memo.others == () and there.reach.memo.others == (new,)
    in_the_way.rmdir()
    assert there.beat() and there.memo.others == (new,)


def test_a_home_of_an_older_version(tmp_path: Path) -> None:
    """Its addresses count as given: nobody knows better. What is no such file is refused."""
    path = tmp_path / "coordinator.json"
    path.write_text(json.dumps({"name": "a", "addresses": ["a:1"], "trust": "plain", "ca": ""}))
    found = recall(tmp_path)
    assert found == Memo("a", ("a:1",), "plain", given=("a:1",)) and found.others == ()
    path.write_text("[1]")
    with pytest.raises(Refused, match="is damaged"):
        recall(tmp_path)


# Authorities, and the owner's files


def pin(folder: Path) -> bytes:
    return x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes()).fingerprint(SHA256())


def secured(doors: Doors, tls: Path, tmp_path: Path, **more: object) -> Site:
    """An agent whose token pins an authority, enrolled at a port of its own."""
    doors.tls = issued(tls)
    address = doors.door()
    (tmp_path / "home").mkdir(mode=0o700)
    token = doors.token(address, "nina", Trust.PINNED, pin(tls))
    settings = AgentSettings("", tmp_path, (Role.SOURCE,), "nina", token, tmp_path / "home", wait=0.0, **more)  # type: ignore[arg-type]
    return Site(settings).enrol()


def test_another_authority_is_taken_up_before_it_signs(doors: Doors, tmp_path: Path) -> None:
    """Both for a while, then the new one alone; after a restart with the first token, too, which names the old one."""
    there = secured(doors, tmp_path / "old", tmp_path)
    old, (key, chain) = (tmp_path / "old" / "ca.pem").read_bytes(), issued(tmp_path / "new")
    new = (tmp_path / "new" / "ca.pem").read_bytes()
    (first,) = there.link.endpoints.addresses
    with closing(there.link):
        doors.tls = key, chain
        second = doors.door()
        doors.said = Said((first, second), (old + new).decode())
        assert there.beat() and there.link.endpoints.roots == old + new and there.reach.has == (doors.said.id, False)
        doors.close(first)
        assert not there.beat() and there.reach.search() and there.link.address == second and there.beat()
        doors.said = Said((second,), new.decode())
        assert there.beat() and there.link.endpoints.roots == new and there.beat()
        assert there.memo.ca.encode() == new and there.memo.addresses == (second,)
    again = Site(there.settings)
    with closing(again.link):
        assert again.link.endpoints.roots == new and again.enrol().beat()


def test_an_address_behind_another_authority(doors: Doors, tmp_path: Path) -> None:
    """Who is there is not believed, and the agent goes on where it was."""
    there = secured(doors, tmp_path / "tls", tmp_path)
    own = there.link.address
    with closing(there.link), grpc_port_of(tls=issued(tmp_path / "others"), of=doors.federation) as (_, port):
        doors.said = Said((f"127.0.0.1:{port}",), (tmp_path / "tls" / "ca.pem").read_text())
        assert there.beat() and there.memo.others
        assert not there.reach.search() and there.link.address == own and there.beat()


def test_authorities_of_which_none_is_known(doors: Doors, tmp_path: Path) -> None:
    there = secured(doors, tmp_path / "tls", tmp_path)
    issued(tmp_path / "others")
    before, foreign = there.link.endpoints.roots, (tmp_path / "others" / "ca.pem").read_text()
    with closing(there.link):
        for text in (foreign, "-----BEGIN", foreign * 9 + (tmp_path / "tls" / "ca.pem").read_text(), "x" * (1 << 17)):
            doors.said = Said((), text)
            with capture_logs() as lines:
                assert there.beat() and there.reach.has == (doors.said.id, True)
            assert [line["event"] for line in lines] == ["announcement_refused"]
            assert there.link.endpoints.roots == before


def test_an_authority_that_the_owner_names_stays(doors: Doors, tmp_path: Path) -> None:
    """Others are announced and not taken up, which the coordinator knows, until the owner's file has them: without a restart."""
    ca = tmp_path / "trusted.pem"
    issued(tmp_path / "tls")
    ca.write_bytes((tmp_path / "tls" / "ca.pem").read_bytes())
    there = secured(doors, tmp_path / "tls", tmp_path, ca=ca)
    issued(tmp_path / "new")
    with closing(there.link):
        both = ca.read_bytes() + (tmp_path / "new" / "ca.pem").read_bytes()
        doors.said = Said((), both.decode())
        assert there.beat() and there.reach.has == (doors.said.id, True)
        ca.write_bytes(both[:200])
        with capture_logs() as lines:
            there.reach.reload()
            there.reach.reload()
            there.reach.reload()
        assert [line["event"] for line in lines] == ["certificate_not_renewed"] and there.beat()
        ca.write_bytes(both)
        there.reach.reload()
        assert there.link.endpoints.roots == both and there.beat() and there.memo.ca.encode() == both


def test_an_agents_own_certificate_is_taken_up(tmp_path: Path) -> None:
    """Whole, or not at all: half a file, another key, one that has ended."""
    from tideline.client.certificates import issue_client

    issued(tmp_path)
    issue_client(tmp_path, "nina")
    cert, key = tmp_path / "nina.pem", tmp_path / "nina.key"
    settings = AgentSettings("a:1", tmp_path, (), "nina", tls_cert=cert, tls_key=key, ca=tmp_path / "ca.pem")
    before = find(settings).endpoints
    days = [0.0]

    def now() -> float:
        return x509.load_pem_x509_certificate(cert.read_bytes()).not_valid_after_utc.timestamp() + days[0]

    files = OwnFiles(settings, now)
    assert files.read(before) is None, "nothing has changed"
    former = key.read_bytes()
    issue_client(tmp_path, "nina")
    with capture_logs() as lines:
        assert files.read(before) is None and files.read(before) is None, "it has ended by this clock"
        days[0] = -60.0
        own, fresh = cert.read_bytes(), key.read_bytes()
        key.write_bytes(former)
        assert files.read(before) is None and files.read(before) is None
        cert.write_bytes(own[:100])
        assert files.read(before) is None and files.read(before) is None
        cert.unlink()
        assert files.read(before) is None and files.read(before) is None
    reasons = [line["reason"] for line in lines]
    assert (
        len(reasons) == 4 and "and not now" in reasons[0] and "is not the key of" in reasons[1] and "cannot be read" in reasons[3]
    )
    cert.write_bytes(own)
    key.write_bytes(fresh)
    found = files.read(before)
    assert found is not None and found.own == (fresh, own) and files.read(found) is None


def test_a_memo_that_is_the_same_is_not_written_again(tmp_path: Path) -> None:
    remember(tmp_path, Memo("a", ("a:1",), "plain"))
    before = (tmp_path / "coordinator.json").stat().st_ino
    remember(tmp_path, Memo("a", ("a:1",), "plain"))
    assert (tmp_path / "coordinator.json").stat().st_ino == before
