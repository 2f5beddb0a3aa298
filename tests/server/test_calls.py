"""Calls at the gRPC port as strangers, thieves and older agents make them. The client here shares no code with ours."""

from __future__ import annotations

import hashlib
import queue
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from tests.acceptance.raw import SERVICE, Raw, refused
from tests.engine.low_order import LOW_ORDER
from tests.server.grpc_port import grpc_port_of
from tests.server.loops import LONG
from tests.synthetic import experiment
from tideline.archive.digests import digest_of
from tideline.core.run import OrderId, RunId
from tideline.core.signing import WINDOW_SECONDS
from tideline.engine.coordinator.enrolment import FRESH_SECONDS
from tideline.engine.model.accounts import Keys
from tideline.engine.model.deletion import Tombstone
from tideline.engine.simulation.adapters import ManualClock
from tideline.engine.simulation.federation import Federation
from tideline_protos.v1 import federation_pb2 as pb
from tideline_server.bell import LocalCounts
from tideline_server.limits import Limits


@pytest.fixture(scope="module")
def opened() -> Iterator[tuple[Federation, int]]:
    """A federation behind its door."""
    with grpc_port_of() as made:
        yield made


@pytest.fixture
def there(opened: tuple[Federation, int], request: pytest.FixtureRequest) -> Iterator[tuple[Federation, Raw]]:
    """An enrolled client of the test's own."""
    federation, port = opened
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        raw = Raw(channel, hashlib.sha256(request.node.name.encode()).hexdigest()[:12])
        raw.enrol(federation.run_service.invite(raw.name, {}, 60.0))
        yield federation, raw


def test_hello_tells_who_is_there(there: tuple[Federation, Raw]) -> None:
    """Protocols, version and time, to anybody."""
    federation, raw = there
    told = raw.send("Hello", pb.HelloRequest(protocol=7, version="9").SerializeToString(), (), pb.HelloReply)
    assert (told.protocol, told.oldest, told.version) == (2, 2, "1.2.3")
    assert told.time_ms == int(federation.clock.now() * 1000)
    assert refused(lambda: raw.send("Hello", b"\xff", ()))[0] == "Malformed"


def test_a_signed_call_is_answered(there: tuple[Federation, Raw]) -> None:
    """And so is the same enrolment again."""
    _, raw = there
    assert list(raw.beat(unknown=0.5).gone) == ["unknown"]
    again = raw.enrol("")
    assert (again.name, again.protocol, again.standing) == (raw.name, 2, "approved")


def test_a_sign_of_life_asks_which_runs_were_deleted(there: tuple[Federation, Raw]) -> None:
    """Of so many at a time, of projects that it serves; of one that is there, or was not, it hears nothing."""
    federation, raw = there
    with federation.journal._lock:
        for at, project in enumerate(("default", "other", "default")):
            run = RunId(f"gone-{at}-{raw.name}")
            times: dict[str, Any] = {"created": 0.0, "ended": 1.0, "deleted": 2.0, "state_digest": None, "parent": None}
            federation.journal._tombstones[run] = Tombstone(
                run, name="", method="fedavg", status="completed", project=project, by="", rule="", **times
            )
    asked = pb.BeatRequest(stored=["unknown", *(f"gone-{at}-{raw.name}" for at in range(3))])
    assert list(raw.ask("Beat", asked, pb.BeatReply).deleted) == [f"gone-0-{raw.name}", f"gone-2-{raw.name}"]
    asked = pb.BeatRequest(stored=[*(f"run-{i}" for i in range(64)), f"gone-0-{raw.name}"])
    assert list(raw.ask("Beat", asked, pb.BeatReply).deleted) == []


def test_a_sign_of_life_asks_which_runs_are_over(there: tuple[Federation, Raw]) -> None:
    """Of so many at a time; an older agent asks for none."""
    _, raw = there
    asked = pb.BeatRequest(quiet=[f"run-{i}" for i in range(99)])
    assert list(raw.ask("Beat", asked, pb.BeatReply).over) == [f"run-{i}" for i in range(64)]
    assert list(raw.beat().over) == []


