"""Idempotency records: what a user asks for under a key is done once, however often it is sent and whoever dies meanwhile.

reserve   the key, and a random seed with it
do        what was asked for, under names that come from the seed: who tries again finds what was done
conclude  with the answer; only then it is sent
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tideline.core.errors import Unreachable
from tideline.core.run import RunId
from tideline.engine.model.access.once import IdempotencyRecord
from tideline.engine.model.runs import RunRow
from tideline.engine.ports.journal import Journal

KEPT_SECONDS = 86400.0  # whoever asks again does so within a day; a key that is older may be used anew


@dataclass(frozen=True)
class Identity:
    """What the things are called that a request makes. Every try of a record has the same; a request without a key its own.

    secret  what a token needs beside the seed; no store has it
    idempotency record  the record's key, or nothing
    worker  this try of it
    by      the name of who asks, or nothing
    scope   the project that it is asked in; nothing: who asks sees every one
    """

    seed: str = field(default_factory=lambda: secrets.token_hex(16))
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    idempotency_record: str = ""
    worker: str = ""
    by: str = ""
    scope: str = ""

    @property
    def run(self) -> RunId:
        return RunId(hashlib.sha256(f"run {self.seed}".encode()).hexdigest()[:12])

    @property
    def token(self) -> str:
        """The token of the invitation that is made: 24 bytes that nobody knows who has only the seed."""
        made = hmac.digest(self.secret, f"invite {self.seed}".encode(), "sha256")
        return base64.urlsafe_b64encode(made[:24]).decode()

    @property
    def api_key(self) -> str:
        """The API key that is made: 32 bytes, as secret as the token."""
        made = hmac.digest(self.secret, f"key {self.seed}".encode(), "sha256")
        return base64.urlsafe_b64encode(made).decode().rstrip("=")

    @property
    def webhook_secret(self) -> bytes:
        """The 32 bytes by which notices to a new target are signed, as secret as the token."""
        return hmac.digest(self.secret, f"webhook {self.seed}".encode(), "sha256")


def last_seen(journal: Journal, identity: Identity | None, runs: Iterable[RunRow]) -> Mapping[str, int]:
    """Each run's last event as the record's first try saw it. Nothing without a key: then there is one try."""
    if identity is None or not identity.idempotency_record:
        return {}
    now = {str(run.id): max((event.seq for event in journal.events(run.id)), default=0) for run in runs}
    return journal.choose(identity.idempotency_record, now)


def done_since(journal: Journal, seen: Mapping[str, int], cause: str) -> frozenset[str]:
    """The runs whose status was changed for this cause after what was seen: by an earlier try, or beside it."""
    causes = {run: [event.data.get("cause") for event in journal.events(RunId(run), seq)] for run, seq in seen.items()}
    return frozenset(run for run, known in causes.items() if cause in known)


def free(known: IdempotencyRecord, wanted: IdempotencyRecord, over: str) -> bool:
    """Whether a record may be taken up: it is the same, has no answer, and nobody is at it but who was seen for too long."""
    return known.asked == wanted.asked and known.answer is None and known.worker in ("", over)


def overtaken() -> Unreachable:
    """The refusal of a worker whom another has taken for dead. Who sends the call again gets the other's answer."""
    return Unreachable("This call was taken up by another try of it meanwhile", "Send it again")
