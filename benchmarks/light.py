"""Agents that weigh next to nothing: many in one process, each with a connection of its own.

    python benchmarks/light.py CREW.json

They enrol, hear orders and beat as real agents do. An order is lived by the engine's own Agent: its calls go over a GrpcLink,
whose connection the agents of a process share, and its step runs in this process, one at a time. What happens is written to a
log, a JSON list a line: what, seconds since the epoch, who, and more.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import grpc
import grpc.aio

from tideline import __version__
from tideline.core.errors import FederationError
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId, OrderId, RunId
from tideline.core.signing import PROTOCOL
from tideline.core.tokens import secret_of
from tideline.engine.model.orders import Order
from tideline.engine.ports.site import Done, Job, Pool
from tideline.engine.simulation.adapters import MemoryVault
from tideline.engine.site.agent import Agent
from tideline_agent.home.identity import Keys
from tideline_agent.link import Endpoints, GrpcLink
from tideline_agent.link.lines import OPTIONS, SERVICE, Greeting
from tideline_agent.link.wire import order_in
from tideline_agent.main import BEAT_SECONDS, IDLE_BEATS
from tideline_protos.v1 import federation_pb2 as pb

OWN_LINE = (*OPTIONS, ("grpc.use_local_subchannel_pool", 1))
CUT_SECONDS = 0.5
THREADS = 64  # that wait for the coordinator's answers, in a process
Note = Callable[..., None]


@dataclass(frozen=True)
class Crew:
    """One process of agents. `tokens`: name to token. They stay `stay` seconds, are away `away`, and come again; 0: for good."""

    address: str
    log: str
    tokens: Mapping[str, str]
    methods: str = ""
    stay: float = 0.0
    away: float = 0.0


class OneAtATime:
    """The port Pool in this process: torch's global generator is not safe across threads, so steps take turns."""

    turn = threading.Lock()

    def __init__(self, methods: str, vault: MemoryVault) -> None:
        from tideline.core.algorithm import load_methods
        from tideline.engine.compute.step_runner import StepRunner

        self._steps = StepRunner(load_methods(methods), vault.parts, lambda world, role: Rows())

    def run(self, job: Job, tick: Callable[[float], None]) -> Done:
        with self.turn:
            return self._steps.run(job, tick)


class Rows:
    """The port Shelf: a few rows that no step looks at."""

    def view(self, view: Any, role: Any) -> Any:
        import torch

        from tideline.core.step import Data

        rows = torch.arange(8)
        return Data(MemoryRows(torch.zeros(8, 2)), rows % 2, torch.zeros_like(rows), ("rows",))


