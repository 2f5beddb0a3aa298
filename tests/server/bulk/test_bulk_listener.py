"""The bulk lane's port: the same run over it, transfers that go on where they stopped, and callers that lie."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.engine.test_agent_service import message
from tests.engine.toys import stage, start, until
from tests.server.bulk.lanes import Lanes, head, lanes
from tests.server.loops import LONG
from tests.services import free_port
from tests.synthetic import NAMES
from tideline.archive.checks import Rules
from tideline.archive.errors import DigestMismatch
from tideline.archive.parts import MemoryParts
from tideline.archive.writer import encode
from tideline.client.certificates import issue_client, issue_coordinator
from tideline.core.errors import ConfigRefused, IdentityRefused, NotFound, Stale, StorageFull, Unreachable
from tideline.core.run import ClientId
from tideline.engine.model.accounts import Client
from tideline.engine.model.orders import Arrivals, Failure, Order, Reply
from tideline_agent.link import Endpoints
from tideline_agent.link import bulk as link
from tideline_agent.link.bulk import AWAY_SECONDS, LEAST_BYTES, MOST_FAILURES, Lane, LaneAway, Ticket
from tideline_server.bulk.building import tls_of
from tideline_server.bulk.listener import Bounds
from tideline_server.listeners import certificate_of
from tideline_server.settings import CoordinatorSettings
from tideline_server.tls import TlsFiles, read_tls

BERT, CARL = ClientId(NAMES[1]), ClientId(NAMES[2])


@pytest.fixture
def there() -> Iterator[Lanes]:
    with lanes() as made:
        yield made


def opened(there: Lanes) -> Order:
    """Bert's order of a run whose first round is open."""
    run = start(there.on)
    until(there.on, run, 0)
    (order,) = there.on.agent_service.orders(BERT)
    return order


def answer(order: Order) -> tuple[MemoryParts, Arrivals]:
    """A reply's parts, and what is announced of them."""
    given, parts = message(), MemoryParts()
    files = encode(given, parts, Rules(like=(given,), finite=False)).files
    return parts, tuple((digest, size, 0) for digest, size in files)


def files_of(order: Order) -> Arrivals:
    """An order's files, none of which has begun to arrive."""
    return tuple((digest, size, 0) for digest, size in order.files)


def body(parts: MemoryParts, arrivals: Arrivals) -> bytes:
    return b"".join(bytes(parts.view(digest))[offset:] for digest, _, offset in arrivals)


def told(came: bytes) -> tuple[int, str, str]:
    """An answer's status, and the kind and words of its error."""
    first, _, content = came.partition(b"\r\n\r\n")
    said = json.loads(content) if content else {"kind": "", "what": ""}
    return int(first.split()[1]), said["kind"], said["what"]


def arrived(there: Lanes, arrivals: Arrivals, client: ClientId = BERT) -> list[int]:
    run = there.on.agent_service.orders(client)[0].run
    return [there.on.part_store.offset(digest, size, run, client) for digest, size, _ in arrivals]


def test_a_run_over_the_lane_ends_in_the_same_bytes(there: Lanes) -> None:
    """Every order's and every reply's parts, of all three sites."""
    beside = stage()
    expected = beside.play(start(beside))
    found = there.on.play(start(there.on))
    assert (found.status, found.state_digest) == (expected.status, expected.state_digest) and there.moved > 6
    assert there.listener.lines == 0 or settled(there)


def settled(there: Lanes) -> bool:
    """All connections have ended."""
    until = time.monotonic() + LONG
    while there.listener.lines and time.monotonic() < until:
        time.sleep(0.001)
    return there.listener.lines == 0


def test_a_cut_push_goes_on_where_it_stopped(there: Lanes) -> None:
    """What came is kept; the next ticket is for the rest, and one for all of it is stale."""
    order = opened(there)
    parts, arrivals = answer(order)
    first, size, _ = arrivals[0]
    content = body(parts, arrivals)
    there.say(head(there.ticket(BERT, order, True, arrivals)), content[: size - 7], ends=True)
    assert settled(there) and arrived(there, arrivals)[0] == size - 7
    again = there.say(head(there.ticket(BERT, order, True, arrivals)), content)
    assert told(again)[:2] == (409, "Stale")
    rest = ((first, size, size - 7), *arrivals[1:])
    assert told(there.say(head(there.ticket(BERT, order, True, rest)), body(parts, rest)))[0] == 200
    receipt = there.on.agent_service.report(BERT, Reply(order.id, tuple((d, n) for d, n, _ in arrivals), {"loss": 1.0}))
    assert receipt.verdict == "accepted"


