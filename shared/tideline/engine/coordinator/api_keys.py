"""Who calls the HTTP API: admin keys of this coordinator, and keys in the journal, which all replicas share."""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tideline.core.errors import ConfigRefused, FederationError, IdentityRefused, NotFound, Refused, Unreachable
from tideline.core.settings import nearest
from tideline.engine.coordinator.idempotency import Identity
from tideline.engine.coordinator.witness import Witness
from tideline.engine.model.access.grants import Grant
from tideline.engine.model.access.projects import DEFAULT, EVERY
from tideline.engine.model.accounts import NAME, ApiKey, KeyRole
from tideline.engine.ports.clock import Clock
from tideline.engine.ports.journal import Journal

KNOWN_SECONDS = 5.0  # for so long a valid key is valid without reading the journal
LATELY_SECONDS = 3600.0  # for so long it is where that is asked for, while the journal is away
MISSED_SECONDS = 60.0  # and for so long after it did not answer it is not asked for such a key
UNKNOWN_SECONDS = 1.0  # for so long a key that nobody knew is unknown: guessers cost a read a second, however many they are
USED_SECONDS = 60.0  # when a key was last used is written to the minute
LONGEST_SECONDS = 10 * 366 * 86400.0
ADMIN = "admin"  # the name of the keys in files; no key in the journal has this name
PREFIX = "tidekey_"


@dataclass(frozen=True)
class Caller:
    """Who made a request. `secret` is one of the key, which no store has (see records); an empty name is anybody.

    scope   the project that the caller sees, or asks about just now; empty: every one
    whole   whether the coordinator as a whole may be seen: by who sees every project, and where there is only one
    grants  of a user who signed in: the roles in projects, of which a call takes one; of a key: nothing
    """

    name: str = ""
    role: KeyRole = KeyRole.ADMIN
    secret: str = field(default="", repr=False)
    scope: str = EVERY
    whole: bool = True
    grants: tuple[Grant, ...] = ()


ANYBODY = Caller()


