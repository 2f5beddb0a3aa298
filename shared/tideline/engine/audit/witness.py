"""The witness: a second, short chain of those audit events that a restored database must not forget.

Its records have the form of the audit log's entries and their own numbers. They lie beside the parts, outside the database, and
no secret is in them: of tokens the beginning of a hash, of clients their public keys.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tideline.core.errors import FederationError
from tideline.core.settings import Plain
from tideline.engine.audit.log import AuditEvent, Entry, Tip, hash_after, read_line
from tideline.engine.model.accounts import Keys

RESTORED, CONFIRMED = "restored", "restore_confirmed"
# What is witnessed: who is let in no more, which token is used up, which keys are a client's, and restores themselves.
WITNESSED = ("enrolled", "revoked", "rotated", "key_ended", RESTORED, CONFIRMED)
MOST_NAMES = 64  # of a list in an event


@dataclass(frozen=True)
class Mark:
    """How far a database's witness goes.

    chain     tells this database's records from those of every other
    secret    by which its coordinators know a tip that they gave away
    restored  the restore that nobody has confirmed yet
    lost_at   the number of the last record behind a gap that nobody can fill; 0: there is none
    """

    tip: Tip
    chain: str
    secret: str
    restored: Entry | None = None
    lost_at: int = 0


@dataclass(frozen=True)
class Seen:
    """A tip of the witness as an agent remembers it. proof: only the database that it came from can make it."""

    seq: int = 0
    hash: str = ""
    proof: str = ""


def seen(mark: Mark) -> Seen:
    """What an agent is given to remember."""
    return Seen(mark.tip.seq, mark.tip.hash, proof_of(mark, mark.tip.seq, mark.tip.hash))


def proof_of(mark: Mark, seq: int, tip: str) -> str:
    return hmac.new(mark.secret.encode(), f"{mark.chain} {seq} {tip}".encode(), hashlib.sha256).hexdigest()


def genuine(mark: Mark, given: Seen) -> bool:
    """Whether this database once gave that tip away: an agent cannot make one up."""
    return hmac.compare_digest(proof_of(mark, given.seq, given.hash), given.proof)


def record_in(content: bytes, number: int) -> Entry | None:
    """A record of the witness; None for what is none."""
    try:
        entry = read_line(number, content.decode("ascii"))
    except (FederationError, ValueError):
        return None
    return entry if entry.seq == number else None


def follows(before: Tip, entry: Entry) -> bool:
    """Whether a record is the next one, and as it was written. One behind a gap tells what it follows."""
    if entry.kind == RESTORED and entry.details.get("lost"):
        return entry.seq > before.seq
    return entry.seq == before.seq + 1 and hash_after(before.hash, entry) == entry.hash


def keys_in(entry: Entry) -> Keys:
    """The public keys of a rotation."""
    return Keys(str(entry.details["sign"]), str(entry.details["receive"]))


def restored(missing: Sequence[Entry], known: int, last: int, lost: bool, now: float) -> AuditEvent:
    """A database was found older than its witness, or than an agent's memory of it (lost: nobody has the records between)."""
    details: dict[str, Plain] = {"from": known, "to": last, "lost": lost}
    details |= {"clients": named(missing, "revoked"), "rotated": named(missing, "rotated")}
    details |= {"keys": sorted({str(e.details["name"]) for e in missing if e.kind == "key_ended"})[:MOST_NAMES]}
    return AuditEvent(RESTORED, now, details=details | {"invites": sum(e.kind == "enrolled" for e in missing)})


def named(missing: Iterable[Entry], kind: str) -> list[str]:
    return sorted({e.client for e in missing if e.kind == kind})[:MOST_NAMES]


def confirmed(by: str, now: float) -> AuditEvent:
    """An admin has seen what a restore brought back, and goes on."""
    return AuditEvent(CONFIRMED, now, by)
