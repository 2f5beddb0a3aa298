"""The suite of calls at the gRPC port, played over HTTP: strangers, thieves and older agents meet the same answers."""

from __future__ import annotations

import hashlib
import http.client
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.acceptance.raw import Raw, refused
from tests.server.agents_http.port import SERVICERS, Channel, HttpRefused, http_port_of, until_polled
from tests.server.loops import LONG
from tests.server.test_calls import (  # noqa: F401 - pytest plays them here, with the fixtures of this module
    REKEYED,
    order_for,
    step_for,
    test_a_call_without_a_proof,
    test_a_pending_client_is_not_served,
    test_a_proof_is_good_for_one_request,
    test_a_push_is_proven_by_its_head,
    test_a_sign_of_life_asks_which_runs_are_over,
    test_a_signed_call_is_answered,
    test_a_stale_time,
    test_a_wrong_key,
    test_an_enrolment_has_bounds,
    test_an_enrolment_with_anothers_key,
    test_an_enrolment_without_keys,
    test_anothers_name,
    test_hello_tells_who_is_there,
    test_keys_of_low_order,
    test_new_keys_end_a_push,
    test_rotation,
    test_what_another_coordinator_changed,
    test_who_does_not_speak_as_we_do,
    test_who_is_refused_stands_in_the_audit_log,
    test_who_only_asks_stands_in_the_audit_log_too,
)
from tests.synthetic import experiment
from tideline.archive.digests import digest_of
from tideline.engine.simulation.adapters import ManualClock
from tideline.engine.simulation.federation import Federation
from tideline_protos.v1 import federation_pb2 as pb
from tideline_server.bell import LocalCounts
from tideline_server.limits import Limits


@pytest.fixture(scope="module")
def opened() -> Iterator[tuple[Federation, int]]:
    """A federation behind its HTTP port."""
    with http_port_of() as made:
        yield made


@pytest.fixture
def link() -> str:
    """How the audit log names this way."""
    return "https"


@pytest.fixture
def there(opened: tuple[Federation, int], request: pytest.FixtureRequest) -> tuple[Federation, Raw]:
    """An enrolled client of the test's own."""
    federation, port = opened
    raw = Raw(Channel(port), hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12])
    raw.enrol(federation.run_service.invite(raw.name, {}, 60.0))
    return federation, raw


def poll(raw: Raw, **said: Any) -> pb.PollReply:
    """A poll, signed."""
    reply: pb.PollReply = raw.ask("Poll", pb.PollRequest(**said), pb.PollReply)
    return reply


def test_a_poll_brings_orders_once(there: tuple[Federation, Raw]) -> None:
    """What was offered is not offered again; to an agent that says nothing of it, it is."""
    federation, raw = there
    order = order_for(federation, raw)
    first = poll(raw, asking=pb.OrdersRequest())
    assert [each.id for each in first.orders] == list(first.open) == [order]
    assert [each.id for each in poll(raw).orders] == [order], "an agent that started anew"
    more = order_for_another(federation, raw)
    second = poll(raw, offered=first.open)
    assert [each.id for each in second.orders] == [more] and set(second.open) == {order, more}


def order_for_another(federation: Federation, raw: Raw) -> str:
    """One more order of the same client."""
    name = federation.run_service.enrolment.find(raw.name).name
    before = {each.id for each in federation.journal.open_orders(name)}
    federation.run_service.start(experiment("fedavg", {raw.name: "source"}))
    (fresh,) = {each.id for each in federation.journal.open_orders(name)} - before
    return str(fresh)


def test_a_poll_waits_for_an_order(there: tuple[Federation, Raw]) -> None:
    """And is answered as soon as there is one."""
    federation, raw = there
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(poll, raw)
        until_polled(raw.channel.port)
        order = order_for(federation, raw)
        assert [each.id for each in waiting.result(LONG).orders] == [order]


def test_revocation_ends_a_poll_at_once(there: tuple[Federation, Raw]) -> None:
    """Nobody waits for its end; and nothing else is answered any more."""
    federation, raw = there
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(poll, raw)
        until_polled(raw.channel.port)
        federation.run_service.revoke(raw.name, "left")
        for said in (lambda: waiting.result(LONG), raw.beat, lambda: raw.enrol("")):
            kind, what = refused(said)
            assert kind == "IdentityRefused" and what.endswith(": left") and "was revoked on 20" in what


@pytest.mark.parametrize("how", REKEYED)
def test_new_keys_end_a_poll(there: tuple[Federation, Raw], how: str) -> None:
    """At once, and with nothing in it: the agent polls again with its new keys. Who has the old ones does not."""
    federation, raw = there
    order_for(federation, raw)
    before = poll(raw).open
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(poll, raw, offered=before)
        until_polled(raw.channel.port)
        REKEYED[how](federation, raw)
        ended = waiting.result(LONG)
    assert not ended.orders and list(ended.open) == list(before)
    assert refused(lambda: poll(raw))[0] == "IdentityRefused"


def test_a_push_that_is_cut_goes_on(there: tuple[Federation, Raw]) -> None:
    """What came before the cut is there; the rest is sent from its offset on, and fetched bytes are those that were pushed."""
    federation, raw = there
    content, order = bytes(range(256)) * 4096, step_for(federation, raw)
    digest, half = digest_of([content]), len(content) // 2
    report = pb.ReportRequest(order=order, files=[pb.File(digest=digest, size=len(content))])
    missing = raw.ask("Report", report, pb.Receipt).missing[0]
    assert missing.offset == 0
    head = pb.PushHead(order=order, parts=[pb.Arrival(digest=digest, size=len(content))]).SerializeToString()
    assert refused(lambda: raw.stream([head, content[:half]]))[0] == "DataTruncated"
    missing = raw.ask("Report", report, pb.Receipt).missing[0]
    assert missing.offset == half
    rest = pb.PushHead(order=order, parts=[pb.Arrival(digest=digest, size=len(content), offset=half)]).SerializeToString()
    raw.stream([rest, content[half:]])
    assert not raw.ask("Report", report, pb.Receipt).missing