def test_a_cut_fetch_goes_on_where_it_stopped(there: Lanes) -> None:
    """Also in the middle of a part."""
    order, parts = opened(there), MemoryParts()
    (first, size), *others = order.files
    wanted = ((first, size, 5), *((digest, n, 0) for digest, n in others))
    came = there.say(head(there.ticket(BERT, order, False, wanted)))
    content = came.partition(b"\r\n\r\n")[2]
    whole = [bytes(there.on.parts.view(digest)) for digest, _ in order.files]
    assert content == whole[0][5:] + b"".join(whole[1:])
    upload = parts.upload(first, size)
    upload.write(whole[0][:5])
    upload.close()
    with Lane(there.endpoints).line(there.ticket(BERT, order, False, wanted)) as line:
        line.fetch(parts)
    assert [bytes(parts.view(digest)) for digest, _ in order.files] == whole


CHUNKED = b"Transfer-Encoding: chunked"
Lie = Callable[[Lanes, Order, Ticket, bytes], bytes]
LIES: dict[str, tuple[Lie, int, str]] = {
    "no ticket": (lambda t, o, k, b: t.say(head(k, secret=""), b), 403, "unknown here"),
    "a made-up ticket": (lambda t, o, k, b: t.say(head(k, secret="x" * 32), b), 403, "unknown here"),
    "another's signature": (lambda t, o, k, b: t.say(head(k, signature=other(t, o).signature), b), 403, "another's"),
    "no signature": (lambda t, o, k, b: t.say(head(k, signature=""), b), 403, "another's"),
    "a signature that is no base64": (lambda t, o, k, b: t.say(head(k, signature="%%"), b), 403, "no base64"),
    "the other way": (lambda t, o, k, b: t.say(head(k, method="GET").replace(b"Content-Length", b"X")), 403, "direction"),
    "another method": (lambda t, o, k, b: t.say(head(k, method="POST"), b), 400, "GET and PUT of /parts alone"),
    "another place": (lambda t, o, k, b: t.say(head(k, target="/parts/../etc/passwd"), b), 400, "GET and PUT of /parts"),
    "a length that is less": (lambda t, o, k, b: t.say(head(k, length=len(b) - 1), b), 400, "the ticket is for"),
    "a length that is more": (lambda t, o, k, b: t.say(head(k, length=len(b) + 1), b), 400, "the ticket is for"),
    "a length that is huge": (lambda t, o, k, b: t.say(head(k, length=1 << 60), b), 400, "the ticket is for"),
    "a length that is none": (lambda t, o, k, b: t.say(head(k, length="many"), b), 400, "no HTTP request"),
    "a negative length": (lambda t, o, k, b: t.say(head(k, length=-5), b), 400, "no HTTP request"),
    "two lengths": (lambda t, o, k, b: t.say(head(k, more=["Content-Length: 5"]), b), 400, "no HTTP request"),
    "chunks": (lambda t, o, k, b: t.say(head(k).replace(b"Content-Length: 296", CHUNKED), b""), 400, "length beforehand"),
    "a head without end": (lambda t, o, k, b: t.say(b"PUT /parts HTTP/1.1\r\nX: " + b"x" * 20000), 413, "more than 8192"),
    "no HTTP": (lambda t, o, k, b: t.say(b"\x16\x03\x01 hello\r\n\r\n"), 400, "no HTTP request"),
    "other bytes": (lambda t, o, k, b: t.say(head(k), bytes(len(b))), 400, "have the digest"),
}  # fmt: skip


def other(there: Lanes, order: Order) -> Ticket:
    """A ticket of another client's for its own order."""
    (own,) = there.on.agent_service.orders(CARL)
    return there.ticket(CARL, own, True, answer(own)[1])


def test_who_lies_is_told_so_and_harms_nobody(there: Lanes, subtests: pytest.Subtests) -> None:
    """Nothing of it is kept, and a client of ours is served after it."""
    order = opened(there)
    parts, arrivals = answer(order)
    for lie, (say, status, words) in LIES.items():
        with subtests.test(lie):
            came = told(say(there, order, there.ticket(BERT, order, True, arrivals), body(parts, arrivals)))
            assert came[0] == status and words in came[2], came
            assert set(arrived(there, arrivals)) <= {0}
            assert there.say(head(there.ticket(BERT, order, False, files_of(order)))).startswith(b"HTTP/1.1 200 ")
    assert told(there.say(head(there.ticket(BERT, order, True, arrivals)), body(parts, arrivals)))[0] == 200
    assert settled(there)


