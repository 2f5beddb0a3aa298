"""Tasks on a Ray cluster: begun, waited for, and begun again where their worker was lost. The one module that knows Ray.

Ray pickles what it carries. So whoever may reach a cluster's ports, and has its token, runs code there: a cluster is between
processes of one owner, and nothing of another party's goes through it but bytes of archives and plain data.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Generic, TypeVar, cast
from urllib.parse import urlsplit

from tideline.core.errors import ConfigRefused, FederationError, StepFailed, Unreachable

R = TypeVar("R")
T = TypeVar("T")
Place = tuple[str, int]

RAY, CLIENT, AUTO = "ray", "ray://", "auto"
TRIES = 3  # a task whose worker was lost is begun again, at most twice
PROBE_SECONDS = 5.0  # in which a port has to answer
LISTEN_SECONDS = 5.0  # of waiting for tasks, after which the cluster is probed
ROOM_SECONDS, ROOM_POLL_SECONDS = 30.0, 0.5  # in which the nodes of a cluster that is just starting join it
COUNT_SECONDS = 10.0  # after which nodes are counted again
# No call home, and no new Ray by itself where one has gone away. All of this is read when Ray is loaded.
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_AUTO_CONNECT": "0"}
# Others on the network reach the ports of this machine's own Ray, too: only who has the token may use them.
LOCKED = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # HTTP/2, with an empty frame of settings
SETTINGS = 4
NOTED = "ray_current_cluster"
INSTALL = 'Install it: pip install "tideline[ray]"'
BUSY = "Initialization failure from server"  # a server of clients whose machine is busy may need more than one call
LONGEST = 300  # characters of another program's error
GONE = "Start Ray again, then the same command; see `ray status` on the cluster's head"


@dataclass(frozen=True)
class Cluster:
    """Which Ray, and what a task books there.

    address: HOST:PORT, ray://HOST:PORT, or auto for the cluster of this machine; None starts a Ray of this machine's own.
    cpus: of such a Ray. gpus: of one task; 0.25 lets four tasks share a GPU.
    """

    address: str | None = None
    cpus: int = 1
    gpus: float = 0.0


def check_options(pool: str, address: str | None, gpus: float, device: str) -> None:
    """Raises ConfigRefused for an address or GPUs without the pool ray, and for a device and GPUs that do not fit."""
    if pool != RAY:
        for name, value in (("address", address), ("gpus", gpus)):
            if value:
                raise ConfigRefused(f"{name} is {value}, which the pool {pool} has no use for", "Use the pool ray", path=name)
        return
    if not 0 <= gpus <= 1:
        raise ConfigRefused(f"gpus is {gpus}; a task computes on one GPU or a share of it", "Give 0 to 1", path="gpus")
    if bool(gpus) != (device != "cpu"):
        what = f"gpus is {gpus:g}, and the device is {device}"
        raise ConfigRefused(what, "For GPUs give both: --device cuda --gpus 0.25", path="gpus")
    if address is not None:
        place_of(address)


def place_of(address: str) -> Place | None:
    """The host and port of an address; None for `auto`. Raises ConfigRefused."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(address if address.startswith(CLIENT) else f"//{address}")
        if parts.hostname and parts.port:
            return parts.hostname, parts.port
    if address == AUTO:
        return None
    todo = "Write HOST:PORT, ray://HOST:PORT, or auto"
    raise ConfigRefused(f"address is {address!r}, which is no address of a Ray cluster", todo, path="address")


@dataclass(frozen=True)
class Box(Generic[T]):
    """A value that lies in the cluster. A task that is given it opens it when it needs it; a bare reference Ray would open."""

    ref: object

    def open(self) -> T:
        import ray

        return cast(T, ray.get(self.ref))


@dataclass(frozen=True)
class Begun:
    """A task, and how often it was begun."""

    key: str
    arguments: tuple[object, ...]
    tries: int = 1


