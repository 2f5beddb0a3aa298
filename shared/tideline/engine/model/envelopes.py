"""Sealed values on their way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tideline.core.handle import AnyHandle
from tideline.core.run import ClientId, Digest


@dataclass(frozen=True)
class Envelope:
    """A sealed value on its way: the digest and bytes of its sealed file; the content key sealed to each reader, and the holder's
    signature of what each is handed (hexadecimal both). An order has those of its own client alone.
    """

    handle: AnyHandle
    cipher: Digest
    bytes: int
    keys: Mapping[ClientId, str]
    signatures: Mapping[ClientId, str]