def test_a_ticket_is_used_once(there: Lanes) -> None:
    """A second connection with it, by whomever, gets nothing."""
    order = opened(there)
    ticket = there.ticket(BERT, order, False, files_of(order))
    assert told(there.say(head(ticket))[:20] + b"\r\n\r\n")[0] == 200
    assert told(there.say(head(ticket))) == (403, "IdentityRefused", "The ticket is unknown here, used up or too old")


def test_what_an_order_does_not_name_is_in_no_ticket(there: Lanes) -> None:
    """Neither another client's order, nor parts of others, nor a part under another size."""
    order = opened(there)
    digest, size = order.files[0]
    with pytest.raises(IdentityRefused):
        there.ticket(CARL, order, False, ((digest, size, 0),))
    for parts in (((digest, size + 1, 0),), ((answer(order)[1][0][0], 10, 0),)):
        with pytest.raises(NotFound):
            there.ticket(BERT, order, False, parts)


@pytest.mark.parametrize("up", [True, False])
def test_a_ticket_ends_with_its_order(there: Lanes, up: bool) -> None:
    """It was asked for in time, and the round went on without it."""
    order = opened(there)
    parts, arrivals = answer(order)
    files = arrivals if up else files_of(order)
    ticket = there.ticket(BERT, order, up, files)
    there.on.agent_service.report(BERT, Reply(order.id, failure=Failure("StepFailed", "gone")))
    came = there.say(head(ticket), body(parts, arrivals) if up else b"")
    assert told(came)[:2] == (409, "Stale")
    with pytest.raises(Stale), Lane(there.endpoints).line(ticket_again(there, order, up, files)) as line:
        line.push(parts) if up else line.fetch(MemoryParts())


def ticket_again(there: Lanes, order: Order, up: bool, parts: Arrivals) -> Ticket:
    """As if the ticket had been given just before the order's end."""
    secret = there.listener.tickets.issue(there.client(BERT), order.id, up, parts)
    nbytes = sum(size - offset for _, size, offset in parts)
    signature = there.keys[BERT].bulk_signature(secret, up, BERT, nbytes)
    return Ticket(secret=secret, signature=signature, up=up, parts=parts, address=there.address)


def test_a_client_that_is_revoked_meanwhile(there: Lanes) -> None:
    """Before its transfer, and in the middle of it: the line ends."""
    order = opened(there)
    parts, arrivals = answer(order)

    def barred(client: Client) -> None:
        raise IdentityRefused(f"{client.name} was revoked")

    there.listener.still = barred
    came = there.say(head(there.ticket(BERT, order, True, arrivals)), body(parts, arrivals))
    assert told(came) == (403, "IdentityRefused", "bert was revoked")
    assert set(arrived(there, arrivals)) == {0}


def test_parts_that_do_not_fit_the_contract(there: Lanes) -> None:
    """As with gRPC: more than the reply may have is refused before a byte is taken."""
    order = opened(there)
    digest = answer(order)[1][0][0]
    huge = ((digest, 1 << 40, 0),)
    came = there.say(head(there.ticket(BERT, order, True, huge)), b"x" * 1000)
    assert told(came)[:2] == (413, "TooLarge")


