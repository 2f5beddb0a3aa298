"""The whole stack in one process: the same agent service, scheduler and agents, with in-process adapters."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tideline.archive.digests import Buffer
from tideline.core.algorithm import Methods
from tideline.core.asked.private import KEY_BYTES
from tideline.core.errors import FederationError
from tideline.core.notes import OTHERWISE, Note
from tideline.core.privacy import DEFAULT_POLICY, Policy
from tideline.core.run import ClientId, Digest, OrderId, Role, RunId
from tideline.core.settings import Plain
from tideline.engine.compute.inline import InlineCompute
from tideline.engine.compute.step_runner import StepRunner
from tideline.engine.coordinator.agent_service import AgentService, Notebook
from tideline.engine.coordinator.enrolment import Applicant
from tideline.engine.coordinator.part_store import PartStore
from tideline.engine.coordinator.result import result_of
from tideline.engine.coordinator.run_service import RunService
from tideline.engine.coordinator.scheduler import Scheduler
from tideline.engine.model.experiment import UPLOADER
from tideline.engine.model.orders import Order, Receipt
from tideline.engine.model.runs import OPEN, Event
from tideline.engine.peers.peer_keys import MemoryPins, PeerKeys
from tideline.engine.ports.site import OpenSiteData
from tideline.engine.simulation.adapters import LocalLink, QuietBell
from tideline.engine.simulation.homes import Home, Scratch
from tideline.engine.simulation.pools import InlinePool, Sources, StepPool
from tideline.engine.site.agent import Agent, Work
from tideline.engine.site.owner import Owner
from tideline.engine.site.rules import FREE, SiteRules

Watch = Callable[[Event], None]
OpenPool = Callable[[Methods, Sources, str], StepPool]
OrderOf = Callable[[list[Order]], list[Order]]


@dataclass(frozen=True)
class SimSite:
    """A simulated site: how it opens its data, what may leave it, and which runs may run there."""

    open_site_data: OpenSiteData
    policy: Policy = DEFAULT_POLICY
    rules: SiteRules = FREE


class Federation:
    """A coordinator and its sites, wired in one process.

    home: where it keeps what it must not forget, or a folder for its parts; without it everything is in memory. masks: whether
    secure sums are masked as over a network, which changes no number.
    """

    def __init__(
        self,
        methods: Methods,
        sites: Mapping[str, SimSite],
        home: Home | Path | None = None,
        device: str = "cpu",
        open_pool: OpenPool = InlinePool,
        masks: bool = False,
    ) -> None:
        self.masks = masks
        self.pool = open_pool(methods, {ClientId(name): site.open_site_data for name, site in sites.items()}, device)
        self.home = Scratch(home) if home is None or isinstance(home, Path) else home
        self.clock, self.bell, self.journal, self.parts = self.home.clock, QuietBell(), self.home.journal, self.home.parts
        self.part_store = PartStore(self.parts, self.journal, self.clock)
        self.compute = InlineCompute(self.parts, methods, masks=masks)
        self.agent_service = AgentService(
            journal=self.journal, part_store=self.part_store, compute=self.compute, bell=self.bell, clock=self.clock
        )
        self.run_service = RunService(
            journal=self.journal, compute=self.compute, bell=self.bell, clock=self.clock, here=self.parts.has
        )
        self.scheduler = Scheduler(
            journal=self.journal, part_store=self.part_store, compute=self.compute, bell=self.bell, clock=self.clock
        )
        self.agents = {ClientId(n): self.agent(ClientId(n), site, methods, device) for n, site in sorted(sites.items())}

    def agent(self, name: ClientId, site: SimSite, methods: Methods, device: str) -> Agent:
        own = self.home.keys(name)
        peer_keys = PeerKeys(lambda: own, MemoryPins())
        if self.journal.client(name) is None:
            who = Applicant(name, tuple(Role), "simulated", keys=own.public)
            self.run_service.enrolment.admit(self.run_service.invite(name, {}, 60.0), who)
        vault = self.home.vault(name)
        pool = StepRunner(methods, vault.parts, site.open_site_data, device)
        link = LocalLink(name, self.agent_service)
        owner = Owner(site.policy, site.rules)
        return Agent(
            name=name,
            link=link,
            vault=vault,
            pool=pool,
            owner=owner,
            log=partial(self.note, name),
            peer_keys=peer_keys,
            # A home that outlives its process has a site's keys; they are never rotated in a simulation.
            secret=lambda: hashlib.blake2b(own.sign, digest_size=KEY_BYTES, person=b"noise").digest(),
            masks=self.masks,
        )

    def note(self, site: ClientId, what: str, order: Order, error: FederationError | None) -> None:
        """A site's note of what a step did otherwise than it was asked; the rest of its log is nobody's here."""
        if what in OTHERWISE:
            Notebook(self.agent_service).take(site, [(order.id, Note(what))])

    def bring(self, buffers: Sequence[Buffer]) -> Digest:
        """Take in a file of weights, the joined buffers; what an experiment calls it."""
        digest = self.parts.put(buffers)
        self.journal.add_parts([digest], *UPLOADER, self.clock.now())
        return digest

    def start(self, experiment: Mapping[str, Plain]) -> RunId:
        return self.run_service.start(experiment)

    def run(self, run: RunId, watch: Watch | None = None, order_of: OrderOf | None = None) -> dict[str, Any]:
        """Play until the run and those that belong to it have ended or stalled; the result. watch: is given the run's events.

        `order_of` chooses which orders are answered next, and in which order; when it chooses none, the deadline passes.
        """
        row = self.run_service.find(run)
        runs = [*row.serving, run]
        early = row.spec.waiting.target_replies is not None  # a round may close before all have answered
        seen = self.show(run, 0, watch)
        while self.turn(runs):
            self.home.save()
            seen = self.show(run, seen, watch)
            orders = list(self.waiting())
            played = order_of(orders) if order_of else orders
            for _ in self.play(played, 1 if early else None):
                if watch and early:
                    self.turn(runs)
                seen = self.show(run, seen, watch)
            if not played:
                self.expire(runs)
        self.home.save()
        self.show(run, seen, watch)
        return result_of(self.journal, run, self.clock.now())

    def show(self, run: RunId, seen: int, watch: Watch | None) -> int:
        """Give a watcher the events that it has not seen; the number of the last one."""
        if watch is not None:
            for event in self.journal.events(run, seen):
                watch(event)
                seen = event.seq
        return seen

    def expire(self, runs: list[RunId]) -> None:
        """Nobody answers any more: let time pass to the next deadline of a run that is still open."""
        rows = [row for row in map(self.run_service.find, runs) if row.status in OPEN]
        ends = [row.deadline_at for row in rows if not self.scheduler.held(row)]
        self.clock.advance(max(min(ends) - self.clock.now(), 0.0))

    def turn(self, runs: list[RunId]) -> bool:
        for each in runs:
            self.scheduler.turn(each)
        return any(self.run_service.find(each).status in OPEN for each in runs)

    def waiting(self) -> Iterator[Order]:
        for name in self.agents:
            yield from self.agent_service.orders(name)

    def play(self, orders: Iterable[Order], most: int | None = None) -> Iterator[None]:
        """Let sites answer orders, as many at once as the pool has room for, at most `most`; after each its caller has a turn."""
        waiting, at_work = iter(orders), dict[OrderId, Work[Receipt | None]]()
        while True:
            while self.pool.room > 0 and (most is None or len(at_work) < most) and (order := next(waiting, None)) is not None:
                agent = self.agent_of(order)
                work = agent.work(order)
                try:
                    self.pool.begin(order.id, next(work), agent.vault.parts(order.run))
                    at_work[order.id] = work
                except StopIteration:  # there was nothing to do
                    yield
            if not at_work:
                return
            name, done = self.pool.finished()
            work = at_work.pop(name)
            with suppress(StopIteration):
                job = work.throw(done) if isinstance(done, FederationError) else work.send(done)
                self.pool.begin(name, job, self.agents[job.client].vault.parts(job.run))  # what it reads was fetched again
                at_work[name] = work
            yield

    def agent_of(self, order: Order) -> Agent:
        row = self.journal.order(order.id)
        assert row is not None
        return self.agents[row.client]

    def handle(self, order: Order) -> None:
        self.agent_of(order).handle(order)

    def close(self) -> None:
        """End the pool's processes, if it has any, and close what its home has open."""
        self.pool.close()
        self.home.close()


def simulate(
    methods: Methods,
    experiment: Mapping[str, Plain],
    sites: Mapping[str, SimSite],
    home: Path | None = None,
    watch: Watch | None = None,
) -> dict[str, Any]:
    """Run an experiment in this process. Equal seeds give the state digest that a deployment ends in."""
    federation = Federation(methods, sites, home)
    return federation.run(federation.start(experiment), watch)
