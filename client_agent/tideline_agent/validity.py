"""What an agent looks after besides its work: this machine's clock, and certificates that will end."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import structlog

from tideline.core.errors import Unreachable
from tideline.core.notes import Note
from tideline.engine.model.validity import RENEW_SECONDS, ending, off
from tideline_agent.link import Endpoints, end_at, end_of

log = structlog.get_logger()
CHECK_SECONDS = 6 * 3600.0  # between two checks of certificates


@dataclass(frozen=True)
class Validity:
    """Looks at certificates now and then, and says in the log which end; makes notes of what matters to runs.

    ahead: seconds of this machine's clock before the coordinator's, as last measured.
    """

    endpoints: Callable[[], Endpoints]
    stop: threading.Event
    ahead: Callable[[], float]
    now: Callable[[], float] = time.time

    def start(self) -> None:
        """Look from here on, until `stop`."""
        threading.Thread(target=self.run, name="certificates", daemon=True).start()

    def run(self) -> None:
        while not self.stop.is_set():
            self.check()
            self.stop.wait(CHECK_SECONDS)

    def check(self) -> None:
        """Say how far the clock is off, and of each certificate that ends soon, or has ended, whose it is and how it ends."""
        if how := off(self.ahead()):
            log.warning("clock_off", clock=f"{how} the coordinator's")
        for whose, until in self.ends():
            if how := ending(until, self.now()):
                log.warning("certificate_ends", certificate=whose, how=how)

    def ends(self) -> Iterator[tuple[str, float]]:
        """Whose certificates end when, in seconds since the epoch. A coordinator that does not answer shows none."""
        endpoints = self.endpoints()
        if self.own is not None:
            yield "this agent's own", self.own
        if endpoints.roots is not None or endpoints.system:
            for address in endpoints.addresses:
                with contextlib.suppress(Unreachable):
                    if (end := end_at(address, endpoints)) is not None:
                        yield f"the coordinator's at {address}", end

    @property
    def own(self) -> float | None:
        """When the agent's own certificate ends."""
        own = self.endpoints().own
        return None if own is None else end_of(own[1])

    def notes(self) -> Iterator[Note]:
        """What is to be told with a step that begins."""
        ahead = self.ahead()
        if off(ahead):
            yield Note("clock_off", {"seconds": abs(ahead)}, {"way": "ahead of" if ahead > 0 else "behind"})
        left = RENEW_SECONDS + 1 if self.own is None else self.own - self.now()
        if left <= RENEW_SECONDS:
            yield Note("certificate_ends", {"hours": max(left, 0.0) / 3600})
