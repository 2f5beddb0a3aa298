"""A federation in one process whose objects may be thrown away at any moment and built again over what is durable."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import count
from types import ModuleType
from typing import Any

from tideline.archive.parts import Intake, MemoryAside, MemoryParts, Parts, chunk_size, chunks, commit
from tideline.core.algorithm import Algorithm, Methods
from tideline.core.run import ClientId, Digest, RunId
from tideline.core.step import no_tick
from tideline.engine.compute.inline import InlineCompute
from tideline.engine.compute.step_runner import StepRunner
from tideline.engine.coordinator.agent_service import AgentService
from tideline.engine.coordinator.enrolment import Applicant
from tideline.engine.coordinator.part_store import PartStore
from tideline.engine.coordinator.result import result_of
from tideline.engine.coordinator.run_service import RunService
from tideline.engine.coordinator.scheduler import Scheduler
from tideline.engine.model.orders import Arrivals, Files, Order, Receipt, Reply
from tideline.engine.model.runs import OPEN, RunRow
from tideline.engine.ports.journal import Advance, Present, all_present
from tideline.engine.ports.site import Done, Head, Job
from tideline.engine.simulation.adapters import LocalLink, ManualClock, MemoryVault, QuietBell
from tideline.engine.simulation.federation import SimSite
from tideline.engine.simulation.journal import MemoryJournal
from tideline.engine.site.agent import Agent, driven, new_peer_keys
from tideline.engine.site.owner import Owner
from tideline.secure.rounds.notebook import MemoryNotebook

ROLES = ("source", "target", "peer")
numbers = count()


class Crash(BaseException):
    """The process ends here. No `except` of the engine may stop it."""


@dataclass
class Cuts:
    """Places where a process may end. `every`: at each place once. `reached` lists them in order."""

    every: bool = False
    reached: list[tuple[object, ...]] = field(default_factory=list)

    def point(self, *place: object) -> None:
        """Pass a place, or end there."""
        first = place not in self.reached
        self.reached.append(place)
        if self.every and first:
            raise Crash


@dataclass
class Wire:
    """Every byte that crossed a link: (client, cursor, bytes) down and up, and the words of the replies."""

    down: list[tuple[ClientId, int, bytes]] = field(default_factory=list)
    up: list[tuple[ClientId, int, bytes]] = field(default_factory=list)
    words: list[tuple[ClientId, int, str]] = field(default_factory=list)

    def all(self) -> bytes:
        """Everything, both ways."""
        return b"|".join([*(b for _, _, b in (*self.down, *self.up)), *(w.encode() for _, _, w in self.words)])


class WatchedLink(LocalLink):
    """The in-process link, with a record of what passes and places where the process may end, in the middle of parts too."""

    def __init__(self, client: ClientId, agent_service: AgentService, cuts: Cuts, wire: Wire) -> None:
        super().__init__(client, agent_service)
        self.cuts, self.wire = cuts, wire

    def fetch(self, order: Order, files: Files, parts: Parts) -> None:
        wanted = [(digest, parts.arrived(digest)) for digest, _ in files]
        with Intake(files, parts.upload, commit) as intake:
            for place, chunk in enumerate(self.agent_service.fetch(self.client, order.id, wanted)):
                self.wire.down.append((self.client, order.cursor, bytes(chunk)))
                self.halves(intake, chunk, "fetch", order.id, place)
                self.agent_service.sent(order.id, len(chunk))
            intake.end()
        self.cuts.point("fetched", order.id, wanted)

    def push(self, order: Order, arrivals: Arrivals, parts: Parts) -> None:
        wanted = [(digest, offset) for digest, _, offset in arrivals]
        with self.agent_service.push(self.client, order.id, arrivals) as intake:
            for place, chunk in enumerate(chunks(parts, wanted, chunk_size(sum(size for _, size, _ in arrivals)))):
                self.wire.up.append((self.client, order.cursor, bytes(chunk)))
                self.halves(intake, chunk, "push", order.id, place)
            self.agent_service.received(self.client, order.id, intake)
        self.cuts.point("pushed", order.id, wanted)

    def halves(self, intake: Intake, chunk: memoryview, *place: object) -> None:
        """Half a chunk, a place where the process may end, and the other half."""
        half = len(chunk) // 2
        intake.write(chunk[:half])
        self.cuts.point(*place)
        intake.write(chunk[half:])

    def report(self, order: Order, reply: Reply) -> Receipt:
        words = json.dumps([dict(reply.metrics), dict(reply.facts), reply.failure and asdict(reply.failure)])
        self.wire.words.append((self.client, order.cursor, words))
        self.cuts.point("report", order.id, len(self.wire.up))
        receipt = super().report(order, reply)
        self.cuts.point("reported", order.id, receipt.verdict)
        return receipt


class WatchedVault(MemoryVault):
    """A vault whose process may end before and after the commit."""

    def __init__(self, cuts: Cuts) -> None:
        super().__init__()
        self.cuts = cuts
        self.past: list[Head] = []

    def hoard(self) -> None:
        """Forget nothing from now on, so that a test can look at what was kept at any time."""
        self._open = lambda run: HoardingParts()

    def commit(self, run: RunId, head: Head) -> None:
        self.cuts.point("commit", head.order)
        self.past.append(head)
        super().commit(run, head)
        self.cuts.point("committed", head.order)

    def restore(self, run: RunId, head: Head | None) -> None:
        """A home directory from an earlier day."""
        if head is None:
            self._heads.pop(run, None)
        else:
            self._heads[run] = head


class WatchedJournal(MemoryJournal):
    """A journal whose process may end before and after the transaction that closes a round."""

    def __init__(self, cuts: Cuts) -> None:
        super().__init__()
        self.cuts = cuts

    def advance(self, step: Advance, here: Present = all_present) -> bool:
        self.cuts.point("advance", step.run, step.from_cursor)
        done = super().advance(step, here)
        self.cuts.point("advanced", step.run, step.from_cursor)
        return done


class CountingPool:
    """A pool that counts how often each step was run."""

    def __init__(self, step_runner: StepRunner, jobs: list[tuple[ClientId, int]]) -> None:
        self._stepper, self._jobs = step_runner, jobs

    def run(self, job: Job, tick: Callable[[float], None]) -> Done:
        self._jobs.append((job.client, job.cursor))
        return self._stepper.run(job, tick)


class HoardingParts(MemoryParts):
    """Parts that are never forgotten, so that a test can look at all of them afterwards."""

    def drop(self, digest: Digest) -> None:
        return

    def aside(self) -> MemoryAside:
        return MemoryAside(MemoryParts())


class Stage:
    """Durable: clock, journal, the coordinator's parts, every site's vault. All else is built by `rebuild`."""

    def __init__(
        self,
        methods: Methods,
        sites: Mapping[str, SimSite],
        cuts: Cuts | None = None,
        parts: MemoryParts | None = None,
        workers: int | None = None,
        masks: bool = True,
    ) -> None:
        self.methods, self.sites, self.workers, self.masks = methods, sites, workers, masks
        self.cuts, self.wire = cuts or Cuts(), Wire()
        self.clock, self.bell, self.journal = ManualClock(1000.0), QuietBell(), WatchedJournal(self.cuts)
        self.parts = parts or MemoryParts()
        self.vaults = {ClientId(name): WatchedVault(self.cuts) for name in sorted(sites)}
        self.peer_keys_of = {name: new_peer_keys() for name in self.vaults}
        self.notebooks = {name: MemoryNotebook() for name in self.vaults}
        self.jobs: list[tuple[ClientId, int]] = []
        self.rebuild()
        for name, peer_keys in self.peer_keys_of.items():
            who = Applicant(name, ROLES, "test", peer_keys.own().public)
            self.run_service.enrolment.admit(self.run_service.invite(name, {}, 60.0), who)

    def rebuild(self) -> None:
        """Every process starts anew."""
        self.part_store = PartStore(self.parts, self.journal, self.clock)
        self.compute = InlineCompute(self.parts, self.methods, masks=self.masks)
        self.agent_service = AgentService(self.journal, self.part_store, self.compute, self.bell, self.clock)
        self.run_service = RunService(self.journal, self.compute, self.bell, self.clock)
        self.scheduler = Scheduler(self.journal, self.part_store, self.compute, self.bell, self.clock)
        self.agents = {name: self.agent(name) for name in self.vaults}

    def agent(self, name: ClientId) -> Agent:
        """A site's agent over its vault."""
        step_runner = StepRunner(self.methods, self.vaults[name].parts, self.sites[name].open_site_data, workers=self.workers)
        link = WatchedLink(name, self.agent_service, self.cuts, self.wire)
        pool = CountingPool(step_runner, self.jobs)
        owner = Owner(self.sites[name].policy, self.sites[name].rules)
        keys, notes = self.peer_keys_of[name], self.notebooks.setdefault(name, MemoryNotebook())
        return Agent(name, link, self.vaults[name], pool, owner, peer_keys=keys, notebook=notes, masks=self.masks)

    def start(self, experiment: Mapping[str, Any]) -> RunId:
        """Start an experiment."""
        return self.run_service.start(experiment)

    def waiting(self) -> list[Order]:
        """Every open order, by client."""
        return [order for name in self.agents for order in self.agent_service.orders(name)]

    def handle(self, order: Order) -> Receipt | None:
        """Let the order's site live it."""
        row = self.journal.order(order.id)
        assert row is not None
        return self.agents[row.client].handle(order)

    def alive(self, action: Callable[[], Any]) -> None:
        """Do something, starting anew as often as the process ends."""
        while True:
            try:
                action()
            except Crash:
                self.rebuild()
            else:
                return

    def actions(self, run: RunId, choose: Callable[[list[Order]], list[Order]] | None = None) -> Iterator[Callable[[], Any]]:
        """What happens one after the other until the run ends or stalls: the scheduler's turns and the sites' answers."""
        while True:
            yield lambda: self.scheduler.turn(run)
            if self.row(run).status not in OPEN:
                return
            orders = self.waiting()
            chosen = choose(orders) if choose else orders
            for order in chosen:
                yield lambda order=order: self.handle(order)
            if not chosen:
                self.clock.advance(self.row(run).deadline_at - self.clock.now())

    def play(self, run: RunId, choose: Callable[[list[Order]], list[Order]] | None = None) -> RunRow:
        """Until the run ends or stalls. `choose` says who answers next; nobody: the deadline passes."""
        for action in self.actions(run, choose):
            self.alive(action)
        return self.row(run)

    def row(self, run: RunId) -> RunRow:
        """The run as it is."""
        return self.run_service.find(run)

    def result(self, run: RunId) -> dict[str, Any]:
        """What people read of it."""
        return result_of(self.journal, run, self.clock.now())

    def memories(self, run: RunId) -> dict[ClientId, Files]:
        """Every site's memory, by digest."""
        heads = {name: vault.head(run) for name, vault in self.vaults.items()}
        return {name: head.memory for name, head in heads.items() if head is not None}


def hoarding_stage(methods: Methods, sites: Mapping[str, SimSite], cuts: Cuts | None = None, masks: bool = True) -> Stage:
    """Return a federation that forgets nothing that was sent or kept, at the sites neither."""
    stage = Stage(methods, sites, cuts, HoardingParts(), masks=masks)
    for vault in stage.vaults.values():
        vault.hoard()
    return stage


def registered(algorithm: Algorithm) -> Methods:
    """A registry that holds one method made by a test."""
    module = ModuleType(f"method_of_a_test_{next(numbers)}")
    module.__dict__["method"] = algorithm
    sys.modules[module.__name__] = module
    return ((algorithm.name, f"{module.__name__}:method"),)


def ready(agent: Agent, order: Order) -> Head:
    """Let a site do the step of an order, and deliver nothing: what its vault has then."""
    return driven(agent.ready(order), lambda job: agent.pool.run(job, no_tick))