class ApiKeys:
    """The keys of a coordinator. Any number of threads.

    admins   hashes of the keys in files; None: no key is needed
    """

    def __init__(self, journal: Journal, clock: Clock, admins: Collection[str] | None, witness: Witness | None = None) -> None:
        self._journal, self._clock, self._admins = journal, clock, admins
        self._witness = witness or Witness(journal, clock)
        self._lock = threading.Lock()
        self._known: dict[str, ApiKey] = {}
        self._read_at: float | None = None
        self._missed_at: float | None = None
        self._used: dict[str, float] = {}

    def at_once(self, key: str) -> Caller | None:
        """The caller, where that is known without reading the journal. Never blocks. Raises as `caller` does."""
        if self._admins is None:
            return ANYBODY
        hashed, now = hash_of(key), self._clock.now()
        if any(hmac.compare_digest(hashed, admin) for admin in self._admins):
            return Caller(ADMIN, KeyRole.ADMIN, hashed)
        self._witness.check()
        found = self._known.get(hashed)
        if not key.startswith(PREFIX) or (found is None and self._fresh(now, UNKNOWN_SECONDS)):
            raise unknown()
        if found is None or not self._fresh(now, KNOWN_SECONDS) or self._unnoted(found, now):
            return None
        return caller_of(found, key, now)

    def caller(self, key: str, lately: bool = False) -> Caller:
        """The caller. Raises IdentityRefused for a key that is unknown, revoked or expired, and Unreachable.

        lately: while the journal is away, a key is valid that was so within the hour.
        """
        if (caller := self.at_once(key)) is not None:
            return caller
        before = self._valid_lately(key) if lately else None
        if before is not None and self._missed_at is not None and 0.0 <= self._clock.now() - self._missed_at < MISSED_SECONDS:
            return before  # to ask a journal that was away a moment ago may take as long as a scrape may
        try:
            row, now = self._read(key), self._clock.now()
        except Unreachable:
            self._missed_at = self._clock.now()
            if before is None:
                raise
            return before
        if row is None:
            raise unknown()
        caller = caller_of(row, key, now)
        self._note(row, now)
        return caller

    @property
    def open(self) -> bool:
        """Whether no key is needed."""
        return self._admins is None

    def expires(self, key: str) -> float | None:
        """Until when a key is good that was good just now. None: it has no end, or is one of a file."""
        found = self._known.get(hash_of(key))
        return None if found is None else found.expires

    def of_session(self, name: str, seal: str, secret: str, own: str) -> Caller:
        """The holder of the key that a session began with, as long as that key is good. Raises IdentityRefused, Unreachable.

        name: the key's; seal: what the session has of it (`seal_of`).
        """
        if name == ADMIN:
            if any(hmac.compare_digest(seal, seal_of(admin, secret, own)) for admin in self._admins or ()):
                return Caller(ADMIN, KeyRole.ADMIN, used_in(secret))
            raise no_session()
        self._witness.check()
        now = self._clock.now()
        row = self._sealed(name, seal, secret, own) if self._fresh(now, KNOWN_SECONDS) else None
        if row is None:
            self._read("")
            row = self._sealed(name, seal, secret, own)
        if row is None:
            raise no_session()
        caller = caller_of(row, secret, now)
        self._note(row, now)
        return caller

    def _sealed(self, name: str, seal: str, secret: str, own: str) -> ApiKey | None:
        """The key of this name that a session's seal is of, as far as the last reading tells."""
        named = [each for each in self._known.values() if each.name == name]
        return next((each for each in named if hmac.compare_digest(seal, seal_of(each.key_hash, secret, own))), None)

    def _valid_lately(self, key: str) -> Caller | None:
        """The caller, as far as the last reading tells, if that is not long ago. Raises IdentityRefused."""
        found, now = self._known.get(hash_of(key)), self._clock.now()
        return None if found is None or not self._fresh(now, LATELY_SECONDS) else caller_of(found, key, now)

    def _read(self, key: str) -> ApiKey | None:
        with self._lock:
            now = self._clock.now()
            if not self._fresh(now, UNKNOWN_SECONDS):
                self._known = {each.key_hash: each for each in self._journal.api_keys()}
                self._read_at = now
            return self._known.get(hash_of(key))

    def add(
        self, name: str, role: KeyRole, ttl: float | None, by: str, identity: Identity | None = None, project: str = DEFAULT
    ) -> tuple[str, ApiKey]:
        """A new key, shown once and kept hashed. project: as a key has it.

        Raises ConfigRefused; Refused where the name is taken.
        """
        check_key_name(name)
        if ttl is not None and not 0 < ttl <= LONGEST_SECONDS:
            what = f"A lifetime of {ttl:g} s is out of range"
            raise ConfigRefused(what, "Give between a second and ten years", path="ttl_seconds")
        key, now = PREFIX + (identity or Identity()).api_key, self._clock.now()
        made = ApiKey(
            id=hash_of(key)[:16],
            name=name,
            key_hash=hash_of(key),
            role=role,
            created=now,
            created_by=by,
            expires=None if ttl is None else now + ttl,
            project=EVERY if role is KeyRole.ADMIN else project,
        )
        if self._journal.add_key(made):
            self.forget()
            return key, made
        again = next((each for each in self._journal.api_keys() if each.key_hash == made.key_hash), None)
        if again is None:  # else an earlier try of the same call made it
            raise Refused(f"There is a key named {name!r} already", "Choose another name, or revoke that key first")
        return key, again

    def every(self) -> tuple[ApiKey, ...]:
        return self._journal.api_keys()

    def revoke(self, name: str, by: str = "") -> ApiKey:
        """End a key; one that is revoked already stays as it is. Raises NotFound."""
        if name == ADMIN:
            what = "The admin key is a file and cannot be revoked here"
            raise Refused(what, "Delete HOME/admin.key and start the coordinator again: it makes a new one")
        self._journal.revoke_key(name, self._clock.now(), by)
        self.forget()
        self._witness.seal()
        known = self._journal.api_keys()
        found = [each for each in known if each.name == name]
        if not found:
            raise NotFound(f"There is no key {name!r}", f"See `tideline keys list`{nearest(name, [k.name for k in known])}")
        return max(found, key=lambda each: each.revoked or 0.0)

    def forget(self) -> None:
        with self._lock:
            self._read_at, self._known = None, {}

    def _fresh(self, now: float, seconds: float) -> bool:
        read_at = self._read_at
        return read_at is not None and 0.0 <= now - read_at < seconds

    def _unnoted(self, key: ApiKey, now: float) -> bool:
        known = [at for at in (self._used.get(key.id), key.last_used) if at is not None]
        return not known or not 0.0 <= now - max(known) < USED_SECONDS

    def _note(self, key: ApiKey, now: float) -> None:
        """Write that a key was used, once a minute. That is a courtesy: a store that is away does not end the call."""
        if self._unnoted(key, now):
            self._used[key.id] = now
            with suppress(FederationError):
                self._journal.used_key(key.id, now)


def caller_of(key: ApiKey, secret: str, now: float) -> Caller:
    """The holder of a valid key. Raises IdentityRefused."""
    if key.revoked is not None:
        raise IdentityRefused(f"The API key {key.name!r} was revoked on {day(key.revoked)}", "Ask an admin for a new one")
    if key.expires is not None and key.expires <= now:
        raise IdentityRefused(f"The API key {key.name!r} expired on {day(key.expires)}", "Ask an admin for a new one")
    return Caller(key.name, key.role, used_in(secret), key.project, whole=key.project == EVERY)


def used_in(secret: str) -> str:
    """By what the calls of a key's or a session's holder are known again: not the secret itself."""
    return hash_of(f"idempotency of {secret}")


def seal_of(key_hash: str, secret: str, own: str) -> str:
    """What a session has of the key that it began with at an address: only with its secret it shows which key that is."""
    return hmac.digest(secret.encode(), f"session of {key_hash}\nat {own}".encode(), "sha256").hex()


def unknown() -> IdentityRefused:
    return IdentityRefused("The API key is missing or wrong", "Send the header Authorization: Bearer KEY")


def no_session() -> IdentityRefused:
    what = "The browser's session began with a key that is not known here, or at another address"
    return IdentityRefused(what, "Sign in again")


def hash_of(key: str) -> str:
    """Keys are random and long, so one SHA-256 is enough."""
    return hashlib.sha256(key.encode()).hexdigest()


def day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def check_key_name(name: str) -> None:
    """Names are 1 to 64 letters, digits, dots, dashes and underscores. Raises ConfigRefused."""
    if name == ADMIN or not NAME.fullmatch(name):
        why = "is the name of the coordinator's own key" if name == ADMIN else "cannot name a key"
        raise ConfigRefused(f"{name[:80]!r} {why}", "Use up to 64 letters, digits, dots, dashes, underscores", path="name")