class Light:
    """One agent."""

    def __init__(self, crew: Crew, name: str, note: Note, threads: ThreadPoolExecutor) -> None:
        self.crew, self.name, self._threads = crew, name, threads
        self.note: Note = lambda what, *more: note(what, time.time(), name, *more)
        self.keys, self.greeting = Keys.made(), Greeting(0, 0.0)
        self.vault = MemoryVault()
        self.pool: Pool | None = OneAtATime(crew.methods, self.vault) if crew.methods else None
        self.working: set[OrderId] = set()
        self._turns: defaultdict[RunId, threading.Lock] = defaultdict(threading.Lock)

    async def live(self) -> None:
        """Come, go, and come again."""
        await asyncio.sleep(random.uniform(0, BEAT_SECONDS))
        while True:
            try:
                await self.visit()
                self.note("gone")
            except* grpc.aio.AioRpcError as errors:
                self.note("cut", repr(errors.exceptions[0])[:300])
            await asyncio.sleep(self.crew.away * random.uniform(0.5, 1.5) or CUT_SECONDS)

    async def visit(self) -> None:
        """As long as it stays."""
        stays = self.crew.stay * random.uniform(0.5, 1.5) or None
        link = GrpcLink(Endpoints((self.crew.address,)), self.name, self.keys, threading.Event())
        async with grpc.aio.insecure_channel(self.crew.address, options=OWN_LINE) as channel:
            with closing(link):
                await self.enrol(channel)
                self.note("here")
                try:
                    async with asyncio.timeout(stays), asyncio.TaskGroup() as both:
                        both.create_task(self.listen(channel, link))
                        both.create_task(self.beat(channel))
                except TimeoutError:
                    return

    async def enrol(self, channel: Any) -> None:
        """Ask for the time, then enrol, or come back."""
        hello = channel.unary_unary(SERVICE + "Hello", None, pb.HelloReply.FromString)
        report = await hello(pb.HelloRequest(protocol=PROTOCOL, version=__version__).SerializeToString())
        self.greeting = Greeting(report.time_ms, time.monotonic())
        sign_key, receive_key = self.keys.public
        who = {
            "token": secret_of(self.crew.tokens[self.name]),
            "name": self.name,
            "sign_key": sign_key,
            "receive_key": receive_key,
        }
        call = channel.unary_unary(SERVICE + "Enrol", None, pb.EnrolReply.FromString)
        body = pb.EnrolRequest(protocol=PROTOCOL, roles=("source",), version=__version__, **who).SerializeToString()
        await call(body, metadata=self.proof("Enrol", body))

    def proof(self, name: str, body: bytes) -> Any:
        """What proves a call."""
        now = self.greeting.now_ms
        signature = self.keys.signature(SERVICE + name, self.name, now, body)
        return (("tideline-client", self.name), ("tideline-time", str(now)), ("tideline-signature", signature))

    async def listen(self, channel: Any, link: GrpcLink) -> None:
        """Take orders as they come."""
        call = channel.unary_stream(SERVICE + "Orders", None, pb.OrderOrTick.FromString)
        async for each in call(b"", metadata=self.proof("Orders", b"")):
            if each.HasField("order"):
                order = order_in(each.order)
                self.note("order", order.run, order.cursor)
                self.working.add(order.id)
                asyncio.get_running_loop().run_in_executor(self._threads, self.answer, order, link)

    async def beat(self, channel: Any) -> None:
        """Say that it lives, as often as a real agent does."""
        call = channel.unary_unary(SERVICE + "Beat", None, pb.BeatReply.FromString)
        await asyncio.sleep(random.uniform(0, BEAT_SECONDS * IDLE_BEATS))
        for turn in itertools.count():
            await asyncio.sleep(BEAT_SECONDS if turn else 0.0)
            if turn % IDLE_BEATS and not self.working:
                continue
            began = time.perf_counter()
            body = pb.BeatRequest(progress=dict.fromkeys(self.working, 0.5)).SerializeToString()
            await call(body, metadata=self.proof("Beat", body))
            self.note("beat", time.perf_counter() - began)

    def answer(self, order: Order, link: GrpcLink) -> None:
        """Live an order. One that is left is offered again."""
        assert self.pool is not None, "only crews with methods are asked"
        try:
            with self._turns[order.run]:
                Agent(ClientId(self.name), link, self.vault, self.pool).handle(order)
        except FederationError as error:
            self.note("left", str(error))
        except Exception as error:  # noqa: BLE001 - said, or the run would wait for nobody knows what
            self.note("failed", repr(error))
        finally:
            self.working.discard(order.id)


async def man(crew: Crew) -> None:
    """Let all of them live until the process is ended."""
    with Path(crew.log).open("a", buffering=1) as log, ThreadPoolExecutor(THREADS) as threads:

        def note(*said: object) -> None:
            log.write(json.dumps(said) + "\n")

        agents = [Light(crew, name, note, threads) for name in crew.tokens]
        await asyncio.gather(*(agent.live() for agent in agents))


if __name__ == "__main__":
    asyncio.run(man(Crew(**json.loads(Path(sys.argv[1]).read_text()))))