class RayTasks(Generic[R]):
    """Calls of one function on the workers of a cluster, each under a key.

    slots: how many run at once. The function and what it is given come from this process, and its results from workers that
    this process's owner started.
    """

    slots: int

    def __init__(self, function: Callable[..., R], cluster: Cluster) -> None:
        """Raises ConfigRefused without Ray, and for a cluster without room for a task; Unreachable."""
        self._ray = loaded(QUIET if cluster.address else QUIET | LOCKED)
        self._cluster = cluster
        self._begun: dict[object, Begun] = {}
        self._own = not self._ray.is_initialized()
        address = found() if cluster.address == AUTO and self._own else cluster.address
        if self._own:
            connect(self._ray, replace(cluster, address=address))
        try:
            self._places = places(self._ray, address)
            self._call = self._ray.remote(num_cpus=1, num_gpus=cluster.gpus, max_retries=0)(function)
            self._find_room(ROOM_SECONDS if cluster.address else 0.0)
        except FederationError:
            self.close()
            raise

    def put(self, value: T) -> Box[T]:
        """Lay a value down in the cluster, once for all tasks. Raises ConfigRefused for what cannot be sent; Unreachable."""
        with self._answering():
            try:
                return Box(self._ray.put(value))
            except (TypeError, AttributeError) as cause:
                what = f"The sites' data cannot be opened by another process: {str(cause).splitlines()[0]}"
                raise ConfigRefused(what, "Open them with functions and classes of modules", path="pool") from None

    def begin(self, key: str, *arguments: object) -> None:
        """Begin a task. Boxes among its arguments are opened before, on its node. Raises Unreachable."""
        with self._answering():
            self._send(Begun(key, arguments))

    def finished(self, seconds: float | None = None) -> tuple[str, R | FederationError] | None:
        """A task that has ended, in any order, and its result; None if there is none within some seconds.

        A task whose worker was lost again and again ends in StepFailed. Raises Unreachable for a cluster that has gone away;
        ConfigRefused for workers that cannot run the function; the FederationError that it raised.
        """
        with self._answering():
            while self._begun:
                ready, _ = self._ray.wait(list(self._begun), timeout=LISTEN_SECONDS if seconds is None else seconds)
                if time.monotonic() - self._counted > COUNT_SECONDS:
                    self._check()
                    self._count()
                if ready and (answer := self._answer(ready[0])) is not None:
                    return answer
                if not ready and seconds is not None:
                    return None
                if not ready:
                    self._check()
        return None

    def close(self) -> None:
        """Withdraw what runs, and end a Ray, or the line to one, that this object has opened."""
        if self._ray.is_initialized():
            for ref in self._begun:
                with contextlib.suppress(Exception):  # it has gone away: then there is nothing to withdraw
                    self._ray.cancel(ref, force=True)
            if self._own:
                with contextlib.suppress(Exception):
                    self._ray.shutdown()
        self._begun.clear()

    def _send(self, task: Begun) -> None:
        opened = [each.ref if isinstance(each, Box) else each for each in task.arguments]
        self._begun[self._call.remote(*opened)] = task

    def _answer(self, ref: object) -> tuple[str, R | FederationError] | None:
        """What came of a task; None if it was begun again."""
        task = self._begun.pop(ref)
        try:
            return task.key, self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            raise raised(error.cause) from None
        except self._ray.exceptions.RayError as error:
            self._check()
            if task.tries < TRIES:
                self._send(replace(task, tries=task.tries + 1))
                return None
            return task.key, lost(error)

    def _find_room(self, seconds: float) -> None:
        """Wait until a node has room for a task. Raises ConfigRefused if none has within some seconds."""
        until = time.monotonic() + seconds
        while not self._count():
            if time.monotonic() >= until:
                what = f"No node of the Ray cluster has room for a task, which books 1 CPU and {self._cluster.gpus:g} GPUs"
                raise ConfigRefused(what, "Add such a node, see `ray status`; if the cluster scales, keep one there", path="pool")
            time.sleep(ROOM_POLL_SECONDS)

    def _count(self) -> int:
        """Count the tasks that the nodes have room for."""
        alive = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        self.slots, self._counted = sum(room(each, self._cluster.gpus) for each in alive), time.monotonic()
        return self.slots

    def _check(self) -> None:
        """Raises Unreachable if the cluster no longer answers."""
        if not self._ray.is_initialized():
            raise Unreachable("Ray was shut down while tasks ran", GONE)
        for place in self._places:
            if not answers(place):
                raise Unreachable(
                    f"Ray no longer answers at {place[0]}:{place[1]}; its head, or its node here, has gone away", GONE
                )

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """Talk to the cluster. Raises Unreachable if it is not there, or goes away meanwhile."""
        if not self._ray.is_initialized():
            self._check()
        try:
            yield
        except (self._ray.exceptions.RayError, ConnectionError, RuntimeError) as cause:
            self._check()
            raise Unreachable(f"Ray failed: {first_line(cause)}", GONE) from None