def test_a_call_without_a_proof(there: tuple[Federation, Raw]) -> None:
    """Nothing at all, half of it, or garbage."""
    _, raw = there
    whole = dict(raw.proof("Beat", b""))
    for metadata in (
        (),
        (("tideline-client", raw.name),),
        (("tideline-client", raw.name), ("authorization", "Bearer ")),
        tuple((whole | {"tideline-signature": "???"}).items()),
        tuple((whole | {"tideline-signature": ""}).items()),
        tuple((whole | {"tideline-time": "soon"}).items()),
        tuple((whole | {"tideline-time": "9" * 400}).items()),
        tuple((whole | {"tideline-client": ""}).items()),
    ):
        assert refused(lambda metadata=metadata: raw.send("Beat", b"", metadata))[0] == "IdentityRefused"


def test_a_wrong_key(there: tuple[Federation, Raw]) -> None:
    """A signature by another key proves nothing, and takes no name."""
    federation, raw = there
    thief = Raw(raw.channel, raw.name)
    assert refused(thief.beat) == ("IdentityRefused", f"The call's signature is not that of {raw.name!r}")
    kind, what = refused(lambda: thief.enrol(federation.run_service.invite("", {}, 60.0)))
    assert kind == "IdentityRefused" and "belongs to another agent" in what
    assert refused(Raw(raw.channel, raw.name, late=9999.0).beat)[0] == "IdentityRefused", "nothing is said of the time"
    raw.beat()


def test_anothers_name(there: tuple[Federation, Raw]) -> None:
    """Neither a neighbour's name beside one's own signature, nor a signature over it by one's own key."""
    federation, raw = there
    other = Raw(raw.channel, f"{raw.name}-2")
    other.enrol(federation.run_service.invite(other.name, {}, 60.0))
    shown = dict(raw.proof("Beat", b"")) | {"tideline-client": other.name}
    assert refused(lambda: raw.send("Beat", b"", tuple(shown.items())))[0] == "IdentityRefused"
    raw.name = other.name
    assert refused(raw.beat)[0] == "IdentityRefused"


def test_a_proof_is_good_for_one_request(there: tuple[Federation, Raw]) -> None:
    """Not for another body, another call or another time."""
    _, raw = there
    body = pb.BeatRequest(progress={"o": 0.5}).SerializeToString()
    proof = raw.proof("Beat", body)
    raw.send("Beat", body, proof)
    for call, altered in (("Beat", body[:-1] + b"\x00"), ("Beat", b""), ("Report", body)):
        assert refused(lambda call=call, altered=altered: raw.send(call, altered, proof))[0] == "IdentityRefused"
    later = dict(proof) | {"tideline-time": str(int(dict(proof)["tideline-time"]) + 1)}
    assert refused(lambda: raw.send("Beat", body, tuple(later.items())))[0] == "IdentityRefused"


def test_a_push_is_proven_by_its_head(there: tuple[Federation, Raw]) -> None:
    """Another head than the signed one is refused before it is parsed."""
    _, raw = there
    head = pb.PushHead(order="o", parts=[pb.Arrival(digest="d", size=1)]).SerializeToString()
    call = raw.channel.stream_unary(f"{SERVICE}Push", None, None)
    other = pb.PushHead(order="o", parts=[pb.Arrival(digest="e", size=1)]).SerializeToString()
    for sent in (other, b"", b"\xff"):
        kind, _ = refused(lambda sent=sent: call(iter([sent]), metadata=raw.proof("Push", head), timeout=LONG))
        assert kind == "IdentityRefused"
    assert refused(lambda: call(iter([head]), metadata=raw.proof("Push", head), timeout=LONG))[0] == "NotFound"