def test_a_full_disk_is_said(there: Lanes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent waits it out, as over gRPC."""
    order = opened(there)
    parts, arrivals = answer(order)

    def full(*given: Any) -> None:
        raise StorageFull("No room for a part", "Free disk space")

    monkeypatch.setattr(there.on.part_store, "upload", full)
    with pytest.raises(StorageFull), Lane(there.endpoints).line(there.ticket(BERT, order, True, arrivals)) as line:
        line.push(parts)


def test_strangers_have_little_room_and_little_time() -> None:
    """Those who say nothing, or a byte now and then, are gone soon; beyond a few of one place nobody is let in."""
    with lanes(Bounds(strangers=2, greeting=0.4)) as there:
        order = opened(there)
        mute, slow, third = (socket.create_connection(("127.0.0.1", there.port), LONG) for _ in range(3))
        with closing(mute), closing(slow), closing(third):
            assert third.recv(1) == b""
            began = time.monotonic()
            with pytest.raises(OSError):
                while time.monotonic() < began + LONG:
                    slow.sendall(b"P")
                    time.sleep(0.05)
            assert mute.recv(1) == b"" and time.monotonic() < began + LONG
        assert settled(there)
        files = files_of(order)
        assert told(there.say(head(there.ticket(BERT, order, False, files)))[:20] + b"\r\n\r\n")[0] == 200


def test_a_sender_that_stops_is_let_go() -> None:
    """What came stays; no thread waits for ever."""
    with lanes(Bounds(stalled=0.3)) as there:
        order = opened(there)
        parts, arrivals = answer(order)
        with socket.create_connection(("127.0.0.1", there.port), LONG) as line:
            line.sendall(head(there.ticket(BERT, order, True, arrivals)) + body(parts, arrivals)[:10])
            assert line.recv(1) == b""
        assert settled(there) and arrived(there, arrivals)[0] == 10


def test_a_client_has_some_transfers_at_once() -> None:
    """One more is put off, and others are not."""
    with lanes(Bounds(transfers=1)) as there:
        order = opened(there)
        parts, arrivals = answer(order)
        with socket.create_connection(("127.0.0.1", there.port), LONG) as line:
            line.sendall(head(there.ticket(BERT, order, True, arrivals)) + body(parts, arrivals)[:10])
            until = time.monotonic() + LONG
            while arrived(there, arrivals)[0] < 10 and time.monotonic() < until:
                time.sleep(0.01)
            files = files_of(order)
            assert told(there.say(head(there.ticket(BERT, order, False, files))))[:2] == (429, "TooMany")
            (own,) = there.on.agent_service.orders(CARL)
            carls = files_of(own)
            assert there.say(head(there.ticket(CARL, own, False, carls))).startswith(b"HTTP/1.1 200 ")


def test_an_agent_leaves_a_lane_that_it_cannot_reach(there: Lanes) -> None:
    """It says so, uses gRPC meanwhile, and tries again later; small messages never go there."""
    order, now = opened(there), [0.0]
    lane = Lane(there.endpoints, clock=lambda: now[0])
    assert lane.carries(LEAST_BYTES) and not lane.carries(LEAST_BYTES - 1)
    ticket = there.ticket(BERT, order, False, files_of(order))
    away = Ticket(secret="s", signature="", up=False, parts=ticket.parts, address=f"127.0.0.1:{free_port()}")
    with pytest.raises(LaneAway), lane.line(away):
        pass
    assert not lane.carries(LEAST_BYTES)
    now[0] += AWAY_SECONDS
    assert lane.carries(LEAST_BYTES)
    assert not Lane(there.endpoints, on=False).carries(LEAST_BYTES)


def test_an_agent_leaves_a_lane_that_is_cut_again_and_again(there: Lanes) -> None:
    """The first cuts are tried again there: what came is not sent twice."""
    order, lane = opened(there), Lane(there.endpoints)
    files = files_of(order)
    for left in reversed(range(MOST_FAILURES)):
        with pytest.raises(Unreachable), lane.line(there.ticket(BERT, order, False, files)) as line:
            line.cancel()
            line.fetch(MemoryParts())
        assert lane.carries(LEAST_BYTES) == bool(left)


def test_a_ticket_that_is_gone_is_an_outage_to_an_agent(there: Lanes) -> None:
    """After a restart of the coordinator: it asks for another, and does not end."""
    order = opened(there)
    ticket = there.ticket(BERT, order, False, files_of(order))
    there.listener.tickets._known.clear()
    with pytest.raises(Unreachable), Lane(there.endpoints).line(ticket) as line:
        line.fetch(MemoryParts())


def test_bytes_that_are_damaged_on_the_way(there: Lanes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither end takes them for the part."""
    order = opened(there)
    files = files_of(order)
    peek = MemoryParts.peek

    def flipped(parts: MemoryParts, digest: Any) -> memoryview:
        view = peek(parts, digest)
        view[-1] ^= 1
        return view

    monkeypatch.setattr(MemoryParts, "peek", flipped)
    into = MemoryParts()
    with pytest.raises(DigestMismatch), Lane(there.endpoints).line(there.ticket(BERT, order, False, files)) as line:
        line.fetch(into)
    parts, arrivals = answer(order)
    with pytest.raises(DigestMismatch), Lane(there.endpoints).line(there.ticket(BERT, order, True, arrivals)) as line:
        line.push(parts)
    assert not any(there.on.parts.has(digest) for digest, _, _ in arrivals)


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 200 OK\r\n\r\n", b"SSH-2.0\r\n\r\n", b"HTTP/1.1 500 E\r\nContent-Length: 2\r\n\r\nno"]
)
def test_a_false_lane_is_an_outage(there: Lanes, said: bytes) -> None:
    """An agent takes nothing from it."""
    order, into = opened(there), MemoryParts()
    ticket = there.ticket(BERT, order, False, files_of(order))
    with socket.create_server(("127.0.0.1", 0)) as false:
        near = Ticket(ticket.secret, ticket.signature, False, ticket.parts, f"127.0.0.1:{false.getsockname()[1]}")
        with pytest.raises(Unreachable), Lane(there.endpoints).line(near) as line:
            far, _ = false.accept()
            with far:
                far.sendall(said)
                far.shutdown(socket.SHUT_WR)
                line.fetch(into)
    assert not any(into.has(digest) for digest, _ in order.files)


