"""An agent's keys: in its home, over a line, and through rotations that are cut anywhere."""

from __future__ import annotations

import json
import queue
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import grpc
import pytest

from tests.server.grpc_port import grpc_port_of
from tests.synthetic import experiment
from tideline.archive import sealing
from tideline.core.errors import ConfigRefused, IdentityRefused, Refused, TooMany, Unreachable, VersionRefused
from tideline.core.run import Role
from tideline.core.tokens import Token, Trust
from tideline.engine.coordinator.enrolment import FRESH_SECONDS
from tideline.engine.coordinator.idempotency import Identity
from tideline.engine.model.accounts import Keys as TheirKeys
from tideline.engine.peers.peer_keys import MOST_FORMER
from tideline.engine.simulation.adapters import ManualClock
from tideline.engine.simulation.federation import Federation
from tideline_agent.discovery import find, note
from tideline_agent.home import identity
from tideline_agent.home.identity import Keys, receive_pem
from tideline_agent.link import Endpoints, GrpcLink, authority
from tideline_agent.main import Rotation, admission
from tideline_agent.settings import AgentSettings, check
from tideline_protos.v1 import federation_pb2 as pb
from tideline_server.bell import LocalCounts
from tideline_server.limits import Limits
from tideline_server.rpc import SERVICE


class Killed(BaseException):
    """The process ends here."""


def die() -> None:
    raise Killed


@pytest.fixture(scope="module")
def opened() -> Iterator[tuple[Federation, int]]:
    with grpc_port_of() as made:
        yield made


class Site:
    """An agent's home and its lines. Each `started` is another process of it."""

    def __init__(self, federation: Federation, port: int, home: Path, name: str) -> None:
        self.federation, self.port, self.home, self.name = federation, port, home, name
        self.token = federation.run_service.invite(name, {}, 60.0)

    def settings(self, **more: object) -> AgentSettings:
        told = {"token": self.token, "home": self.home, "wait": 0.0} | more
        return AgentSettings(f"127.0.0.1:{self.port}", self.home, (Role.SOURCE,), self.name, **told)  # type: ignore[arg-type]

    def started(self) -> GrpcLink:
        keys = identity.keys(self.home)
        link = GrpcLink(find(self.settings()).endpoints, self.name, keys, threading.Event())
        assert admission(link, self.settings(), keys)
        return link

    @property
    def known(self) -> str:
        """The key that the coordinator knows."""
        return self.federation.run_service.enrolment.find(self.name).sign_key

    @property
    def kept(self) -> str:
        return identity.keys(self.home).public[0].hex()


@pytest.fixture
def site(opened: tuple[Federation, int], tmp_path: Path) -> Site:
    return Site(*opened, tmp_path, f"site-{tmp_path.name}"[:64])


# In the home


def test_keys_are_made_once(tmp_path: Path) -> None:
    made = identity.keys(tmp_path)
    assert identity.keys(tmp_path).public == made.public == Keys.of(made.pem).public
    assert stat.S_IMODE((tmp_path / "keys.pem").stat().st_mode) == 0o600
    assert len(made.fingerprint) == 39 and sorted(each.name for each in tmp_path.iterdir()) == ["keys.pem"]


def test_each_start_is_another_session(tmp_path: Path) -> None:
    """The count grows, and is on the disk before anybody hears of it; what a copy of the home goes on from differs in its id."""
    first, second = identity.new_session(tmp_path), identity.new_session(tmp_path)
    assert (first.count, second.count) == (1, 2) and (tmp_path / "session").read_text() == "2"
    (tmp_path / "copy").mkdir()
    identity.write(tmp_path / "copy" / "session", b"1")
    assert identity.new_session(tmp_path / "copy").count == 2 != second.id


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_keys_that_others_can_read(tmp_path: Path, mode: int) -> None:
    identity.keys(tmp_path)
    (tmp_path / "keys.pem").chmod(mode)
    with pytest.raises(IdentityRefused, match=f"mode 0{mode:o}") as refusal:
        identity.keys(tmp_path)
    assert refusal.value.todo.startswith(f"chmod 600 {tmp_path / 'keys.pem'}")