@pytest.mark.parametrize("late", [WINDOW_SECONDS + 30, -WINDOW_SECONDS - 30])
def test_a_stale_time(there: tuple[Federation, Raw], late: float) -> None:
    """Both times are told; within five minutes either way all is well."""
    _, raw = there
    raw.late = late
    for call in (raw.beat, lambda: raw.enrol("")):
        kind, what = refused(call)
        assert kind == "ClockRefused" and what.count(" UTC") == 2
    raw.late = late / 2
    raw.beat()


@pytest.mark.parametrize("keys", [(b"", b""), (b"x" * 31, b"y" * 32), (b"x" * 32, b"y" * 33)])
def test_an_enrolment_without_keys(there: tuple[Federation, Raw], keys: tuple[bytes, bytes]) -> None:
    """Protocol 2 has two keys of 32 bytes."""
    _, raw = there
    assert refused(lambda: raw.enrol("t", sign_key=keys[0], receive_key=keys[1]))[0] == "Malformed"


def rotation(fresh: Raw, receive_key: bytes = b"", signer: Raw | None = None, name: str = "") -> pb.RotateRequest:
    """New keys that sign for themselves; with another receiving key, by another's key, or for another name."""
    sign_key, receive_key = fresh.public[0], receive_key or fresh.public[1]
    words = f"tideline rotation 2\n{name or fresh.name}\n{sign_key.hex()}\n{receive_key.hex()}".encode()
    signature = (signer or fresh).key.sign(words)
    return pb.RotateRequest(sign_key=sign_key, receive_key=receive_key, signature=signature)


def test_keys_of_low_order(there: tuple[Federation, Raw]) -> None:
    """Neither enrolled nor rotated to: whatever is sealed to one, anybody could open."""
    federation, raw = there
    token, weak = federation.run_service.invite("", {}, 60.0), bytes.fromhex(LOW_ORDER[0])
    kind, what = refused(lambda: Raw(raw.channel, "weak").enrol(token, receive_key=weak))
    assert kind == "Malformed" and "of low order" in what
    fresh = Raw(raw.channel, raw.name)
    kind, what = refused(lambda: raw.ask("Rotate", rotation(fresh, weak), pb.RotateReply))
    assert kind == "Malformed" and "of low order" in what
    raw.beat()
    assert federation.journal.client("weak") is None


def test_an_enrolment_with_anothers_key(there: tuple[Federation, Raw]) -> None:
    """Who cannot sign with a key cannot enrol it; a key that is no point of the curve signs nothing."""
    federation, raw = there
    token = federation.run_service.invite("", {}, 60.0)
    thief = Raw(raw.channel, "thief")
    for key in (raw.public[0], b"\xff" * 32):
        kind, what = refused(lambda key=key: thief.enrol(token, sign_key=key))
        assert kind == "IdentityRefused" and "not signed by its own key" in what
    assert refused(lambda: thief.enrol(token, name="other"))[0] == "IdentityRefused"
    assert federation.journal.client("thief") is None


def test_rotation(there: tuple[Federation, Raw]) -> None:
    """New keys sign for themselves over the client's name; then the old ones open nothing."""
    federation, raw = there
    fresh, other = Raw(raw.channel, raw.name), Raw(raw.channel, raw.name)
    request, elsewhere = rotation(fresh), rotation(fresh, name="else")
    for wrong in (b"", rotation(fresh, signer=other).signature, elsewhere.signature):
        unproven = pb.RotateRequest(sign_key=request.sign_key, receive_key=request.receive_key, signature=wrong)
        assert refused(lambda unproven=unproven: raw.ask("Rotate", unproven, pb.RotateReply))[0] == "IdentityRefused"
    assert refused(lambda: fresh.ask("Rotate", request, pb.RotateReply))[0] == "IdentityRefused", "the old key signs the call"
    federation.run_service.enrolment.ask_rotation(raw.name)
    assert raw.beat().rotate
    raw.ask("Rotate", request, pb.RotateReply)
    assert not fresh.beat().rotate
    assert refused(raw.beat)[0] == refused(lambda: raw.ask("Rotate", request, pb.RotateReply))[0] == "IdentityRefused"


