"""The coordinator's composition root: builds everything, opens both doors, and closes them again."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import signal
import socket
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import structlog
import uvicorn

from tideline import __version__
from tideline.core.errors import ConfigRefused, Refused
from tideline.engine.conductor import Conductor
from tideline.engine.desk import Desk
from tideline.engine.leases import Leases
from tideline.engine.office import Office
from tideline.engine.rows import Lease
from tideline.engine.storeroom import Storeroom
from tideline.engine.thrift import keep_freed_memory
from tideline_server.api import Services, create_app
from tideline_server.bell import LocalBell, LocalCounts, RedisBell, RedisCounts
from tideline_server.conducting import Conducting
from tideline_server.limits import Limits
from tideline_server.parts import open_parts
from tideline_server.rpc import Door, open_door
from tideline_server.settings import LOOPBACK, CoordinatorSettings
from tideline_server.store import SqlJournal, StoreAway
from tideline_server.worker import ProcessMill

log = structlog.get_logger()
T = TypeVar("T")
SYNCERS = 4  # threads that wait for the disk while more bytes come in
TIDY_SECONDS = 2.0  # between two collections of parts: each takes a turn at the database


class WallClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()


class SteadyClock:
    """Seconds since some moment. Nobody sets this clock, so that waits are as long as they are."""

    def now(self) -> float:
        return time.monotonic()


class QuietServer(uvicorn.Server):
    """Uvicorn without signal handlers of its own: the coordinator closes both doors in order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(frozen=True)
class Doors:
    """Where a coordinator listens, as written to its home for the commands on the same machine."""

    grpc: str
    http: str
    pid: int


def run_coordinator(settings: CoordinatorSettings) -> None:
    """Serve until interrupted. Raises Refused errors for what is wrong with settings, home or ports."""
    check(settings)
    keep_freed_memory()
    settings.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with only_one(settings.folder):
        asyncio.run(serve(settings))


def check(settings: CoordinatorSettings) -> None:
    """Beyond this machine only with TLS, or by an explicit word."""
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise ConfigRefused("TLS needs both a certificate and a key", "Give --tls-cert and --tls-key")
    if settings.host not in LOOPBACK and settings.tls_cert is None and not settings.insecure:
        raise ConfigRefused(
            f"Listening on {settings.host} without TLS would send tokens and models in the clear",
            "Give --tls-cert and --tls-key, or say --insecure on a network that you trust",
        )


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """One coordinator per home."""
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"Another coordinator uses {folder}", "Stop it, or choose another --home") from None
        yield


async def serve(settings: CoordinatorSettings) -> None:
    """Build, open the doors, wait for a signal, close in the opposite order."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        grpc_port, http_socket = bound(settings)
        stack.callback(http_socket.close)
        doors = await unless(stop, stack.enter_async_context(coordinator(settings, http_socket, grpc_port)))
        if doors is None:  # the signal came while the database was awaited
            return
        log.info("coordinator_ready", agents=doors.grpc, people=doors.http, home=str(settings.folder))
        await stop.wait()
        log.info("coordinator_stopping")


async def unless(stop: asyncio.Event, begin: Coroutine[Any, Any, T]) -> T | None:
    """What begins, or None if it is to stop before that."""
    beginning, stopping = asyncio.create_task(begin), asyncio.create_task(stop.wait())
    await asyncio.wait({beginning, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not beginning.done():
        beginning.cancel()
        await asyncio.wait({beginning})
        return None
    return beginning.result()


def bound(settings: CoordinatorSettings) -> tuple[int, socket.socket]:
    """A free or checked gRPC port, and the HTTP socket. Raises Refused for a port in use."""
    http = listen(settings.host, settings.http_port, "--http-port")
    probe = listen(settings.host, settings.grpc_port, "--grpc-port")
    port = probe.getsockname()[1]
    probe.close()
    return port, http


def listen(host: str, port: int, option: str) -> socket.socket:
    """A bound socket. Raises Refused."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except OSError as cause:
        made.close()
        raise Refused(
            f"Cannot listen on {host}:{port}: {cause.strerror}",
            f"Stop what uses it, or choose another {option} (0 takes a free one)",
        ) from None
    return made