@pytest.mark.parametrize(
    "content",
    [b"", b"garbage", Keys.made().pem[:100], Keys.made().pem.partition(b"END")[0]],
    ids=["empty", "garbage", "cut", "one key"],
)
def test_a_file_that_holds_no_keys(tmp_path: Path, content: bytes) -> None:
    identity.write(tmp_path / "keys.pem", content)
    with pytest.raises(IdentityRefused, match="does not hold an agent's keys"):
        identity.keys(tmp_path)
    assert (tmp_path / "keys.pem").read_bytes() == content


def test_what_a_home_remembers(site: Site) -> None:
    """After one enrolment neither token nor address is needed; the owner's own word stands before it."""
    note(site.settings(), find(site.settings()).endpoints)
    alone = AgentSettings("", site.home, (Role.SOURCE,), site.name, home=site.home)
    assert find(alone).endpoints == Endpoints((f"127.0.0.1:{site.port}",))
    assert find(AgentSettings("127.0.0.1:1", site.home, (), site.name, home=site.home)).endpoints.addresses == ("127.0.0.1:1",)
    (site.home / "coordinator.json").write_text("{")
    with pytest.raises(Refused, match="is damaged"):
        find(alone)


def test_where_nobody_says_where(tmp_path: Path) -> None:
    """Without a token, an address or a memory the agent says what it needs; far ones are not called in the clear."""
    for token in ("", "bare", Token(Identity().token).text):
        with pytest.raises(ConfigRefused, match="No coordinator is known") as refusal:
            find(AgentSettings("", tmp_path, (), "a", token, home=tmp_path))
        assert "--token" in refusal.value.todo and "--coordinator" in refusal.value.todo
    far = Token(Identity().token, ("far.example:1",))
    with pytest.raises(ConfigRefused, match="without TLS"):
        find(AgentSettings("", tmp_path, (), "a", far.text, home=tmp_path))
    assert find(AgentSettings("", tmp_path, (), "a", far.text, home=tmp_path, insecure=True)).endpoints.roots is None
    public = Token(Identity().token, ("far.example:1",), Trust.SYSTEM)
    assert find(AgentSettings("", tmp_path, (), "a", public.text, home=tmp_path)).endpoints.system
    pinned = Token(Identity().token, ("far.example:1",), Trust.PINNED, bytes(32))
    assert find(AgentSettings("", tmp_path, (), "a", pinned.text, home=tmp_path)).pinned == bytes(32)
    for option in ("ca", "tls_cert"):
        (tmp_path / "x").write_text("no certificate")
        with pytest.raises(ConfigRefused):
            find(
                AgentSettings("", tmp_path, (), "a", far.text, home=tmp_path, tls_key=tmp_path / "x", **{option: tmp_path / "x"})
            )
    with pytest.raises(ConfigRefused, match="needs its key"):
        check(AgentSettings("", tmp_path, (), "a", far.text, home=tmp_path, tls_cert=tmp_path / "x"))


def test_an_address_that_has_no_tls(site: Site) -> None:
    with pytest.raises(Unreachable, match="does not answer with TLS"):
        authority(Endpoints((f"127.0.0.1:{site.port}", "127.0.0.1:1")), bytes(32))


def rotated(home: Path) -> bytes:
    """New keys in a home; the private one to receive that it had."""
    before = identity.own(home).receive[0]
    identity.next_keys(home)
    identity.take_over(home)
    return before


def test_keys_to_receive_of_before_are_kept(tmp_path: Path) -> None:
    """The newest first, and no more than so many: what was sealed to them may be on its way through several rotations."""
    before = [rotated(tmp_path) for _ in range(MOST_FORMER + 2)]
    own = identity.own(tmp_path)
    assert own.receive == (identity.keys(tmp_path).private[1], *reversed(before[2:]))
    assert stat.S_IMODE((tmp_path / "keys.former.pem").stat().st_mode) == 0o600
    assert b"PRIVATE KEY" in (tmp_path / "keys.former.pem").read_bytes()


