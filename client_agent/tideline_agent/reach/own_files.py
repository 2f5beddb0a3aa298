"""The files that an agent's owner gave for TLS, taken up anew when they change: checked whole, or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import structlog

from tideline.core.errors import ConfigRefused
from tideline_agent.discovery import pem
from tideline_agent.link import Endpoints, check_own, check_whole
from tideline_agent.settings import AgentSettings

log = structlog.get_logger()


class OwnFiles:
    """What --ca, --tls-cert and --tls-key hold. Of one thread.

    Whoever writes them writes one after the other: what is wrong is told when a second reading finds the same.
    """

    def __init__(self, settings: AgentSettings, now: Callable[[], float] = time.time) -> None:
        self._ca, self._cert, self._key, self._now = settings.ca, settings.tls_cert, settings.tls_key, now
        self._once = self._told = ""

    def read(self, endpoints: Endpoints) -> Endpoints | None:
        """The endpoints with what the files hold now; None where that is what they have, or cannot be used."""
        try:
            found = replace(endpoints, roots=self._roots(endpoints), own=self._own(endpoints))
        except ConfigRefused as error:
            why = str(error)
            if why == self._once != self._told:
                self._told = why
                log.warning("certificate_not_renewed", reason=why)
            self._once = why
            return None
        self._once = self._told = ""
        return None if found == endpoints else found

    def _roots(self, endpoints: Endpoints) -> bytes | None:
        if self._ca is None or (given := pem(self._ca, "--ca")) == endpoints.roots:
            return endpoints.roots
        check_whole(given, self._ca)
        return given

    def _own(self, endpoints: Endpoints) -> tuple[bytes, bytes] | None:
        if self._cert is None or self._key is None:
            return endpoints.own
        key, chain = pem(self._key, "--tls-key"), pem(self._cert, "--tls-cert")
        if (key, chain) != endpoints.own:
            check_own(chain, key, self._cert, self._now())
        return key, chain