def test_revocation_ends_a_stream_at_once(there: tuple[Federation, Raw]) -> None:
    """Nobody waits for a tick; and nothing else is answered any more."""
    federation, raw = there
    call = raw.channel.unary_stream(f"{SERVICE}Orders", None, pb.OrderOrTick.FromString)
    stream = call(b"", metadata=raw.proof("Orders", b""), timeout=LONG)
    raw.beat()
    federation.run_service.revoke(raw.name, "left")
    for said in (lambda: next(stream), raw.beat, lambda: raw.enrol("")):
        kind, what = refused(said)
        assert kind == "IdentityRefused" and what.endswith(": left") and "was revoked on 20" in what


def rotated(federation: Federation, raw: Raw) -> None:
    """The client brings new keys, by a call that the old ones sign."""
    raw.ask("Rotate", rotation(Raw(raw.channel, raw.name)), pb.RotateReply)


def rotated_elsewhere(federation: Federation, raw: Raw) -> None:
    """Another coordinator has given it new keys, a while ago."""
    known = federation.run_service.enrolment.find(raw.name)
    federation.journal.rekey(known.name, known.sign_key, Keys("aa" * 32, "bb" * 32))
    federation.clock.advance(FRESH_SECONDS)
    federation.run_service.bell.ring(f"client:{raw.name}")


REKEYED: dict[str, Callable[[Federation, Raw], None]] = {"rotated": rotated, "rotated elsewhere": rotated_elsewhere}


def order_for(federation: Federation, raw: Raw) -> str:
    """The client's order to join a run that is new."""
    federation.run_service.start(experiment("fedavg", {raw.name: "source"}))
    (order,) = federation.journal.open_orders(federation.run_service.enrolment.find(raw.name).name)
    return str(order.id)


def step_for(federation: Federation, raw: Raw) -> str:
    """The client's order of a run's first step: it has joined."""
    name = order_for(federation, raw)
    join = federation.journal.order(OrderId(name))
    assert join is not None
    joined = raw.ask("Report", pb.ReportRequest(order=name, facts='{"labelled": true}'), pb.Receipt)
    assert joined.verdict == "accepted"
    federation.turn([join.run])
    (order,) = federation.journal.open_orders(join.client)
    return str(order.id)


@pytest.mark.parametrize("how", REKEYED)
def test_new_keys_end_a_stream_of_orders(there: tuple[Federation, Raw], how: str) -> None:
    """At once, and as a stream that is over: the agent listens again with its new keys. Who has the old ones does not."""
    federation, raw = there
    call = raw.channel.unary_stream(f"{SERVICE}Orders", None, pb.OrderOrTick.FromString)
    order_for(federation, raw)
    stream = call(b"", metadata=raw.proof("Orders", b""), timeout=LONG)
    assert next(stream).HasField("order")
    REKEYED[how](federation, raw)
    assert list(stream) == []
    assert refused(lambda: next(call(b"", metadata=raw.proof("Orders", b""), timeout=LONG)))[0] == "IdentityRefused"


@pytest.mark.parametrize("how", REKEYED)
def test_new_keys_end_a_push(there: tuple[Federation, Raw], how: str) -> None:
    """Its next chunk is not taken. To the agent that is a cut: it asks where to go on."""
    federation, raw = there
    digest, order = digest_of([b"two"]), step_for(federation, raw)
    head = pb.PushHead(order=order, parts=[pb.Arrival(digest=digest, size=3)]).SerializeToString()
    report = pb.ReportRequest(order=order, files=[pb.File(digest=digest, size=3)])
    chunks: queue.Queue[bytes | None] = queue.Queue()
    chunks.put(head)
    chunks.put(b"t")
    call = raw.channel.stream_unary(f"{SERVICE}Push", None, None)
    pushing = call.future(iter(chunks.get, None), metadata=raw.proof("Push", head), timeout=LONG)
    while not raw.ask("Report", report, pb.Receipt).missing[0].offset:
        assert not pushing.done()
    REKEYED[how](federation, raw)
    for last in (b"wo", None):
        chunks.put(last)
    kind, what = refused(pushing.result)
    assert kind == "Unreachable" and "has other keys than those that began this call" in what


