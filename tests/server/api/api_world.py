"""A whole federation in this process with the HTTP door in front of it, and a client that knocks."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import httpx
import torch

from tests.enrolling import enrol
from tideline.algorithms import METHODS
from tideline.core.asked.world import World
from tideline.core.rows import MemoryRows
from tideline.core.run import Role
from tideline.core.step import Data
from tideline.engine.coordinator.api_keys import hash_of
from tideline.engine.coordinator.run_service import RunService
from tideline.engine.ports.journal import Journal
from tideline.engine.simulation.adapters import QuietBell
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.learning.formats.holdings import Holdings
from tideline_server.api import ApiSettings, Services, create_app

SITES = ("anna", "bert", "carl")
EXPERIMENT: dict[str, Any] = {
    "name": "a small one",
    "method": "fedavg",
    "config": {"rounds": 2, "batch": 4},
    "world": {"inputs": [4], "classes": 2, "model": "mlp", "normalise": "none"},
    "roster": {"anna": "source", "bert": "source", "carl": "target"},
    "seed": 3,
}
QUICK = ApiSettings(keep_alive_seconds=0.02)
HOME_KEY = "the home's key"
OWN = {"Authorization": f"Bearer {HOME_KEY}"}
JSON = {"Content-Type": "application/json"}


async def unread() -> AsyncIterator[bytes]:
    """A body of a request that must be answered before its first byte is read."""
    raise AssertionError("the body was read")
    yield b""


class LoudBell(QuietBell):
    """A bell that can be awaited from a loop and rung from any thread."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: dict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = defaultdict(set)

    def ring(self, topic: str) -> None:
        super().ring(topic)
        for loop, event in tuple(self._waiting[topic]):
            with contextlib.suppress(RuntimeError):  # a loop that has ended since
                loop.call_soon_threadsafe(event.set)

    async def moved(self, topic: str, seconds: float) -> bool:
        """Whether the topic rang before the time was up."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        self._waiting[topic].add(waiter)
        try:
            with anyio.move_on_after(seconds):
                await waiter[1].wait()
                return True
            return False
        finally:
            self._waiting[topic].discard(waiter)


def holdings(name: str) -> Holdings:
    """Twelve rows with two classes that a network can tell apart, other ones at each site."""
    rng = torch.Generator().manual_seed(SITES.index(name))
    y = torch.arange(12) % 2
    data = Data(MemoryRows(torch.randn(12, 4, generator=rng) + y[:, None]), y, torch.zeros(12, dtype=torch.int64), (name,))
    return Holdings(data, data)


class Coordinator:
    """The kernel with its sites, and the door to it."""

    run = ""  # the run that a fixture has played

    def __init__(self, settings: ApiSettings = QUICK, **other: Any) -> None:
        def site(name: str) -> SimSite:
            def open_site_data(world: World, role: Role) -> Holdings:
                return holdings(name)

            return SimSite(open_site_data)

        self.federation = Federation(METHODS, {name: site(name) for name in SITES})
        self.bell = LoudBell()
        for part in (self.federation.run_service, self.federation.agent_service, self.federation.scheduler):
            part.bell = self.bell
        self.settings, self.services = settings, self.plain_services()
        self.wear(**other)

    def wear(self, **changes: Any) -> None:
        """Take other services, behind a new app."""
        self.services = replace(self.services, **changes)
        self.app = create_app(self.services, self.settings)

    def plain_services(self) -> Services:
        """What a shell would hand in, without a key."""
        f = self.federation
        return Services(
            f.run_service, f.journal, f.part_store, f.compute, f.clock, self.bell.moved, "1.2.3", None, lambda: {"replicas": 1}
        )

    def beside(self, journal: Journal, settings: ApiSettings = QUICK) -> Coordinator:
        """Another coordinator's door, over this journal: it knows nothing but what stands there."""
        f, other = self.federation, copy(self)
        other.settings = settings
        other.wear(run_service=RunService(journal, f.compute, self.bell, f.clock), journal=journal)
        return other

    def built(self) -> Coordinator:
        """With its routes built, which first requests in several threads would else do side by side, warnings and all."""
        self.app.openapi()
        return self

    async def asend(self, method: str, path: str, address: str = "127.0.0.1", **how: Any) -> httpx.Response:
        """One request, within a running loop."""
        transport = httpx.ASGITransport(self.app, client=(address, 41234))
        async with httpx.AsyncClient(transport=transport, base_url="http://coordinator") as client:
            return await client.request(method, path, **how)

    def send(self, method: str, path: str, **how: Any) -> httpx.Response:
        """One request; where a loop runs already, from another thread."""

        def call() -> httpx.Response:
            return anyio.run(partial(self.asend, method, path, **how))

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return call()
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(call).result()

    def get(self, path: str, **how: Any) -> httpx.Response:
        """One GET."""
        return self.send("GET", path, **how)

    def post(self, path: str, json: Any = None, **how: Any) -> httpx.Response:
        """One POST with a JSON body, if any."""
        return self.send("POST", path, **how) if json is None else self.send("POST", path, json=json, **how)

    def start(self, **changes: Any) -> str:
        """A run of the small experiment; its id."""
        answer = self.post("/runs", EXPERIMENT | changes)
        assert answer.status_code == 201, answer.text
        run: str = answer.json()["run"]
        return run

    def add_key(self, name: str, role: str, project: str = "", **more: Any) -> dict[str, str]:
        """The header of a new API key, made with the home's key."""
        answer = self.post("/keys", {"name": name, "role": role, "project": project, **more}, headers=OWN)
        assert answer.status_code == 201, answer.text
        return {"Authorization": f"Bearer {answer.json()['key']}"}

    def add_project(self, name: str) -> None:
        """A new project, made with the home's key."""
        answer = self.post("/projects", {"name": name}, headers=OWN)
        assert answer.status_code == 201, answer.text

    def join(self, name: str, role: str = "source") -> None:
        """Enrol a site."""
        service = self.federation.run_service
        enrol(service, service.invite(name, {}, 60.0), name, (role,))

    def play(self, run: str) -> None:
        """Let the sites and the scheduler do their work until the run has ended or stalled."""
        self.federation.run(self.federation.run_service.find(run).id)  # type: ignore[arg-type]


def locked(settings: ApiSettings = QUICK, **services: Any) -> Coordinator:
    """A coordinator that asks for a key, of which the home's is one."""
    return Coordinator(settings, api_key_hash=hash_of(HOME_KEY), **services)


def refused(answer: httpx.Response, status: int, kind: str, path: str | None = None) -> dict[str, Any]:
    """The error of an answer in the one shape, with this status, kind and place."""
    told: dict[str, Any] = answer.json()
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert set(told) - {"instance"} == {"type", "title", "status", "detail", "kind", "todo", "path", "context", "request"}
    assert (told["type"], told["status"]) == (f"urn:tideline:error:{kind}", status)
    assert told["detail"] and told["title"] and isinstance(told["todo"], str)
    assert isinstance(told["context"], Mapping)
    assert (told["kind"], told["path"]) == (kind, path), told
    return told
