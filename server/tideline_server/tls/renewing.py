"""Takes up new certificates while the coordinator serves: checked whole, or not at all."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime

import structlog

from tideline.core.errors import ConfigRefused
from tideline.engine.ports.clock import Clock
from tideline_server.tls.contexts import context_of
from tideline_server.tls.files import Tls, TlsFiles, authority_of, check_new, known_by, not_after, read_tls

log = structlog.get_logger()
CHECK_SECONDS = 5.0  # between two readings of the files
ANNOUNCED_SECONDS = 30.0  # agents give signs of life, and hear of authorities, every 15 s


class Certificate:
    """The certificate that is in use. `current` may be read by any thread; `reload` is for one.

    Whoever writes the files writes one after the other. So what is wrong is told when a second reading finds the same. A
    certificate of another authority is shown once agents have been told of that for a while; until then only the authorities
    are taken up.
    """

    def __init__(self, files: TlsFiles, first: Tls, clock: Clock) -> None:
        self.current, self.trouble = first, ""
        self._files, self._clock, self._once = files, clock, ""
        self._announced = dict.fromkeys(known_by(first), float("-inf"))  # since when agents are told of an authority
        self._lock = threading.Lock()

    @property
    def ends(self) -> float:
        """When it ends, in seconds since the epoch."""
        return not_after(self.current.chain)

    def reload(self) -> bool:
        """Whether something else is in use now."""
        with self._lock:
            try:
                return self._reload()
            except ConfigRefused as error:
                self._report(str(error))
                return False

    def _reload(self) -> bool:
        """Raises ConfigRefused for files that cannot be used, or not yet."""
        now, before = self._clock.now(), self.current
        found = read_tls(self._files)
        if found is None or found == before:
            self._once = self.trouble = ""
            return False
        check_new(found, before, now)
        context_of(found, ssl.CERT_NONE if found.clients is None else ssl.CERT_REQUIRED)
        known = known_by(found)
        if not found.authorities or now - self._announced.get(authority_of(found.chain), now) >= ANNOUNCED_SECONDS:
            self._use(found, now)
            self._once = self.trouble = ""
            until = datetime.fromtimestamp(self.ends, UTC)
            log.info("certificate_renewed", until=f"{until:%Y-%m-%d %H:%M} UTC")
            return True
        if authority_of(before.chain) not in known:
            todo = "Name the old authority beside the new one in --tls-ca, until agents have been told of the new one"
            raise ConfigRefused("The new certificate is of an authority that agents do not know", todo)
        announced = replace(found, key=before.key, chain=before.chain)
        changed = announced != before
        self._use(announced, now)
        if not changed:
            what = "The new certificate is of an authority that agents are only being told of"
            raise ConfigRefused(what, f"Nothing: it is shown once they were told for {ANNOUNCED_SECONDS:g} s")
        log.info("authorities_announced", certificates=len(known))
        return True

    def _use(self, tls: Tls, now: float) -> None:
        self.current = tls
        self._announced = {each: self._announced.get(each, now) for each in known_by(tls)}

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
