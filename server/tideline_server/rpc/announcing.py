"""What agents hear of where coordinators are and of who vouches for them, and which of them have taken it up."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass

from tideline.core.run import ClientId
from tideline.engine.ports.clock import Clock
from tideline_protos.v1 import federation_pb2 as pb

LIVING_SECONDS = 90.0  # in which an agent that lives is heard of
MOST = 100_000  # agents that are remembered


@dataclass(frozen=True)
class Announcement:
    """Addresses, and certificates of authorities (PEM). Where both are nothing, nothing is announced."""

    addresses: tuple[str, ...] = ()
    authorities: str = ""

    @property
    def id(self) -> str:
        """Another one for other addresses, in another order, or other authorities."""
        text = "\n".join((*self.addresses, self.authorities))
        return hashlib.sha256(text.encode()).hexdigest()[:16] if text else ""

    @property
    def message(self) -> pb.Announcement:
        return pb.Announcement(id=self.id, addresses=self.addresses, authorities=self.authorities)


class Announcing:
    """Any number of threads. current: what is announced now."""

    def __init__(self, clock: Clock, current: Callable[[], Announcement] = Announcement) -> None:
        self.current = current
        self._clock, self._lock = clock, threading.Lock()
        self._known: dict[ClientId, tuple[str, float]] = {}  # of a client: what it has taken up, and when it was heard

    def due(self, client: ClientId, heard: str, declined: bool) -> pb.Announcement | None:
        """What an agent is to be told that has heard this one last; None where it has heard the current one."""
        now = self.current()
        with self._lock:
            self._known.pop(client, None)
            self._known[client] = ("" if declined else heard, self._clock.now())
            if len(self._known) > MOST:
                del self._known[next(iter(self._known))]
        return now.message if now.id and heard != now.id else None

    def follows(self, client: ClientId) -> bool | None:
        """Whether an agent has told, lately and here, that it has taken up what is announced; None where nothing is.

        One that has not calls another coordinator, is away, too old, or its owner forbids it.
        """
        wanted, since = self.current().id, self._clock.now() - LIVING_SECONDS
        with self._lock:
            has, at = self._known.get(client, ("", float("-inf")))
        return (has == wanted and at >= since) if wanted else None
