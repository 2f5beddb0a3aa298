"""Takes up new certificates while the coordinator serves: checked whole, or not at all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import structlog

from tideline.core.errors import ConfigRefused
from tideline.engine.ports.clock import Clock
from tideline_server.tls.contexts import context_of
from tideline_server.tls.files import Tls, TlsFiles, check_new, not_after, read_tls

log = structlog.get_logger()
CHECK_SECONDS = 5.0  # between two readings of the files


class Certificate:
    """The certificate that is in use. `current` may be read by any thread; `reload` is for one.

    Whoever writes the files writes one after the other. So what is wrong is told when a second reading finds the same.
    """

    def __init__(self, files: TlsFiles, first: Tls, clock: Clock) -> None:
        self.current, self.trouble = first, ""
        self._files, self._clock, self._once = files, clock, ""
        self._lock = threading.Lock()

    @property
    def ends(self) -> float:
        """When it ends, in seconds since the epoch."""
        return not_after(self.current.chain)

    def reload(self) -> bool:
        """Whether another certificate is in use now."""
        with self._lock:
            try:
                found = read_tls(self._files)
                if found is None or found == self.current:
                    self._once = self.trouble = ""
                    return False
                check_new(found, self.current, self._clock.now())
                context_of(found)
            except ConfigRefused as error:
                self._report(str(error))
                return False
            self.current, self._once, self.trouble = found, "", ""
        until = datetime.fromtimestamp(self.ends, UTC)
        log.info("certificate_renewed", until=f"{until:%Y-%m-%d %H:%M} UTC")
        return True

    def warnings(self) -> tuple[str, ...]:
        """What everybody may know: not which files, and why, which the log has."""
        return ("a new certificate cannot be used, the old one stays; the coordinator's log says why",) if self.trouble else ()

    def _report(self, why: str) -> None:
        if why == self._once != self.trouble:
            self.trouble = why
            log.warning("certificate_not_renewed", reason=why)
        self._once = why


async def renewing(certificate: Certificate, renewed: Callable[[], Awaitable[None]], seconds: float = CHECK_SECONDS) -> None:
    """Read the files from time to time; `renewed` is called once there are others."""
    due = False  # what could not be done is tried again
    while True:
        await asyncio.sleep(seconds)
        try:
            due = await asyncio.to_thread(certificate.reload) or due
            if due:
                await renewed()
                due = False
        except Exception:  # a certificate that cannot be read is no reason to stop
            log.exception("certificate_reload_failed")