@contextlib.asynccontextmanager
async def coordinator(settings: CoordinatorSettings, http_socket: socket.socket, grpc_port: int) -> AsyncIterator[Doors]:
    """Everything running."""
    folder, clock = settings.folder, WallClock()
    bell, counts = bell_of(settings), counts_of(settings)
    limits = Limits(counts, clock, settings.rate, settings.rate_wrong_keys, settings.rate_enrol)
    parts = open_parts(*settings.place)
    parts.begin()
    journal = await opened(settings)
    room = Storeroom(parts, journal, clock, TIDY_SECONDS, lambda why: log.warning("parts_not_collected", reason=why))
    room.own(settings.place[0])
    mill = ProcessMill(settings.place, settings.methods)
    mill.start()
    office = Office(journal, mill, bell, clock)
    desk = Desk(journal, room, mill, bell, clock, __version__, ThreadPoolExecutor(SYNCERS, "sync"))
    leases = Leases(journal, SteadyClock(), holder(folder), settings.lease, taken_over)
    conducting = Conducting(Conductor(journal, room, mill, bell, clock), leases, bell)
    door = Door(desk, office, bell, __version__, limits)
    services = Services(
        office=office,
        journal=journal,
        mill=mill,
        room=room,
        clock=clock,
        moved=lambda topic, timeout: bell.moved(topic, bell.count(topic), min(timeout, 1.0)),
        version=__version__,
        api_key_hash=hashlib.sha256(admin_key(folder).encode()).hexdigest(),
        health=lambda: {"worker": mill.pid is not None, "bell": bell.reaches},
        ending=door.closing.is_set,
        limits=limits,
    )
    people = QuietServer(http_config(settings, create_app(services)))
    serving = asyncio.create_task(people.serve([http_socket]))
    agents = await open_door(door, f"{bracketed(settings.host)}:{grpc_port}", tls_pair(settings))
    bell.start()
    await conducting.start()
    try:
        yield announce(settings, grpc_port, http_socket)
    finally:
        door.close()
        people.should_exit = True
        await conducting.stop()
        await agents.stop(1.0)
        with contextlib.suppress(asyncio.CancelledError):
            await serving
        await bell.close()
        await counts.close()
        mill.close()
        journal.close()


async def opened(settings: CoordinatorSettings) -> SqlJournal:
    """The journal, once its database answers: after a reboot it may come later than we. Raises StoreRefused."""
    until = time.monotonic() + settings.wait
    while True:
        try:
            return await asyncio.to_thread(SqlJournal, settings.store)
        except StoreAway as error:
            left = until - time.monotonic()
            if left <= 0:
                raise
            log.warning("store_away", reason=str(error), gives_up_in_seconds=round(left))
            await asyncio.sleep(min(left, 1.0))


def taken_over(lease: Lease) -> None:
    """Tell that another coordinator has fallen silent, and that its run is conducted here from now on."""
    log.warning("run_taken_over", run=lease.run, silent=lease.holder, lease_seconds=lease.seconds)


def holder(folder: Path) -> str:
    """The name under which a coordinator holds leases: one process at a time has it, and has it again after a restart."""
    return f"{socket.gethostname()}:{folder.resolve()}"


def bell_of(settings: CoordinatorSettings) -> LocalBell:
    """The bell within this process or, over Redis, of all replicas. Raises ConfigRefused."""
    loop = asyncio.get_running_loop()
    return RedisBell(loop, settings.redis) if settings.redis else LocalBell(loop)


def counts_of(settings: CoordinatorSettings) -> LocalCounts | RedisCounts:
    """Counts of calls, of this process or, in Redis, of all replicas."""
    return RedisCounts(settings.redis) if settings.redis else LocalCounts()


def http_config(settings: CoordinatorSettings, app: Any) -> uvicorn.Config:
    """The people's door."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=2,
        ssl_certfile=None if settings.tls_cert is None else str(settings.tls_cert),
        ssl_keyfile=None if settings.tls_key is None else str(settings.tls_key),
    )


def tls_pair(settings: CoordinatorSettings) -> tuple[bytes, bytes] | None:
    """Key and certificate, where TLS is on."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return settings.tls_key.read_bytes(), settings.tls_cert.read_bytes()


def announce(settings: CoordinatorSettings, grpc_port: int, http_socket: socket.socket) -> Doors:
    """Write where the doors are, for the commands on this machine."""
    scheme = "http" if settings.tls_cert is None else "https"
    host = bracketed(settings.host)
    doors = Doors(f"{host}:{grpc_port}", f"{scheme}://{host}:{http_socket.getsockname()[1]}", os.getpid())
    temporary = settings.folder / "coordinator.json.tmp"
    temporary.write_text(json.dumps(doors.__dict__))
    temporary.replace(settings.folder / "coordinator.json")
    return doors


def bracketed(host: str) -> str:
    """An address as it stands before a port."""
    return f"[{host}]" if ":" in host else host


def admin_key(folder: Path) -> str:
    """The key of the people's door, made at the first start and readable by the owner only."""
    path = folder / "admin.key"
    if not path.exists() or not path.read_text().strip():
        # Whole or not at all: a key that a full disk or a kill left empty would open the door to everybody.
        temporary = folder / "admin.key.tmp"
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    return path.read_text().strip()
