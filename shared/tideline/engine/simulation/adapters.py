"""In-process adapters of the ports. They take the real path: everything is encoded, decoded and checked as over a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tideline.archive.parts import Intake, MemoryParts, Parts, chunk_size, chunks, commit
from tideline.core.run import ClientId, RunId
from tideline.core.settings import Plain
from tideline.engine.coordinator.agent_service import AgentService
from tideline.engine.model.orders import Arrivals, Files, Order, Receipt, Reply
from tideline.engine.ports.site import Head
from tideline.engine.site.agent import collect


class ManualClock:
    """A clock that the test, or the simulation, advances."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds


MOST_RUNG = 1000  # that a bell keeps


class QuietBell:
    """A bell that keeps what was rung last."""

    def __init__(self) -> None:
        self.rung: list[str] = []

    def ring(self, topic: str) -> None:
        self.rung.append(topic)
        if len(self.rung) > 2 * MOST_RUNG:
            del self.rung[:-MOST_RUNG]


class MemoryVault:
    """A vault in a dictionary, over stores of parts that `open_parts` makes for each run."""

    def __init__(self, open_parts: Callable[[RunId], Parts] = lambda run: MemoryParts()) -> None:
        self._open = open_parts
        self._parts: dict[RunId, Parts] = {}
        self._heads: dict[RunId, Head] = {}
        self.briefs: dict[RunId, Mapping[str, Plain]] = {}

    def parts(self, run: RunId) -> Parts:
        if run not in self._parts:
            self._parts[run] = self._open(run)
        return self._parts[run]

    def head(self, run: RunId) -> Head | None:
        return self._heads.get(run)

    def commit(self, run: RunId, head: Head) -> None:
        self._heads[run] = head

    def collect(self, run: RunId, files: Files) -> None:
        collect(self.parts(run), self._heads.get(run), files)

    def note(self, run: RunId, brief: Mapping[str, Plain]) -> None:
        self.briefs[run] = brief  # mostly the same object for all sites, which nobody changes


class LocalLink:
    """A link whose other end is in this process. Bytes pass in chunks, as they would over a wire, but for those of an order that
    lie in memory. There both ends share what both hold.
    """

    def __init__(self, client: ClientId, agent_service: AgentService) -> None:
        self.client, self.agent_service = client, agent_service

    def fetch(self, order: Order, files: Files, parts: Parts) -> None:
        wanted = [(digest, parts.arrived(digest)) for digest, _ in files]
        theirs = self.agent_service.part_store.parts
        if isinstance(parts, MemoryParts) and isinstance(theirs, MemoryParts):
            self.agent_service.fetch(self.client, order.id, wanted)  # whether it may
            parts.share((digest for digest, _ in files), theirs)
            self.agent_service.sent(order.id, sum(size for _, size in files))
            return
        with Intake(files, parts.upload, commit) as intake:
            for chunk in self.agent_service.fetch(self.client, order.id, wanted):
                intake.write(chunk)
                self.agent_service.sent(order.id, len(chunk))
            intake.end()

    def push(self, order: Order, arrivals: Arrivals, parts: Parts) -> None:
        total = sum(size - offset for _, size, offset in arrivals)
        with self.agent_service.push(self.client, order.id, arrivals) as intake:
            for chunk in chunks(parts, [(digest, offset) for digest, _, offset in arrivals], chunk_size(total)):
                intake.write(chunk)
            self.agent_service.received(self.client, order.id, intake)
        theirs = self.agent_service.part_store.parts
        if isinstance(parts, MemoryParts) and isinstance(theirs, MemoryParts):
            theirs.share((digest for digest, _, _ in arrivals), parts)  # one copy is enough

    def report(self, order: Order, reply: Reply) -> Receipt:
        return self.agent_service.report(self.client, reply)
