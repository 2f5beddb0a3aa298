"""Who may see the owner's page: whoever had the one-time link, from a page of ours, as long as the agent runs."""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tideline.core.errors import FederationError, IdentityRefused, TooMany
from tideline_agent.page.link import hash_of, spend

SESSION_SECONDS = 8 * 3600.0
MOST_SESSIONS = 16
TRIES, TRIES_SECONDS = 20, 60.0  # wrong links, in so many seconds
AGAIN = "Ask for a new link on the agent's machine: tideline site page --home DIR"


@dataclass(frozen=True)
class Session:
    """secret: the hash of a cookie. csrf: what changes have to bring."""

    secret: str
    csrf: str
    until: float


@dataclass
class Access:
    """Sessions are in memory alone: a cookie is worth nothing once the agent has ended.

    hosts: what `Host` may be; any other is a name that somebody has pointed at this machine.
    """

    home: Path
    hosts: frozenset[str]
    now: Callable[[], float] = time.time
    _sessions: tuple[Session, ...] = ()
    _failed: list[float] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def enter(self, link: str) -> tuple[str, Session]:
        """A cookie's secret for a link's. Raises IdentityRefused, TooMany."""
        now = self.now()
        with self._lock:
            self._failed = [each for each in self._failed if each > now - TRIES_SECONDS]
            if len(self._failed) >= TRIES:
                raise TooMany("Too many wrong links were tried", "Wait a minute")
            if not spend(self.home, link, now):
                self._failed.append(now)
                raise IdentityRefused("This link was used already, or is too old", AGAIN)
            secret = secrets.token_urlsafe(32)
            made = Session(hash_of(secret), secrets.token_urlsafe(32), now + SESSION_SECONDS)
            self._sessions = (*self._sessions, made)[-MOST_SESSIONS:]
        return secret, made

    def leave(self, cookie: str) -> None:
        with self._lock:
            self._sessions = tuple(each for each in self._sessions if not hmac.compare_digest(each.secret, hash_of(cookie)))

    def session(self, cookie: str) -> Session:
        """The session of a cookie. Raises IdentityRefused."""
        shown, now = hash_of(cookie), self.now()
        found = [each for each in self._sessions if hmac.compare_digest(each.secret, shown)]
        if not found or now >= found[0].until:
            raise IdentityRefused("You are not signed in at this page", AGAIN)
        return found[0]

    def check_place(self, headers: Mapping[str, str]) -> None:
        """Raises Foreign for a request by another name than ours, or one that a page from elsewhere makes."""
        host = headers.get("host", "").lower()
        if host not in self.hosts:
            raise Foreign("This page is not served under that name", "Open the link as it was printed")
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
            raise Foreign("A page from elsewhere asked", "Open the link as it was printed")
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            raise Foreign("A page from elsewhere asked", "Open the link as it was printed")

    def check_change(self, headers: Mapping[str, str], cookie: str) -> None:
        """Raises Foreign for a change that no page of ours made, and IdentityRefused."""
        session = self.session(cookie)
        self.check_ours(headers)
        if not hmac.compare_digest(hash_of(headers.get("tideline-csrf", "")), hash_of(session.csrf)):
            raise Foreign("The change does not come from this page", "Load the page again")

    def check_ours(self, headers: Mapping[str, str]) -> None:
        """Raises Foreign for a change without an origin, or not in JSON, as a form of another page would send."""
        if headers.get("origin") is None or headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise Foreign("The change does not come from this page", "Load the page again")


class Foreign(FederationError):
    """A request that is not of a page of ours."""
