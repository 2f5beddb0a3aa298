"""The coordinator as a relay of what sites seal for each other: what it tells them, and what it holds sealed values to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tideline.archive import sealing
from tideline.archive.errors import SealBroken, Undeclared
from tideline.core.errors import PeerRefused, RosterRefused
from tideline.core.handle import AnyHandle
from tideline.core.privacy import TO_PEERS, Audience, Contract
from tideline.core.run import ClientId, RunId
from tideline.engine.model.accounts import Client
from tideline.engine.model.orders import Envelope, OrderRow, Reply
from tideline.engine.model.runs import RunRow
from tideline.engine.peers.peer_keys import hex_or_none, raw
from tideline.engine.peers.sealing import about, handed


def seals(contract: Contract) -> bool:
    """Whether sites of a run with this contract seal something for each other: values, or shares of masks."""
    return any(clause.audience == TO_PEERS or Audience.SUM in clause.audience for clause in contract)


def for_one(envelope: Envelope, client: ClientId) -> Envelope:
    keys, signatures = ({client: all_of[client]} if client in all_of else {} for all_of in (envelope.keys, envelope.signatures))
    return replace(envelope, keys=keys, signatures=signatures)


def check_keys(clients: Iterable[Client]) -> None:
    """Raises RosterRefused for a client whose key to receive is of no use: nothing could be sealed to it."""
    for client in clients:
        if not sealing.receives(raw(client.keys)[1]):
            what = f"{client.name} has a key to receive that is none, or of low order: anybody could open what is sealed to it"
            todo = f"Have it make new keys: tideline clients rotate {client.name}"
            raise RosterRefused(what, todo, path=f"roster.{client.name}")


def check_envelopes(row: OrderRow, run: RunRow, reply: Reply, named: Sequence[AnyHandle], client: Client | None) -> None:
    """A reply brings, for each handle that it names, one envelope that its readers will accept. Raises Malformed errors.

    They would refuse others themselves; refused here, the fault is reported where it is.
    """
    fact = run.plan[row.cursor]
    given = [each.handle for each in reply.sealed]
    if set(given) != set(named) or len(set(given)) != len(given):
        raise Undeclared("The reply's sealed values are not those that its root names")
    for envelope in reply.sealed:
        handle = envelope.handle
        if (handle.holder, handle.phase, handle.round) != (row.client, fact.phase, fact.round):
            raise Undeclared(f"The reply of {row.client} to round {fact.round} of {fact.phase} names a value of another place")
        check_envelope(row.run, envelope, run.roster, client)


def check_envelope(run: RunId, envelope: Envelope, roster: Mapping[ClientId, str], client: Client | None) -> None:
    """One envelope: for members of the run, sealed in full, signed by its holder for each reader. Raises SealBroken."""
    what = about(run, envelope.handle)
    odd = sorted(name for name in envelope.keys if name not in roster)
    if odd or not envelope.keys:
        raise sealing.by_holder(what, f"it is for {odd[0][:64] if odd else 'nobody'}, who is no member of the run")
    if any(len(hex_or_none(key)) != sealing.SEALED_KEY_BYTES for key in envelope.keys.values()):
        raise sealing.by_holder(what, "a key of it is no sealed key")
    if envelope.bytes != sealing.sealed_size(envelope.handle.size):
        raise sealing.by_holder(
            what, f"it has {envelope.bytes} bytes; {sealing.sealed_size(envelope.handle.size)} were to be sealed"
        )
    if more := sorted(envelope.signatures.keys() - envelope.keys.keys()):
        raise sealing.by_holder(what, f"it is signed for {more[0][:64]}, who is no reader of it")
    # It may have been signed before the client's keys were rotated, and be reported after that.
    known = [client.keys, *(each.keys for each in client.handovers)] if client else []
    signers = [hex_or_none(keys.sign) for keys in known if keys]
    for reader in sorted(envelope.keys):  # one of the keys signed for all of them
        mine, signature = handed(run, envelope, reader), hex_or_none(envelope.signatures.get(reader, ""))
        signers = [key for key in signers if sealing.signed_by(mine, signature, [key])]
        if not signers:
            raise sealing.by_holder(mine.about, f"{mine.about.holder} has not signed it for {reader}")


KINDS = (SealBroken.__name__, PeerRefused.__name__)
Plain = Mapping[str, Any]


def shut_out(orders: Iterable[OrderRow]) -> dict[ClientId, str]:
    """Of a round's newest orders: each site that has failed for such a reason, and the error's kind."""
    return {o.client: o.failure.kind for o in orders if o.failure is not None and o.failure.kind in KINDS}


def notes(result: Plain) -> Iterator[str]:
    """A sentence for each site that closed rounds went on without: the last of them. result: its `phases` and `clients`."""
    folded = {(phase["name"], phase["round"]): phase["clients"] for phase in result.get("phases", ()) if "clients" in phase}
    for client in result["clients"]:
        name = client["name"]
        failures = [each for each in client["failures"] if each["kind"] in KINDS]
        if missed := [each for each in failures if name not in folded.get(place(each), (name,))]:
            yield note(name, missed)


def note(name: str, failures: list[Plain]) -> str:
    last, more = failures[-1], len({place(each) for each in failures}) - 1
    before = f", and {more} {'round' if more == 1 else 'rounds'} before it," if more else ""
    return f"Round {last['round']} of {last['phase']}{before} closed without {name}. {last['kind']}: {last['what']}"


def place(failure: Plain) -> tuple[str, int]:
    return failure["phase"], failure["round"]


def without(sites: Mapping[str, str]) -> str:
    names = ", ".join(f"{name} ({kind})" for name, kind in sorted(sites.items()))
    return f", without {names}" if names else ""
