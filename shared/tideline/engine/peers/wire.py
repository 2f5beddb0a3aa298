"""An envelope as a message of the wire, and back: for both ends, whatever library made the message."""

from __future__ import annotations

from typing import Any, TypeVar

from tideline.core.handle import Handle
from tideline.core.run import ClientId, Digest
from tideline.engine.model.orders import Envelope

M = TypeVar("M")


def sealed_out(envelope: Envelope, message: M) -> M:
    """A sealed value in a new message, which has the fields of federation.proto's Sealed."""
    made: Any = message
    handle = envelope.handle
    made.digest, made.size, made.holder = handle.digest, handle.size, handle.holder
    made.phase, made.round = handle.phase, handle.round
    made.cipher.digest, made.cipher.size = envelope.cipher, envelope.bytes
    made.keys.update({name: bytes.fromhex(key) for name, key in envelope.keys.items()})
    made.signatures.update({name: bytes.fromhex(signature) for name, signature in envelope.signatures.items()})
    return message


def sealed_in(message: Any) -> Envelope:
    """A sealed value from such a message."""
    handle: Handle[Any] = Handle(message.digest, int(message.size), ClientId(message.holder), message.phase, int(message.round))
    keys, signatures = (
        {ClientId(name): told.hex() for name, told in by_reader.items()} for by_reader in (message.keys, message.signatures)
    )
    return Envelope(handle, Digest(message.cipher.digest), int(message.cipher.size), keys, signatures)
