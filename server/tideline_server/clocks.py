"""How far the agents' clocks are from this coordinator's, as their signs of life show it."""

from __future__ import annotations

import threading

import structlog

from tideline.core.run import ClientId
from tideline.engine.model.validity import off
from tideline.engine.ports.clock import Clock

log = structlog.get_logger()
LIVING_SECONDS = 90.0  # in which an agent that lives is heard of
MOST = 100_000  # agents that are remembered


class Clocks:
    """Any number of threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._ahead: dict[ClientId, tuple[float, float]] = {}  # of a client: its seconds ahead of us, and when it was heard

    def heard(self, client: ClientId, clock_ms: int) -> None:
        """A sign of life with the agent's own time; 0 where it tells none. A clock that is off is logged once."""
        if not clock_ms:
            return
        now = self._clock.now()
        ahead = clock_ms / 1000 - now
        with self._lock:
            before = self._ahead.pop(client, (0.0, 0.0))[0]
            self._ahead[client] = (ahead, now)
            if len(self._ahead) > MOST:
                del self._ahead[next(iter(self._ahead))]
        if bool(off(before)) != bool(off(ahead)):
            log.warning("client_clock", client=client, seconds_ahead=round(ahead, 1), agrees=not off(ahead))

    def warnings(self) -> tuple[str, ...]:
        """What is wrong, for everybody: so without names."""
        since = self._clock.now() - LIVING_SECONDS
        with self._lock:
            living = [ahead for ahead, at in self._ahead.values() if at >= since]
        wrong = sum(bool(off(ahead)) for ahead in living)
        if not wrong:
            return ()
        whose = "; so its own may be wrong" if wrong == len(living) > 1 else ""
        return (f"the clocks of {wrong} of {len(living)} agents differ from the coordinator's by more than a minute{whose}",)