def served_with(folder: Path, clients: Path | None = None) -> ssl.SSLContext | None:
    """The lane's TLS with the certificate of a folder."""
    return tls_of(
        certificate_of(
            CoordinatorSettings(tls_cert=folder / "coordinator.pem", tls_key=folder / "coordinator.key", tls_client_ca=clients)
        )
    )


def test_over_tls_with_the_federations_certificate(tmp_path: Path) -> None:
    """An agent believes the authority that it believes for gRPC, and no other; who speaks no TLS is let go."""
    issue_coordinator(tmp_path, ["localhost", "127.0.0.1"])
    issue_coordinator(tmp_path / "others", ["localhost", "127.0.0.1"])
    tls = served_with(tmp_path)
    with lanes(Bounds(greeting=0.5), tls=tls) as there:
        order, roots = opened(there), (tmp_path / "ca.pem").read_bytes()
        parts, arrivals = answer(order)
        with pytest.raises(ConnectionResetError):
            there.say(head(there.ticket(BERT, order, True, arrivals)))
        false = Lane(Endpoints(("a:1",), (tmp_path / "others" / "ca.pem").read_bytes()))
        with pytest.raises(LaneAway), false.line(there.ticket(BERT, order, True, arrivals)):
            pass
        with Lane(Endpoints(("a:1",), roots)).line(there.ticket(BERT, order, True, arrivals)) as line:
            line.push(parts)
        assert all(there.on.parts.has(digest) for digest, _, _ in arrivals)


def test_a_handshake_that_does_not_end(tmp_path: Path) -> None:
    """A byte now and then of it buys no more time, and a port that closes waits for nobody."""
    issue_coordinator(tmp_path, ["localhost"])
    tls = served_with(tmp_path)
    with lanes(Bounds(greeting=0.5), tls=tls) as there, socket.create_connection(("127.0.0.1", there.port), LONG) as slow:
        began, hello = time.monotonic(), b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
        with pytest.raises(OSError):
            while time.monotonic() < began + LONG:
                slow.sendall(hello[:1] if time.monotonic() > began + 0.1 else hello)
                time.sleep(0.05)
        assert time.monotonic() < began + LONG and settled(there)


def test_a_certificate_of_another_name_opens_nothing(tmp_path: Path) -> None:
    """Where the coordinator asks for certificates, a ticket goes with the client's own."""
    issue_coordinator(tmp_path, ["localhost", "127.0.0.1"])
    for name in (BERT, CARL):
        issue_client(tmp_path, name)
    tls = served_with(tmp_path, tmp_path / "ca.pem")
    roots = (tmp_path / "ca.pem").read_bytes()

    def lane(name: str) -> Lane:
        own = (tmp_path / f"{name}.key").read_bytes(), (tmp_path / f"{name}.pem").read_bytes()
        return Lane(Endpoints(("a:1",), roots, own=own))

    with lanes(tls=tls, certified=True) as there:
        order = opened(there)
        files = files_of(order)
        with (
            pytest.raises(Unreachable, match="The certificate is not that of"),
            lane(CARL).line(there.ticket(BERT, order, False, files)) as line,
        ):
            line.fetch(MemoryParts())
        into = MemoryParts()
        with lane(BERT).line(there.ticket(BERT, order, False, files)) as line:
            line.fetch(into)
        assert all(into.has(digest) for digest, _ in order.files)


def test_files_that_are_no_certificate(tmp_path: Path) -> None:
    """Said at the start."""
    (tmp_path / "a").write_text("no")
    with pytest.raises(ConfigRefused, match="is no PEM file"):
        read_tls(TlsFiles(tmp_path / "a", tmp_path / "a"))
    issue_coordinator(tmp_path / "one", ["localhost"])
    issue_coordinator(tmp_path / "two", ["localhost"])
    with pytest.raises(ConfigRefused, match="do not fit"):
        certificate_of(CoordinatorSettings(tls_cert=tmp_path / "one/coordinator.pem", tls_key=tmp_path / "two/coordinator.key"))
    assert read_tls(TlsFiles()) is None and tls_of(None) is None and link.tls_of(Endpoints(("a:1",))) is None