def test_a_pending_client_is_not_served(there: tuple[Federation, Raw]) -> None:
    """It may enrol again, which tells how it stands; once it is approved, it is served at once."""
    federation, raw = there
    pending = Raw(raw.channel, f"{raw.name}-p")
    assert pending.enrol(federation.run_service.enrolment.invite(pending.name, {}, 60.0, hold=True)).standing == "pending"
    kind, what = refused(pending.beat)
    assert kind == "IdentityRefused" and "waits for approval" in what
    assert pending.enrol("").standing == "pending"
    federation.run_service.approve(pending.name)
    pending.beat()
    assert pending.enrol("").standing == "approved"


def test_what_another_coordinator_changed(there: tuple[Federation, Raw]) -> None:
    """A new key is found at once, a revocation after a few seconds."""
    federation, raw = there
    raw.beat()
    fresh = Raw(raw.channel, raw.name)
    known = federation.run_service.enrolment.find(raw.name)
    sign_key, receive_key = (key.hex() for key in fresh.public)
    federation.journal.rekey(known.name, known.sign_key, Keys(sign_key, receive_key))
    fresh.beat()
    federation.journal.revoke(known.name, "left", federation.clock.now())
    fresh.beat()
    federation.clock.advance(FRESH_SECONDS)
    assert refused(fresh.beat)[0] == "IdentityRefused"


def test_who_does_not_speak_as_we_do(there: tuple[Federation, Raw]) -> None:
    """An older protocol is refused as a newer one is, with both versions."""
    _, raw = there
    for protocol in (1, 3):
        kind, what = refused(lambda protocol=protocol: raw.enrol("", protocol=protocol))
        assert kind == "VersionRefused" and f"(tideline 9) speaks protocol {protocol};" in what
        assert "(tideline 1.2.3) speaks 2, and no older one" in what
    assert raw.send("Hello", b"", (), pb.HelloReply).oldest == 2


@pytest.fixture
def link() -> str:
    """How the audit log names the way by which these tests call."""
    return "grpc"


def test_who_is_refused_stands_in_the_audit_log(there: tuple[Federation, Raw], link: str) -> None:
    """A thief of a name and a token that nobody made, each once, however often they come; a wrong clock does not."""
    federation, raw = there
    before, thief = federation.journal.audit_tip().seq, Raw(raw.channel, raw.name)
    for _ in range(3):
        refused(thief.beat)
        refused(lambda: Raw(raw.channel, "mallory").enrol("a token that nobody made"))
    raw.late = WINDOW_SECONDS + 30
    refused(raw.beat)
    stolen, unknown = federation.journal.audit(before)
    assert (stolen.kind, stolen.client, stolen.details["address"]) == ("sign_in_refused", raw.name, "127.0.0.1")
    assert (unknown.client, unknown.details["what"]) == ("mallory", "The token is not known here")
    assert unknown.details["port"] == stolen.details["port"] == link


def test_who_only_asks_stands_in_the_audit_log_too(there: tuple[Federation, Raw]) -> None:
    """A token can be guessed at by Check as well as by Enrol."""
    federation, raw = there
    before, guesser = federation.journal.audit_tip().seq, Raw(raw.channel, f"{raw.name}-g")
    sign_key, receive_key = guesser.public
    request = pb.EnrolRequest(protocol=2, token="a guess", name=guesser.name, sign_key=sign_key, receive_key=receive_key)
    assert refused(lambda: guesser.ask("Check", request, pb.EnrolReply))[0] == "IdentityRefused"
    (noted,) = federation.journal.audit(before)
    assert (noted.kind, noted.client, noted.details["what"]) == ("sign_in_refused", guesser.name, "The token is not known here")