def test_what_was_sealed_before_two_quick_rotations_is_opened(tmp_path: Path) -> None:
    """And keys to sign of before are kept nowhere: nothing is signed with them any more."""
    first, key = identity.own(tmp_path), sealing.new_key()
    box = sealing.seal_key(key, bytes.fromhex(first.public.receive))
    for _ in range(2):
        rotated(tmp_path)
    own = identity.own(tmp_path)
    assert [sealing.open_key(box, each) for each in own.receive] == [None, None, key]
    kept = (tmp_path / "keys.former.pem").read_bytes().split(b"-----END PRIVATE KEY-----\n")[:-1]
    assert len(kept) == 2


def test_a_former_pair_of_an_older_version(tmp_path: Path) -> None:
    pair = Keys.made()
    identity.write(tmp_path / "keys.former.pem", pair.pem)
    assert identity.own(tmp_path).receive[1:] == (pair.private[1],)
    before = rotated(tmp_path)
    assert identity.own(tmp_path).receive[1:] == (before, pair.private[1])


def test_a_rotation_that_was_cut_keeps_a_key_once(tmp_path: Path) -> None:
    identity.keys(tmp_path)
    identity.next_keys(tmp_path)
    aside = identity.own(tmp_path).receive[0]
    identity.write(tmp_path / "keys.former.pem", receive_pem(aside))
    identity.take_over(tmp_path)
    assert identity.own(tmp_path).receive[1:] == (aside,)


@pytest.mark.parametrize("content", [b"", b"garbage", Keys.made().pem[:-10]], ids=["empty", "garbage", "cut"])
def test_former_keys_that_are_none(tmp_path: Path, content: bytes) -> None:
    identity.write(tmp_path / "keys.former.pem", content)
    with pytest.raises(IdentityRefused, match="does not hold an agent's keys"):
        identity.own(tmp_path)
    (tmp_path / "keys.former.pem").chmod(0o644)
    with pytest.raises(IdentityRefused, match="mode 0644"):
        identity.own(tmp_path)


# Over the line


def test_a_clock_that_went_elsewhere(site: Site) -> None:
    """The machine slept, or the coordinator's clock was set: the agent asks for the time and goes on by itself."""
    with closing(site.started()) as link:
        for seconds in (4000.0, -5000.0, 30.0):
            site.federation.clock.advance(seconds)
            assert link.beat({}).gone == ()


def test_an_older_coordinator(tmp_path: Path) -> None:
    """One that does not know Hello, and one that is too new: both ends' versions are in the text."""
    enrol = grpc.unary_unary_rpc_method_handler(lambda request, context: pb.EnrolReply(protocol=1).SerializeToString())
    newer = pb.HelloReply(protocol=9, oldest=8, version="7.0").SerializeToString()
    hello = grpc.unary_unary_rpc_method_handler(lambda request, context: newer)
    for calls, words in (
        ({"Enrol": enrol}, "is none of Tideline's, or older than its first release"),
        ({"Hello": hello}, r"\(tideline 7.0\) speaks protocol 9 down to 8"),
    ):
        server = grpc.server(ThreadPoolExecutor(1))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, calls),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        with closing(GrpcLink(Endpoints((f"127.0.0.1:{port}",)), "ann", Keys.made(), threading.Event())) as link:
            with pytest.raises(VersionRefused, match=words) as refusal:
                link.enrol("token", ("source",))
            assert "speaks protocol 2" in refusal.value.what and "the coordinator's first" in refusal.value.todo
        server.stop(None).wait()


# Rotation

POINTS: dict[str, Callable[[Site, GrpcLink], object]] = {
    "before it begins": lambda site, link: die(),
    "with the new keys made": lambda site, link: (identity.next_keys(site.home), die()),
    "with the coordinator's answer": lambda site, link: link.rotate(identity.next_keys(site.home), die),
    "with the keys swapped": lambda site, link: link.rotate(
        identity.next_keys(site.home), lambda: (identity.take_over(site.home), die())
    ),
}


@pytest.mark.parametrize("point", POINTS)
def test_a_rotation_that_is_killed(site: Site, point: str) -> None:
    """Wherever: the same command starts again, and what was begun is finished."""
    with closing(site.started()) as link:
        before = site.kept
        with pytest.raises(Killed):
            POINTS[point](site, link)
    with closing(site.started()) as link:
        begun = identity.unfinished(site.home) is not None
        Rotation(link, site.home).turn(False)
        assert link.beat({}).gone == ()
        assert begun == (point == "with the new keys made")
    assert site.known == site.kept and identity.unfinished(site.home) is None
    assert (site.kept == before) == (point == "before it begins")
    site.started().close()


