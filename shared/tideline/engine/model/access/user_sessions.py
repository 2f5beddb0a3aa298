"""Sessions of users who signed in with a browser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

RETAINED_SECONDS = 7 * 86400.0  # for so long after its end a session stands in the list


@dataclass(frozen=True)
class UserSession:
    """A session. Of its secret, which the browser's cookie has, there is only a hash.

    state_hash  of the sign-in that it began with: of one sign-in there is one session
    name        as the audit log has it: readable, with the issuer and the subject
    values      those of the user's claim that grant something; what they grant is looked up at each call
    last_used   to the minute; None: never       ended   None: it is good until it expires
    """

    id: str
    token_hash: str
    state_hash: str
    issuer: str
    subject: str
    name: str
    values: tuple[str, ...]
    created: float
    expires: float
    last_used: float | None = None
    ended: float | None = None

    def good(self, now: float) -> bool:
        return self.ended is None and now < self.expires


def listed(sessions: Sequence[UserSession]) -> tuple[UserSession, ...]:
    """The oldest first; of one age, by id."""
    return tuple(sorted(sessions, key=lambda each: (each.created, each.id)))
