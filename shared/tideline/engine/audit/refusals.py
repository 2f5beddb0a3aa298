"""Sign-ins that were refused, in the audit log: each once an hour, and so few that no stranger fills the disk with them."""

from __future__ import annotations

import math
import threading

from tideline.core.errors import ConfigRefused, FederationError
from tideline.engine.audit.entries import MOST_WORDS
from tideline.engine.audit.log import AuditEvent
from tideline.engine.coordinator.enrolment import check_client_name
from tideline.engine.ports.clock import Clock
from tideline.engine.ports.journal import Journal

HOUR = 3600.0
MOST = 60  # of one door within an hour; the rest is counted, and the number told with the next one that is written


class Refusals:
    """The refused sign-ins of one door. Any number of threads."""

    def __init__(self, journal: Journal, clock: Clock, door: str) -> None:
        self._journal, self._clock, self._door = journal, clock, door
        self._lock = threading.Lock()
        self._began, self._untold = -math.inf, 0
        self._told: set[tuple[str, str, str]] = set()

    def seen(self, who: str, address: str, why: str) -> AuditEvent | None:
        """What is to be written of a refusal, if anything is. Blocks on nothing. who: the name that was claimed, or nothing."""
        now, same = self._clock.now(), (who[:80], address, why)
        with self._lock:
            if not 0.0 <= now - self._began < HOUR:
                self._began, self._told = now, set()
            if same in self._told:
                return None
            if len(self._told) >= MOST:
                self._untold += 1
                return None
            self._told.add(same)
            untold, self._untold = self._untold, 0
        details = {"door": self._door, "claimed": who[:80], "address": address, "what": why[:MOST_WORDS], "untold": untold}
        return AuditEvent("sign_in_refused", now, client=who if nameable(who) else "", details=details)

    def write(self, event: AuditEvent) -> None:
        """Write it. Where the journal is away it is counted as untold: a refusal needs no journal."""
        try:
            self._journal.record([event])
        except FederationError:
            with self._lock:
                self._untold += 1 + int(event.details["untold"])


def nameable(name: str) -> bool:
    """Whether a client could have this name."""
    try:
        check_client_name(name, empty=False)
    except ConfigRefused:
        return False
    return True
