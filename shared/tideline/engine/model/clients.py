"""Clients: invitations, agents that are enrolled, and their public keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tideline.core.run import ClientId


class Standing(StrEnum):
    """What a client may do. A pending one waits for a person's word; a revoked one is let in again by an invitation only."""

    PENDING = "pending"
    APPROVED = "approved"
    REVOKED = "revoked"


@dataclass(frozen=True)
class Invite:
    """A one-use token, stored hashed. `name` pins the client's name; empty lets the client choose. hold: it is pending first."""

    token_hash: str
    name: str
    labels: Mapping[str, str]
    expires: float
    used_by: str = ""
    hold: bool = False


@dataclass(frozen=True)
class Keys:
    """A client's public keys, in hexadecimal: Ed25519, by which it signs, and X25519, for what only it may read."""

    sign: str
    receive: str


@dataclass(frozen=True)
class Handover:
    """New keys that a client's keys before them signed (hexadecimal). The first that it had stand there unsigned."""

    keys: Keys
    signature: str


@dataclass(frozen=True)
class Peer:
    """A client as its peers are told of it: its keys, and how it came to them, the oldest first."""

    keys: Keys
    handovers: tuple[Handover, ...] = ()


@dataclass(frozen=True)
class Client:
    """An enrolled agent. `roles` are those that its owner allows.

    rotate     whether it is asked for new keys
    handovers  how it came to its keys from those that it enrolled with
    """

    name: ClientId
    roles: tuple[str, ...]
    labels: Mapping[str, str]
    version: str
    enrolled: float
    seen: float
    sign_key: str
    receive_key: str
    standing: Standing = Standing.APPROVED
    revoked: float | None = None
    reason: str = ""
    rotate: bool = False
    handovers: tuple[Handover, ...] = ()

    @property
    def keys(self) -> Keys:
        """Its public keys."""
        return Keys(self.sign_key, self.receive_key)
