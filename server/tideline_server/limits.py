"""Limits on calls, so that a mistaken script or a guesser delays no one else, and the record of refused sign-ins."""

from __future__ import annotations

import asyncio
import ipaddress
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import unquote

import structlog

from tideline.core.errors import TooMany
from tideline.engine.audit.entries import Refusals
from tideline.engine.ports.clock import Clock
from tideline_server.bell import LocalCounts

log = structlog.get_logger()


class Counts(Protocol):
    """Counts of calls, in this process or of all replicas."""

    async def take(self, who: str, limit: int, now: float) -> float: ...


class Stopped:
    """A clock for limits that are switched off."""

    def now(self) -> float:
        return 0.0


@dataclass(frozen=True)
class Limits:
    """Calls a minute from one address; 0: any number. What is refused is not counted, so it ends when the minute does."""

    counts: Counts
    clock: Clock
    calls: int = 0
    wrong_keys: int = 0
    enrolments: int = 0
    probes: int = 0
    logged: LocalCounts = field(default_factory=LocalCounts)  # the log tells of each caller once a minute

    async def call(self, address: str) -> None:
        """Somebody with the key. Raises TooMany."""
        await self.take("requests", "--rate", address, self.calls)

    async def wrong_key(self, address: str) -> None:
        """Somebody without it. Who has the key is never refused for those who have not. Raises TooMany."""
        await self.take("requests without the right key", "--rate-wrong-keys", address, self.wrong_keys)

    async def sign_in(self, name: str) -> None:
        """A browser's sign-in with a key: each is written, and there need not be many. Raises TooMany."""
        limit = self.wrong_keys
        seconds = math.ceil(await self.counts.take(f"sign-in {name}", limit, self.clock.now())) if limit else 0
        if seconds:
            what = f"The key {name!r} has begun {limit} sessions within a minute"
            raise TooMany(what, f"Try again in {seconds} s", retry_after=seconds)

    async def enrolment(self, address: str) -> None:
        """An agent that enrols or comes back. Raises TooMany."""
        await self.take("enrolments", "--rate-enrol", address, self.enrolments)

    async def greeting(self, address: str) -> None:
        """An agent that asks who is there, as it does before it enrols: counted for itself. Raises TooMany."""
        await self.take("greetings", "--rate-enrol", address, self.enrolments)

    async def probe(self, client: str) -> None:
        """A client that tries the store of parts. Raises TooMany."""
        seconds = math.ceil(await self.counts.take(f"probe {client}", self.probes, self.clock.now())) if self.probes else 0
        if seconds:
            what = f"{client} has tried the store of parts {self.probes} times within a minute"
            raise TooMany(what, f"Try again in {seconds} s", retry_after=seconds)

    async def take(self, what: str, option: str, address: str, limit: int) -> None:
        if not limit:
            return
        origin, now = network_of(address), self.clock.now()
        apart = "" if what != "greetings" else "greetings "
        seconds = math.ceil(await self.counts.take(f"{apart}{option} {origin}", limit, now))
        if seconds:
            if await self.logged.take(f"{option} {origin}", 1, now) == 0:
                log.warning("limit_reached", option=option, limit=limit, address=origin)
            excess = f"More than {limit} {what} a minute come from {origin or 'one place'}"
            todo = f"Ask again in {seconds} s; the coordinator's {option} sets the limit"
            raise TooMany(excess, todo, retry_after=seconds)


UNLIMITED = Limits(LocalCounts(), Stopped())


def network_of(address: str) -> str:
    """Who calls from an address: of IPv6 the first half, as the other half is the caller's to choose."""
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(known, ipaddress.IPv4Address) or known.is_loopback:
        return str(known)
    return str(known.ipv4_mapped or ipaddress.ip_network((known, 64), strict=False))


def address_of(peer: str) -> str:
    """The address of a gRPC peer, such as `ipv4:10.0.0.7:41234` or `ipv6:[::1]:41234`."""
    kind, _, rest = unquote(peer).partition(":")
    return rest.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else peer


GRPC, HTTPS = "grpc", "https"  # by which agents call, as the audit log names them
OVER_HTTP = ";http"  # at the end of a peer that called over HTTP


def link_of(peer: str) -> str:
    """What an agent called by: the gRPC port, or HTTP."""
    return HTTPS if peer.endswith(OVER_HTTP) else GRPC


class Refusing:
    """The refused sign-ins of one port. `run` does on a thread what asks the journal."""

    def __init__(self, refusals: Refusals, run: Callable[..., Awaitable[Any]]) -> None:
        self._refusals, self._run = refusals, run
        self._writing: set[asyncio.Task[None]] = set()  # the loop itself keeps no task

    async def note(self, who: str, address: str, why: str) -> None:
        """Have a refusal written, if it is to be. What was counted as told is told, whatever becomes of the call."""
        event = self._refusals.seen(who, network_of(address), why)
        if event is None:
            return

        async def write() -> None:
            await self._run(self._refusals.write, event)

        task = asyncio.ensure_future(write())
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        await asyncio.shield(task)
