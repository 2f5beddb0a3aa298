"""New keys for a site of a stage, vouched for by the old ones."""

from __future__ import annotations

from nacl.signing import SigningKey

from tests.laws.stage import Stage
from tideline.core.run import ClientId
from tideline.core.signing import handover_bytes
from tideline.engine.model.accounts import Handover, Peer
from tideline.engine.peers.peer_keys import Own, PeerKeys, fresh, raw


def handed_over(name: str, old: Own, new: Own) -> Handover:
    """The old keys' signature of the new ones."""
    signature = SigningKey(old.sign).sign(handover_bytes(name, *raw(new.public))).signature
    return Handover(new.public, signature.hex())


def peer(own: Own, *handovers: Handover) -> Peer:
    """A client as its peers are told of it."""
    return Peer(own.public, handovers)


def rotated(on: Stage, name: ClientId) -> None:
    """Rotate a site's keys: it keeps the old ones to receive with."""
    old, new = on.peer_keys_of[name].own(), fresh()
    own = Own(new.sign, (*new.receive, *old.receive))
    on.run_service.rekey(on.run_service.enrolment.find(name), new.public, handed_over(name, old, new).signature)
    on.peer_keys_of[name] = PeerKeys(lambda: own, on.peer_keys_of[name].pins)
    on.rebuild()