@pytest.mark.parametrize("call", ["Enrol", "Check"])
@pytest.mark.parametrize(
    "said",
    [{"roles": ["x" * 60_000]}, {"roles": ["source"] * 7_000}, {"version": "9" * 81}, {"token": "t" * 4097}],
    ids=["endless role", "endless roles", "endless version", "endless token"],
)
def test_an_enrolment_has_bounds(there: tuple[Federation, Raw], call: str, said: dict[str, Any]) -> None:
    """What an agent says of itself would lie in its row and in the audit log; neither has grown."""
    federation, raw = there
    before, sign_key, receive_key = federation.journal.audit_tip(), *raw.public
    who: dict[str, Any] = {"protocol": 2, "name": raw.name, "sign_key": sign_key, "receive_key": receive_key}
    assert refused(lambda: raw.ask(call, pb.EnrolRequest(**who | said), pb.EnrolReply))[0] == "Malformed"
    known = federation.run_service.enrolment.find(raw.name)
    assert (known.roles, known.version, federation.journal.audit_tip()) == (("source",), "9", before)


def test_strangers_have_so_many_looks_a_minute() -> None:
    """From one address; then they are put off, which the audit log tells. Who is known calls on; a wrong clock is no stranger."""
    clock = ManualClock(1_000_000_040.0)
    with (
        grpc_port_of(Limits(LocalCounts(), clock, wrong_keys=3)) as (federation, port),
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        raw = Raw(channel, "dora")
        raw.enrol(federation.run_service.invite("dora", {}, 60.0))
        raw.late = WINDOW_SECONDS + 30
        assert {refused(raw.beat)[0] for _ in range(5)} == {"ClockRefused"}
        raw.late = 0.0
        strangers = (Raw(channel, "dora"), Raw(channel, "nobody"), Raw(channel, "dora"))
        assert [refused(each.beat)[0] for each in strangers] == ["IdentityRefused"] * 3
        for name in ("dora", "somebody"):
            kind, what = refused(Raw(channel, name).beat)
            assert kind == "TooMany" and what == "More than 3 requests without the right key a minute come from 127.0.0.1"
        assert all(raw.beat() is not None for _ in range(5))
        noted = [(each.client, each.details["what"][:9]) for each in federation.journal.audit() if each.kind == "sign_in_refused"]
        assert noted[-2:] == [("dora", "More than"), ("somebody", "More than")]
        clock.advance(120.0)
        assert refused(Raw(channel, "dora").beat)[0] == "IdentityRefused"


def test_an_agent_among_strangers_is_put_off_and_not_refused() -> None:
    """Its keys were changed at another coordinator, and its address has no looks left: it is let in after a few seconds."""
    with (
        grpc_port_of(Limits(LocalCounts(), ManualClock(1_000_000_040.0), wrong_keys=1)) as (federation, port),
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        raw, fresh = Raw(channel, "dora"), Raw(channel, "dora")
        raw.enrol(federation.run_service.invite("dora", {}, 60.0))
        raw.beat()
        refused(Raw(channel, "nobody").beat)
        known = federation.run_service.enrolment.find("dora")
        sign_key, receive_key = (key.hex() for key in fresh.public)
        federation.journal.rekey(known.name, known.sign_key, Keys(sign_key, receive_key))
        assert refused(fresh.beat)[0] == "TooMany"
        federation.clock.advance(FRESH_SECONDS)
        fresh.beat()


def test_an_unforeseen_failure_keeps_its_words(there: tuple[Federation, Raw], monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller hears a number, and may try again; the log has the rest under that number."""
    federation, raw = there

    def fail(*args: object, **more: object) -> None:
        raise RuntimeError("connection to db.internal:5432 failed")

    monkeypatch.setattr(federation.agent_service.part_store, "probe", fail)
    with capture_logs() as lines, pytest.raises(grpc.RpcError) as caught:
        raw.ask("Probe", pb.ProbeRequest(data=b"x"), pb.ProbeReply)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    incident = next(line["incident"] for line in lines if line["event"] == "call_failed")
    assert caught.value.details() == f"the coordinator failed in an unexpected way, incident {incident}"
    assert "tideline-error-bin" not in dict(caught.value.trailing_metadata())
