"""Clients: invitations, agents that are enrolled, and their public keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tideline.core.run import ClientId
from tideline.engine.audit.log import START, Tip
from tideline.engine.model.access.projects import DEFAULT

NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")  # of a client, of an API key
Roles = tuple[str, ...] | None  # that an agent sent; None: it sent none


class Standing(StrEnum):
    """What a client may do. A pending one waits for approval; a revoked one is admitted again by an invitation only.

    A doubled one waits, too: two agents had its keys at once, or one whose home is older than it was.
    """

    PENDING = "pending"
    APPROVED = "approved"
    REVOKED = "revoked"
    DOUBLED = "doubled"


@dataclass(frozen=True)
class Invite:
    """A one-use token, stored hashed. `name` pins the client's name; empty lets the client choose. hold: it is pending first.

    project: which the client serves that it admits.
    """

    token_hash: str
    name: str
    labels: Mapping[str, str]
    expires: float
    used_by: str = ""
    hold: bool = False
    project: str = DEFAULT


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
    """A client as its peers know it: its keys, and how it came to them, the oldest first."""

    keys: Keys
    handovers: tuple[Handover, ...] = ()


@dataclass(frozen=True)
class Session:
    """One start of an agent. count: how many starts its home has seen; id: random, so that two of one count are not the same."""

    count: int = 0
    id: str = ""

    def __str__(self) -> str:
        return f"{self.count}.{self.id}" if self.id else ""


NO_SESSION = Session()
SESSION = re.compile(r"([0-9]{1,9})\.([0-9a-f]{8})")


def session_in(text: str) -> Session | None:
    """A session from its text; the empty text is none, and None what no session is called."""
    found = SESSION.fullmatch(text)
    return Session(int(found[1]), found[2]) if found else None if text else NO_SESSION


@dataclass(frozen=True)
class ShownLedger:
    """What an agent shows of its ledger when it connects.

    last: its last entry. reported: its entry of the number that it is said to have reported; without a hash if it has none.
    accepted: whether its owner goes on without the one that was reported.
    """

    last: Tip = field(default_factory=Tip)
    reported: Tip = field(default_factory=Tip)
    accepted: bool = False


@dataclass(frozen=True)
class Client:
    """An enrolled agent. `roles` are those that its owner allows.

    rotate     whether it is asked for new keys
    handovers  how it came to its keys from those that it enrolled with
    session, session_id, session_began   the start of the agent that is served
    doubles    of a doubled one: the sessions that showed up, as texts
    shut       the ids of sessions that were not let go on
    ledger_entries, ledger_hash   the last entry of its ledger that it reported; None: none
    ledger_now   how many entries it showed when that one was not among them; None: it was
    charged, charged_at   how often it said that it has charged its budget, at most, and when; None: it has told of none
    projects   which it serves: runs of others ask it for nothing
    device     the name of what it computes on, as it told when it started; None: it does not tell
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
    session: int = 0
    session_id: str = ""
    session_began: float = 0.0
    doubles: tuple[str, ...] = ()
    shut: tuple[str, ...] = ()
    projects: tuple[str, ...] = (DEFAULT,)
    ledger_entries: int | None = None
    ledger_hash: str | None = None
    ledger_now: int | None = None
    charged: int | None = None
    charged_at: float | None = None
    device: str | None = None

    @property
    def reported(self) -> Tip:
        return Tip(self.ledger_entries or 0, self.ledger_hash or START)

    @property
    def current(self) -> Session:
        return Session(self.session, self.session_id)

    @property
    def keys(self) -> Keys:
        return Keys(self.sign_key, self.receive_key)


class KeyRole(StrEnum):
    """What the holder of a key may do: read; run experiments and admit agents; everything, in every project."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def covers(self, needed: KeyRole) -> bool:
        order = tuple(KeyRole)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True)
class ApiKey:
    """An API key. Of the key itself there is only a hash. A name is free again once its key is revoked.

    last_used   to the minute; None: never       expires   None: never       revoked   None: it is valid
    project     that it opens; empty: every one, as admins' keys do
    """

    id: str
    name: str
    key_hash: str
    role: KeyRole
    created: float
    created_by: str
    last_used: float | None = None
    expires: float | None = None
    revoked: float | None = None
    project: str = DEFAULT