def test_who_polls_too_often_ends_older_polls(there: tuple[Federation, Raw]) -> None:
    """A client has four at once: cut lines leave some behind."""
    federation, raw = there
    with ThreadPoolExecutor(5) as threads:
        waiting = [threads.submit(poll, raw) for _ in range(4)]
        until_polled(raw.channel.port, 4)
        assert not any(each.done() for each in waiting)
        waiting.append(threads.submit(poll, raw))
        ended = next(as_completed(waiting, LONG))
        assert not ended.result().orders
        federation.run_service.revoke(raw.name, "over")


def test_an_unforeseen_failure_keeps_its_words(there: tuple[Federation, Raw], monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller hears a number, and may try again; the log has the rest under that number."""
    federation, raw = there

    def fail(*args: object, **more: object) -> None:
        raise RuntimeError("connection to db.internal:5432 failed")

    monkeypatch.setattr(federation.agent_service.part_store, "probe", fail)
    with capture_logs() as lines, pytest.raises(HttpRefused) as caught:
        raw.ask("Probe", pb.ProbeRequest(data=b"x"), pb.ProbeReply)
    incident = next(line["incident"] for line in lines if line["event"] == "call_failed")
    assert caught.value.status == 500 and b"db.internal" not in caught.value.body
    assert caught.value.details() == f"The coordinator failed in an unexpected way, incident {incident}"


def test_strangers_have_so_many_looks_a_minute() -> None:
    """From one address, as at the gRPC port. Who is known calls on."""
    clock = ManualClock(1_000_000_040.0)
    with http_port_of(Limits(LocalCounts(), clock, wrong_keys=3)) as (federation, port):
        raw = Raw(Channel(port), "dora")
        raw.enrol(federation.run_service.invite("dora", {}, 60.0))
        strangers = (Raw(raw.channel, "dora"), Raw(raw.channel, "nobody"), Raw(raw.channel, "dora"))
        assert [refused(each.beat)[0] for each in strangers] == ["IdentityRefused"] * 3
        with pytest.raises(HttpRefused) as caught:
            Raw(raw.channel, "somebody").beat()
        assert caught.value.status == 429 and b"TooMany" in caught.value.body
        assert all(raw.beat() is not None for _ in range(5))


def test_a_stranger_connects_anew(opened: tuple[Federation, int]) -> None:
    """Whoever is refused and has proven nothing loses the connection; a client keeps it."""
    line = http.client.HTTPConnection("127.0.0.1", opened[1], timeout=LONG)
    line.request("POST", "/agents/v1/Beat", b"", {"Content-Type": "application/x-protobuf"})
    answer = line.getresponse()
    assert (answer.status, answer.headers["Connection"]) == (403, "close")
    line.close()


NO_CALLS = (
    ("GET", "Hello", "application/x-protobuf", 405),
    ("POST", "Nothing", "application/x-protobuf", 501),
    ("POST", "Orders", "application/x-protobuf", 501),
    ("POST", "Hello/../../runs", "application/x-protobuf", 501),
    ("POST", "Hello", "text/plain", 415),
)


def test_what_is_no_call(opened: tuple[Federation, int], subtests: pytest.Subtests) -> None:
    """It is refused with what is wrong."""
    for method, call, kind, status in NO_CALLS:
        with subtests.test(f"{method} {call}"), closing(http.client.HTTPConnection("127.0.0.1", opened[1], timeout=LONG)) as line:
            line.request(method, f"/agents/v1/{call}", b"", {"Content-Type": kind})
            answer = line.getresponse()
            assert (answer.status, answer.headers["Tideline-Agents"]) == (status, "1") and b'"todo"' in answer.read()


def test_a_first_message_has_bounds(opened: tuple[Federation, int]) -> None:
    """Whatever its length is said to be; nothing of it is kept."""
    raw = Raw(Channel(opened[1]), "nobody")
    assert refused(lambda: raw.channel.request("Beat", bytes(2 << 20), (), LONG))[0] == "TooLarge"
    assert refused(lambda: raw.channel.request("Push", (1 << 31).to_bytes(4), (), LONG))[0] == "TooLarge"


def test_two_hundred_agents_poll_and_others_are_answered(opened: tuple[Federation, int]) -> None:
    """A poll takes no thread: beats are as quick as ever beside them."""
    federation, port = opened
    polling = [Raw(Channel(port), f"poller-{number}") for number in range(200)]
    for raw in polling:
        raw.enrol(federation.run_service.invite(raw.name, {}, 60.0))
    threads = [threading.Thread(target=suppressed, args=(each,), daemon=True) for each in polling]
    for each in threads:
        each.start()
    until_polled(port, 200)
    beating = Raw(Channel(port), "beating")
    beating.enrol(federation.run_service.invite(beating.name, {}, 60.0))
    for _ in range(20):
        beating.beat()
    assert SERVICERS[port].listening == 200
    for raw in polling:
        federation.run_service.revoke(raw.name, "over")
    for each in threads:
        each.join()


def suppressed(raw: Raw) -> None:
    """A poll that is let in sooner or later, and whose end nobody looks at."""
    put_off = True
    while put_off:
        try:
            poll(raw)
            put_off = False
        except HttpRefused as error:
            put_off = error.status == 429
