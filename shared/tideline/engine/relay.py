"""The coordinator as a relay of what sites seal for each other: what it tells them, and what it holds sealed values to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from tideline.archive import sealing
from tideline.archive.errors import SealBroken, Undeclared
from tideline.core.errors import RosterRefused
from tideline.core.handle import Handle
from tideline.core.privacy import Audience
from tideline.core.run import ClientId, RunId
from tideline.engine.peers import about, hex_or_none
from tideline.engine.rows import Client, Envelope, OrderRow, Reply, RunRow

ONLY_PEERS = [Audience.PEERS.value]


def seals(contract: Iterable[Mapping[str, Any]]) -> bool:
    """Whether sites of a run with this contract seal something for each other."""
    return any(list(clause["audience"]) == ONLY_PEERS for clause in contract)


def told_of(client: Client) -> dict[str, Any]:
    """What peers are told of a client that has keys."""
    keys = client.keys
    assert keys is not None
    handovers = [{**asdict(each.keys), "signature": each.signature} for each in client.handovers]
    return {**asdict(keys), "handovers": handovers}


def for_one(envelope: Envelope, client: ClientId) -> Envelope:
    """An envelope with the key of one reader alone."""
    return replace(envelope, keys={name: key for name, key in envelope.keys.items() if name == client})


def check_keys(clients: Iterable[Client]) -> None:
    """Raises RosterRefused for a client without keys: nothing could be sealed to it."""
    for client in clients:
        if client.keys is None:
            what = f"{client.name} speaks protocol {client.protocol} and has no keys; this method's sites seal for each other"
            raise RosterRefused(what, "Upgrade its agent; it makes keys by itself", path=f"roster.{client.name}")


def check_envelopes(row: OrderRow, run: RunRow, reply: Reply, named: Sequence[Handle[Any]], client: Client | None) -> None:
    """A reply brings, for each handle that it names, one envelope that its readers will accept. Raises Malformed errors.

    They would refuse others themselves; refused here, the fault is told where it lies.
    """
    fact = run.plan[row.cursor]
    brought = [each.handle for each in reply.sealed]
    if set(brought) != set(named) or len(set(brought)) != len(brought):
        raise Undeclared("The reply's sealed values are not those that its root names")
    for envelope in reply.sealed:
        handle = envelope.handle
        if (handle.holder, handle.phase, handle.round) != (row.client, fact.phase, fact.round):
            raise Undeclared(f"The reply of {row.client} to round {fact.round} of {fact.phase} names a value of another place")
        check_envelope(row.run, envelope, run.roster, client)


def check_envelope(run: RunId, envelope: Envelope, roster: Mapping[ClientId, str], client: Client | None) -> None:
    """One envelope: for members of the run, sealed in full, signed by its holder. Raises SealBroken."""
    what = about(run, envelope.handle)
    odd = sorted(name for name in envelope.keys if name not in roster)
    if odd or not envelope.keys:
        raise sealing.broken(what, f"it is for {odd[0][:64] if odd else 'nobody'}, who is no member of the run")
    if any(len(hex_or_none(key)) != sealing.SEALED_KEY_BYTES for key in envelope.keys.values()):
        raise sealing.broken(what, "a key of it is no sealed key")
    if envelope.bytes != sealing.sealed_size(envelope.handle.size):
        raise sealing.broken(
            what, f"it has {envelope.bytes} bytes; {sealing.sealed_size(envelope.handle.size)} were to be sealed"
        )
    # It may have been signed before the client's keys were rotated, and be reported after that.
    keys = [client.keys, *(each.keys for each in client.handovers)] if client else []
    sealing.verify(what, envelope.cipher, hex_or_none(envelope.signature), [hex_or_none(k.sign) for k in keys if k])


__all__ = ["SealBroken", "check_envelopes", "check_keys", "for_one", "seals", "told_of"]
