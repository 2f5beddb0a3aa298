"""When agents' certificates end, where they have some: as they showed them with their last calls."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping

from cryptography import x509

from tideline.engine.ports.clock import Clock

LIVING_SECONDS = 3600.0  # in which an agent that lives is heard of
MOST = 10_000  # agents that are remembered


class Certificates:
    """Any number of threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._shown: dict[str, tuple[float, float]] = {}  # of an agent: the end of its certificate, and when it was heard

    def saw(self, name: str, chain: bytes) -> None:
        """A certificate (PEM) that an agent of this name showed."""
        with self._lock:
            self._shown.pop(name, None)
            if len(self._shown) >= MOST:
                del self._shown[next(iter(self._shown))]
            self._shown[name] = (end_of(chain), self._clock.now())

    def ends(self) -> Mapping[str, float]:
        """When the certificates end of the agents that were heard lately, in seconds since the epoch, by their names."""
        now = self._clock.now()
        with self._lock:
            return {name: end for name, (end, heard) in self._shown.items() if now - heard <= LIVING_SECONDS}


@functools.lru_cache(4096)
def end_of(chain: bytes) -> float:
    """When a certificate (PEM) ends, in seconds since the epoch. Raises ValueError."""
    return x509.load_pem_x509_certificate(chain).not_valid_after_utc.timestamp()
