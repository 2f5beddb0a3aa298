"""Sessions of browsers. What their holders may do is looked up at each call, by the key or the grants that they began with."""

from __future__ import annotations

import hmac
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from tideline.core.errors import FederationError, IdentityRefused, NotFound
from tideline.engine.coordinator.api_keys import USED_SECONDS, ApiKeys, Caller, hash_of, seal_of
from tideline.engine.coordinator.witness import Witness
from tideline.engine.model.access.user_sessions import UserSession
from tideline.engine.ports.clock import Clock
from tideline.engine.ports.journal import Journal

BEGIN = "Sign in again"
OF_KEYS = "api-key"  # the issuer of sessions that began with a key; a provider's issuer is an address, so none is called so
KEY_SECONDS = 8 * 3600.0  # for which a session is good that began with a key


@dataclass(frozen=True)
class Begun:
    """A session, and the secret that its browser has of it."""

    session: UserSession
    secret: str

    @property
    def csrf(self) -> str:
        """What pages of this coordinator send with each change, and others cannot know."""
        return hmac.digest(self.secret.encode(), b"csrf", "sha256").hex()

    @property
    def by_key(self) -> bool:
        """Whether it began with a key."""
        return self.session.issuer == OF_KEYS


class Users(Protocol):
    """Users of a provider."""

    @property
    def issuer(self) -> str: ...

    def of_session(self, session: UserSession) -> Caller:
        """Whose session it is. Raises PermissionRefused for a user without a role."""


class Sessions:
    """The sessions of a coordinator's browsers. Any number of threads.

    users: those of the provider, if there is one
    """

    def __init__(self, api_keys: ApiKeys, journal: Journal, clock: Clock, witness: Witness, users: Users | None = None) -> None:
        self._api_keys, self._journal, self._clock, self._witness = api_keys, journal, clock, witness
        self._users = users
        self._used: dict[str, float] = {}

    def begin(self, key: str, own: str) -> tuple[Caller, Begun]:
        """A session for who has a key. own: the address at which it is good. Raises IdentityRefused, Unreachable.

        Of the key the session's row has a seal alone, which nobody can check who has not the session's secret.
        """
        holder, until = self._api_keys.caller(key), self._api_keys.expires(key)
        secret, now = secrets.token_urlsafe(32), self._clock.now()
        hashed = hash_of(secret)
        session = UserSession(
            id=hashed[:16],
            token_hash=hashed,
            state_hash=hash_of(f"begun with a key {secret}"),
            issuer=OF_KEYS,
            subject=seal_of(hash_of(key), secret, own),
            name=holder.name,
            values=(),
            created=now,
            expires=now + KEY_SECONDS if until is None else min(until, now + KEY_SECONDS),
        )
        if not self._journal.begin_user_session(session):
            raise IdentityRefused("This sign-in was finished before", BEGIN)
        return self._api_keys.of_session(session.name, session.subject, secret, own), Begun(session, secret)

    def caller(self, secret: str, own: str) -> tuple[Caller, Begun]:
        """Whose session it is. own: as the call names us. Raises IdentityRefused, PermissionRefused, Unreachable."""
        self._witness.check()
        found, now = self._journal.user_session(hash_of(secret)), self._clock.now()
        known = {OF_KEYS} | ({self._users.issuer} if self._users is not None else set())
        if found is None or found.issuer not in known or not found.good(now):
            over = found is not None and found.ended is None and found.issuer in known
            raise IdentityRefused(f"The browser's session {'has expired' if over else 'is over, or unknown'}", self.begins_at)
        begun = Begun(found, secret)
        if begun.by_key:
            caller = self._api_keys.of_session(found.name, found.subject, secret, own)
        else:
            assert self._users is not None
            caller = self._users.of_session(found)
        self._note(found, now)
        return caller, begun

    @property
    def begins_at(self) -> str:
        """What who has no session is to do."""
        return BEGIN if self._users is None else f"{BEGIN} at /sign-in/start"

    def every(self) -> tuple[UserSession, ...]:
        return self._journal.user_sessions()

    def end(self, session_id: str, by: str) -> UserSession:
        """End a session; one that has ended stays as it is. Raises NotFound."""
        self._journal.end_user_session(session_id, self._clock.now(), by)
        found = next((each for each in self._journal.user_sessions() if each.id == session_id), None)
        if found is None:
            raise NotFound(f"There is no session {session_id!r}", "See `tideline sessions list`")
        return found

    def _note(self, session: UserSession, now: float) -> None:
        """Write that a session was used, once a minute. A store that cannot write does not end the call."""
        known = self._used.get(session.id, session.last_used)
        if known is None or not 0.0 <= now - known < USED_SECONDS:
            self._used[session.id] = now
            with suppress(FederationError):
                self._journal.used_user_session(session.id, now)