def test_an_answer_that_was_lost(site: Site) -> None:
    """The coordinator has the new keys, and the agent does not know it: it finds out by a call with them."""
    with closing(site.started()) as link, closing(site.started()) as twin:
        rotation = Rotation(link, site.home, wanted=True)
        twin.rotate(identity.next_keys(site.home), lambda: None)
        rotation.turn(False)
        assert site.known == site.kept and identity.unfinished(site.home) is None
        assert link.beat({}).gone == ()


def test_a_rotation_that_is_refused(site: Site) -> None:
    """Where neither pair of keys is known, the agent says why and goes on with the old ones."""
    with closing(site.started()) as link:
        site.federation.run_service.revoke(site.name, "left")
        with pytest.raises(IdentityRefused, match=r"revoked on .*: left"):
            link.rotate(Keys.made(), die)


def test_a_rotation_that_is_put_off(tmp_path: Path) -> None:
    """Between its two questions: whether the new keys are known is not told, so the agent goes on with the old ones."""
    with grpc_port_of(Limits(LocalCounts(), ManualClock(1_000_000_040.0), wrong_keys=1)) as opened:
        site = Site(*opened, tmp_path, "dora")
        with closing(site.started()) as link:
            own = site.federation.run_service.enrolment.find("dora")
            site.federation.journal.rekey(own.name, own.sign_key, TheirKeys("aa" * 32, "bb" * 32))
            site.federation.clock.advance(FRESH_SECONDS)
            with pytest.raises(TooMany):
                link.rotate(Keys.made(), die)
            site.federation.journal.rekey(own.name, "aa" * 32, own.keys)
            site.federation.clock.advance(FRESH_SECONDS)
            assert link.beat({}).gone == ()


def test_orders_come_on_after_a_rotation(site: Site) -> None:
    """The stream that the old keys opened ends at once; the agent listens again, which is no outage."""
    site.started().close()
    outages: list[BaseException | None] = []
    stop, came = threading.Event(), queue.Queue[str]()
    line = Endpoints((f"127.0.0.1:{site.port}",))

    def order() -> str:
        run = site.federation.run_service.start(experiment("fedavg", {site.name: "source"}))
        (row,) = (each for each in site.federation.journal.orders(run) if each.client == site.name)
        return row.id

    with closing(GrpcLink(line, site.name, identity.keys(site.home), stop, outages.append)) as link:
        listening = threading.Thread(target=lambda: [came.put(each.id) for each in link.orders()])
        listening.start()
        first = order()
        assert came.get(timeout=60) == first
        Rotation(link, site.home, wanted=True).turn(False)
        second = order()
        while (told := came.get(timeout=60)) != second:  # a stream that begins tells of all that is open
            assert told == first
        stop.set()
    listening.join(30)
    assert outages == [] and not listening.is_alive()


def test_calls_beside_a_rotation(site: Site) -> None:
    with closing(site.started()) as link, ThreadPoolExecutor(4) as threads:
        stop = threading.Event()

        def beat() -> int:
            said = 0
            while not stop.is_set():
                link.beat({})
                said += 1
            return said

        beating = [threads.submit(beat) for _ in range(3)]
        for _ in range(5):
            Rotation(link, site.home, wanted=True).turn(False)
        stop.set()
        assert all(each.result(30) > 0 for each in beating)
    assert site.known == site.kept


def test_a_name_is_remembered(site: Site) -> None:
    from tideline.cli.serving import name_of_home

    note(site.settings(), Endpoints(("127.0.0.1:1",), b"certificate"))
    told = json.loads((site.home / "coordinator.json").read_text())
    assert told == {
        "name": site.name,
        "addresses": ["127.0.0.1:1"],
        "trust": "pinned",
        "ca": "certificate",
        "given": [f"127.0.0.1:{site.port}"],
        "announced": [],
        "heard": "",
        "declined": False,
        "token": sha256(site.token.encode()).hexdigest(),
    }
    assert name_of_home(site.home) == site.name and name_of_home(site.home / "no") == name_of_home(None) == ""