def loaded(environment: Mapping[str, str]) -> ModuleType:
    """Ray, with these variables where they are not set. Raises ConfigRefused where it is not installed."""
    for name, value in environment.items():
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise ConfigRefused("The pool ray needs the package ray, which is not installed", INSTALL, path="pool") from None
    return cast(ModuleType, ray)


def found() -> str:
    """The address of the cluster that this machine belongs to: what RAY_ADDRESS says, or where `ray start` has noted it.

    Ray would look for processes as well, and wait for minutes for what has ended. Raises Unreachable.
    """
    folder = os.environ.get("RAY_TMPDIR") or (sys.platform == "linux" and os.environ.get("TMPDIR")) or "/tmp"
    with contextlib.suppress(OSError):
        if address := os.environ.get("RAY_ADDRESS") or Path(folder, "ray", NOTED).read_text(encoding="utf-8").strip():
            return address
    raise Unreachable("This machine belongs to no Ray cluster", "Start one with `ray start`, or give its address")


def connect(module: ModuleType, cluster: Cluster) -> None:
    """Start a Ray of this machine, or open a line to a cluster. Raises Unreachable."""
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    if cluster.address is None:
        given = {"address": "local", "num_cpus": cluster.cpus, "include_dashboard": False, **quiet}
    else:
        place = place_of(cluster.address)
        if place is not None and not answers(place, greeted="RAY_USE_TLS" not in os.environ):
            todo = "Start it with `ray start --head`; check host and port, and that no firewall is between"
            raise Unreachable(f"No Ray cluster answers at {cluster.address}", todo)
        given = {"address": cluster.address, **quiet}
    try:
        try:
            module.init(**given)
        except ConnectionError as cause:
            if BUSY not in str(cause):
                raise
            module.init(**given)
    except (OSError, RuntimeError, ValueError, Warning, module.exceptions.RayError) as cause:
        where = cluster.address or "this machine"
        todo = "Check the address, the token (`ray get-auth-token`), and that both ends have the same versions of Ray and Python"
        raise Unreachable(f"Cannot use Ray at {where}: {first_line(cause)}", todo) from None


def places(module: ModuleType, address: str | None) -> Sequence[Place]:
    """Where a line to a cluster ends: at its head and at the node of this machine, or at its server of clients."""
    if address is not None and address.startswith(CLIENT):
        place = place_of(address)
        return () if place is None else (place,)
    context = module.get_runtime_context()
    host, _, port = context.gcs_address.rpartition(":")
    own = [node for node in module.nodes() if node["NodeID"] == context.get_node_id()]
    return ((host.strip("[]"), int(port)), *((node["NodeManagerAddress"], node["NodeManagerPort"]) for node in own))


def answers(place: Place, greeted: bool = False) -> bool:
    """Whether somebody listens there; greeted: and speaks HTTP/2, as Ray does."""
    try:
        with socket.create_connection(place, PROBE_SECONDS) as line:
            if not greeted:
                return True
            line.sendall(HELLO)
            head = b""
            while len(head) < 4 and (more := line.recv(4 - len(head))):
                head += more
            return len(head) == 4 and head[3] == SETTINGS
    except OSError:
        return False


def room(resources: Mapping[str, float], gpus: float) -> int:
    """How many tasks a node runs at once. A task has its GPU, or its share, on one GPU."""
    cpus = int(resources.get("CPU", 0))
    return cpus if not gpus else min(cpus, int(resources.get("GPU", 0)) * int(1 / gpus + 1e-9))


def raised(cause: BaseException | None) -> FederationError:
    """What the function raised, in words for this process's user."""
    if isinstance(cause, FederationError):
        return cause
    what = f"A Ray worker cannot run Tideline's tasks: {type(cause).__name__}: {first_line(cause)}"
    return ConfigRefused(what, "Install the same Tideline, Python and packages on every node; see Ray's logs there", path="pool")


def lost(error: Exception) -> StepFailed:
    """Why a task was given up."""
    what = f"The Ray worker of this task was lost {TRIES} times, the last time by {type(error).__name__}"
    return StepFailed(what, "Look for out-of-memory messages in `ray status` and Ray's logs; use fewer jobs, or smaller batches")


def first_line(cause: object) -> str:
    """What an error says; of a traceback from elsewhere also its end, which is the reason."""
    lines = str(cause).strip().splitlines() or ["no reason given"]
    return (f"{lines[0]} {lines[-1].strip()}" if len(lines) > 1 and lines[0].endswith(":") else lines[0])[:LONGEST]
