"""The connections of this process, by address: gRPC does not say who connects, so the descriptors themselves are looked at.

Whoever has more of them than may be loses some: first those over which nobody has proven who calls. So does who proves nothing
for long. A connection is shut, not closed: whose descriptor it is reads its end, and closes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import resource
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import structlog

from tideline.engine.process.resources import give_back
from tideline_server.limits import network_of

log = structlog.get_logger()
DESCRIPTORS = Path("/dev/fd")
CHECK_SECONDS, EVERY_SECONDS = 0.5, 5.0  # between two counts of the descriptors, and at the most between two looks at all of them
MORE = 32  # descriptors since the last look, which call for another
PROOF_SECONDS = 30.0  # that a connection may prove nothing
UNPROVEN = 1024  # connections to one port that prove nothing
SPARE = 128  # descriptors for files, the database, the worker and others
Peer = tuple[str, int]  # an address and a port


def descriptors() -> int:
    """How many this process may have."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


@dataclass(frozen=True)
class Share:
    """How many connections a port may have: of one address (0: any number), and in all. proxies: addresses of any number."""

    from_one: int
    in_all: int
    proxies: frozenset[str] = frozenset()


def share_of(from_one: int, part: float, most: int, proxies: frozenset[str] = frozenset()) -> Share:
    """A port's part of the descriptors of this process, and no more than its memory bears."""
    return Share(from_one, min(max(int((descriptors() - SPARE) * part), 16), most), proxies)


@dataclass
class Seen:
    """A connection: its other end, since when it is known, and its descriptor when it was looked at."""

    peer: Peer
    since: float
    descriptor: int = -1


@dataclass
class Port:
    """A port and its connections. proven: those over which somebody has proven who he is."""

    number: int
    share: Share
    proven: set[Peer] = field(default_factory=set)
    seen: dict[Peer, Seen] = field(default_factory=dict)

    def excess(self, now: float) -> Iterator[Seen]:
        """The connections that are too many or prove nothing, the oldest unproven ones first."""
        ordered = sorted(self.seen.values(), key=lambda each: (each.peer in self.proven, each.since))
        count, total = Counter(network_of(each.peer[0]) for each in ordered), len(ordered)
        strangers = total - len(self.proven)
        for each in ordered:
            origin, most = network_of(each.peer[0]), self.share.from_one
            stranger = each.peer not in self.proven
            late = stranger and (strangers > UNPROVEN or now - each.since > PROOF_SECONDS)
            crowd = most and count[origin] > most and origin not in self.share.proxies
            if late or crowd or total > self.share.in_all:
                count[origin], total, strangers = count[origin] - 1, total - 1, strangers - stranger
                yield each


class Warden:
    """Looks after the connections of some ports, on the loop's threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.ports: dict[int, Port] = {}
        self._clock = clock
        self._cut: set[Peer] = set()
        self._looked, self._descriptors = float("-inf"), 0
        self.cuts = 0

    def watch(self, number: int, share: Share) -> None:
        """Look after a port too."""
        self.ports[number] = Port(number, share)

    def proven(self, number: int, peer: Peer | None) -> None:
        """Somebody who may come in uses this connection."""
        if peer is not None and number in self.ports:
            self.ports[number].proven.add(peer)

    def cut(self, peer: Peer | None) -> None:
        """Have a connection ended, at the next look."""
        if peer is not None:
            self._cut.add(peer)

    async def run(self) -> None:
        """Look again and again, until it is cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if self.due():
                await asyncio.to_thread(self.check)

    def due(self) -> bool:
        """Whether there is something to look for."""
        more = count_of(DESCRIPTORS.iterdir()) - self._descriptors
        return bool(self._cut) or more >= MORE or self._clock() >= self._looked + EVERY_SECONDS

    def check(self) -> None:
        """Look at all connections, and shut those that are too many."""
        now, (cut, self._cut) = self._clock(), (self._cut, set())
        known = {port.number: frozenset(port.proven) for port in self.ports.values()}  # later ones may not be found
        found = list(connected(set(self.ports)))
        for port in self.ports.values():
            here = {peer: descriptor for number, peer, descriptor in found if number == port.number}
            port.seen = {peer: Seen(peer, port.seen[peer].since if peer in port.seen else now, fd) for peer, fd in here.items()}
            port.proven -= known[port.number] - port.seen.keys()
            asked = [port.seen[peer] for peer in cut & port.seen.keys()]
            shut = {each.peer: each for each in (*port.excess(now), *asked)}
            for each in shut.values():
                self.cuts += shut_down(each.descriptor, port.number, each.peer)
            if shut:
                log.warning("connections_cut", port=port.number, count=len(shut), addresses=most_of(shut))
        before, self._descriptors, self._looked = self._descriptors, count_of(DESCRIPTORS.iterdir()), now
        if before - self._descriptors >= MORE:  # a crowd has gone
            give_back()


def count_of(each: Iterable[object]) -> int:
    return sum(1 for _ in each)


def most_of(peers: dict[Peer, Seen]) -> list[str]:
    """The addresses from which most of them come."""
    return [origin for origin, _ in Counter(network_of(address) for address, _ in peers).most_common(3)]


def connected(ports: set[int]) -> Iterator[tuple[int, Peer, int]]:
    """The connections of some ports: the port, the other end and the descriptor."""
    for descriptor in (int(each.name) for each in DESCRIPTORS.iterdir()):
        with contextlib.suppress(OSError, ValueError), opened(descriptor) as line:
            if (number := line.getsockname()[1]) in ports:
                yield number, peer_of(*line.getpeername()[:2]), descriptor


@contextlib.contextmanager
def opened(descriptor: int) -> Iterator[socket.socket]:
    """A descriptor as the socket that it stands for now. Raises OSError for what is no TCP connection.

    It is neither copied nor closed here: to close any descriptor of a file ends all locks that this process has on that file, and
    the database's are such.
    """
    line = socket.socket(fileno=descriptor)
    try:
        if line.family not in (socket.AF_INET, socket.AF_INET6) or line.type is not socket.SOCK_STREAM:
            raise OSError("no connection")
        yield line
    finally:
        line.detach()


def shut_down(descriptor: int, number: int, peer: Peer) -> bool:
    """End a connection, if that is what the descriptor still stands for."""
    with contextlib.suppress(OSError), opened(descriptor) as line:
        if line.getsockname()[1] == number and peer_of(*line.getpeername()[:2]) == peer:
            line.shutdown(socket.SHUT_RDWR)
            return True
    return False


def peer_of(address: str, port: int) -> Peer:
    """The other end of a connection, an IPv4 address always as such."""
    known = ipaddress.ip_address(address.partition("%")[0])
    return str(getattr(known, "ipv4_mapped", None) or known), port


def peer_in(text: str) -> Peer | None:
    """The other end, as gRPC tells it: `ipv4:10.0.0.7:41234`, `ipv6:[::1]:41234`."""
    kind, _, rest = unquote(text).partition(":")
    address, _, port = rest.rpartition(":")
    with contextlib.suppress(ValueError):
        return peer_of(address.strip("[]"), int(port)) if kind in ("ipv4", "ipv6") else None
    return None
