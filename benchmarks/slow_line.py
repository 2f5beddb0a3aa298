"""A line between agents and a coordinator that can be narrowed, delayed, opened and cut, and that counts what passes."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PIECE, SMALL_PIECE = 1 << 16, 1 << 12  # bytes passed on at once; narrow lines take small ones
BUFFER = 1 << 16  # of the kernel, where bytes wait that have not passed yet
LATE_SECONDS = 0.05  # that a timer of a busy machine may be late: what waits meanwhile passes at once then
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close without a farewell


class Pace:
    """One direction of the line: so many bytes a second, over all connections; None is as many as there are.

    delay: seconds that each byte is under way, however many are.
    """

    def __init__(self) -> None:
        self.rate: float | None = None
        self.delay = 0.0
        self.passed = 0
        self._free = 0.0

    async def take(self, nbytes: int) -> None:
        """Wait until so many bytes have passed."""
        if self.rate is not None:
            now = time.monotonic()
            self._free = max(self._free, now - LATE_SECONDS) + nbytes / self.rate
            await asyncio.sleep(self._free - now)
        self.passed += nbytes


class Line:
    """A TCP proxy on a thread of its own."""

    def __init__(self, host: str, port: int) -> None:
        self._there = (host, port)
        self.up, self.down = Pace(), Pace()
        self.port, self.connections = 0, 0
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    @property
    def address(self) -> str:
        """Where agents call."""
        return f"127.0.0.1:{self.port}"

    def narrow(self, rate: float) -> None:
        """So many bytes a second, each way."""
        self.up.rate = self.down.rate = rate

    def lengthen(self, seconds: float) -> None:
        """So long until a byte is there, and as long until it is answered."""
        self.up.delay = self.down.delay = seconds

    def widen(self) -> None:
        """As fast as the machine."""
        self.up.rate = self.down.rate = None

    def cut(self) -> None:
        """End every connection with a TCP reset, in the middle of whatever passes."""
        self._loop.call_soon_threadsafe(self._cut)

    def start(self) -> None:
        """Take connections from now on."""
        self._thread.start()
        self._ready.wait()

    def close(self) -> None:
        """Take no more, and end those that are there."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        door = socket.create_server(("127.0.0.1", 0))
        door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        self.port = door.getsockname()[1]
        server = self._loop.run_until_complete(asyncio.start_server(self._join, sock=door, limit=PIECE))
        self._ready.set()
        self._loop.run_forever()
        server.close()
        self._cut()
        while tasks := asyncio.all_tasks(self._loop):
            self._loop.run_until_complete(asyncio.wait(tasks))
        self._loop.close()

    def _cut(self) -> None:
        for writer in tuple(self._open):
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()

    async def _join(self, agent: asyncio.StreamReader, to_agent: asyncio.StreamWriter) -> None:
        """One connection, until either end hangs up."""
        self.connections += 1
        with suppress(OSError):
            coordinator, to_coordinator = await asyncio.open_connection(*self._there, limit=PIECE)
            self._open |= {to_agent, to_coordinator}
            try:
                await asyncio.gather(pass_on(agent, to_coordinator, self.up), pass_on(coordinator, to_agent, self.down))
            finally:
                self._open -= {to_agent, to_coordinator}
                to_coordinator.close()
        to_agent.close()


async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter, pace: Pace) -> None:
    """One direction of a connection. Raises OSError where it is cut."""
    loop = asyncio.get_running_loop()
    while piece := await source.read(PIECE if pace.rate is None else SMALL_PIECE):
        await pace.take(len(piece))
        if pace.delay:
            loop.call_later(pace.delay, sink.write, piece)
        else:
            sink.write(piece)
        await sink.drain()
    loop.call_later(pace.delay, sink.close)


@contextmanager
def line_to(address: str) -> Iterator[Line]:
    """A line to a coordinator."""
    host, _, port = address.rpartition(":")
    line = Line(host.strip("[]"), int(port))
    line.start()
    try:
        yield line
    finally:
        line.close()
