"""Coordinators, sites and people around one journal and one store of parts. Everything is real but time, lines and luck."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.engine.fates import CALM, Fate, Life, Places, Task, current
from tests.engine.toys import METHODS, ROSTER
from tests.engine.witness import WatchedCompute, Witness, Witnessed
from tests.enrolling import enrol
from tests.laws.stage import ROLES, Crash, WatchedLink, WatchedVault, Wire
from tests.synthetic import experiment, sites
from tideline.archive.folder import FolderParts
from tideline.archive.parts import Intake, MemoryParts, Parts
from tideline.core.errors import StepFailed, Unreachable
from tideline.core.run import ClientId, RunId
from tideline.engine.compute.inline import InlineCompute
from tideline.engine.compute.step_runner import StepRunner
from tideline.engine.coordinator.agent_service import AgentService
from tideline.engine.coordinator.part_store import PartStore
from tideline.engine.coordinator.run_service import RunService, joins
from tideline.engine.coordinator.scheduler import Leases, Scheduler
from tideline.engine.model.access.projects import DEFAULT
from tideline.engine.model.experiment import read_experiment
from tideline.engine.model.orders import Arrivals, Files, Order, Receipt, Reply
from tideline.engine.ports.journal import Journal
from tideline.engine.ports.site import Done, Job
from tideline.engine.simulation.adapters import ManualClock, QuietBell
from tideline.engine.simulation.journal import MemoryJournal
from tideline.engine.site.agent import Agent
from tideline_server.scheduling import SchedulerLoop
from tideline_server.store import SqlJournal

LEASE = 15.0
LEASING = ("look", "turn", "stop")  # activities that take the lock of a coordinator's leases


class Gate:
    """A coordinator's way to one of its ports: it may be cut before a call, after it, and while the coordinator is frozen."""

    def __init__(self, at: Coordinator, port: Any) -> None:
        self._at, self._life, self._port = at, at.life, port

    def __getattr__(self, name: str) -> Callable[..., Any]:
        real = getattr(self._port, name)

        def call(*args: Any, **more: Any) -> Any:
            what = self._pass(name)
            made = real(*args, **more)
            if what == "twice":
                return real(*args, **more)
            if what == "lost":
                raise Unreachable(f"The answer of {name} was lost")
            return made

        return call

    def _pass(self, place: str) -> str:
        task = current()
        what = task.meet(place) if task else ""
        if what == "crash":
            self._life.alive = False
        if not self._life.alive:
            raise ended(task, self._life)
        if what == "cut" or self._at.away:
            raise Unreachable(f"The store is away: {place}")
        return what


def ended(task: Task | None, life: Life) -> BaseException:
    """What a dead process is to its own activity, and to others."""
    return Crash() if task is not None and task.life is life else Unreachable(f"{life.name} does not answer")


class Coordinator:
    """One of several. It may be killed or stopped at any moment, and built again under its name."""

    def __init__(self, name: str, world: World) -> None:
        self.name, self.world, self.clock = name, world, ManualClock(1000.0)
        self.stored: SqlJournal | None = None
        self.build()

    def build(self) -> None:
        """The process starts."""
        self.life, self.away, self.stopped = Life(self.name), False, False
        real, parts, bell = self.world.journal(), self.world.parts(), QuietBell()
        self.close()
        self.stored = real if isinstance(real, SqlJournal) else None
        journal: Any = Gate(self, Witnessed(real, self, self.world.witness))
        compute: Any = Gate(self, WatchedCompute(InlineCompute(parts, METHODS), self, self.world.witness))
        self.part_store = PartStore(parts, journal, self.clock)
        self.agent_service = AgentService(journal, self.part_store, compute, bell, self.clock)
        self.run_service = RunService(journal, compute, bell, self.clock)
        self.leases = Leases(journal, self.clock, self.name, LEASE)
        scheduler = Scheduler(journal, self.part_store, compute, bell, self.clock)
        self.scheduler_loop = SchedulerLoop(scheduler, self.leases, bell)  # type: ignore[arg-type]

    @property
    def up(self) -> bool:
        """Whether it serves."""
        return self.life.alive and not self.stopped

    def close(self) -> None:
        """Let go of the store."""
        if self.stored is not None:
            self.stored.close()


class Link(WatchedLink):
    """A link over which a process that has died takes nothing more in."""

    def halves(self, intake: Intake, chunk: memoryview, *place: object) -> None:
        task = current()
        if task is not None and not task.life.alive and place[0] == "fetch":
            raise Crash
        super().halves(intake, chunk, *place)


class Line:
    """An agent's link: to one coordinator and, where it does not answer, to the next."""

    def __init__(self, client: ClientId, world: World) -> None:
        self.client, self.world, self.at = client, world, 0
        self.posted: list[Reply] = []

    def now(self) -> Coordinator:
        """The coordinator that is asked next."""
        found = self.world.coordinators[self.at % len(self.world.coordinators)]
        if not found.up:
            raise Unreachable(f"{found.name} is down")
        return found

    def link(self) -> WatchedLink:
        """A link to it."""
        return Link(self.client, self.now().agent_service, Places(), Wire())

    def insist(self, call: Callable[[], Any]) -> Any:
        """Ask until one answers; the last one's error if none does."""
        for _ in self.world.coordinators[1:]:
            try:
                return call()
            except Unreachable:
                self.at += 1
        return call()

    def orders(self) -> tuple[Order, ...]:
        """What this client is asked."""
        return self.insist(lambda: self.now().agent_service.orders(self.client))  # type: ignore[no-any-return]

    def fetch(self, order: Order, files: Files, parts: Parts) -> None:
        self.insist(lambda: self.link().fetch(order, tuple(f for f in files if not parts.has(f[0])), parts))

    def push(self, order: Order, arrivals: Arrivals, parts: Parts) -> None:
        try:
            self.link().push(order, arrivals, parts)
        except Unreachable:
            self.at += 1
            raise

    def report(self, order: Order, reply: Reply) -> Receipt:
        self.posted.append(reply)
        receipt: Receipt = self.insist(lambda: self.link().report(order, reply))
        self.world.witness.acknowledged(order.id, receipt.verdict)
        return receipt


class Pool:
    """Steps that are run, or fail because the activity is to."""

    def __init__(self, step_runner: StepRunner) -> None:
        self._stepper = step_runner

    def run(self, job: Job, tick: Callable[[float], None]) -> Done:
        task = current()
        if task is not None and task.fate.what == "fail":
            raise StepFailed("The step had no luck")
        return self._stepper.run(job, tick)


class Site:
    """An agent's process over its vault. Orders that it has been offered stay known, as if they came over and over again."""

    def __init__(self, name: ClientId, world: World) -> None:
        self.name, self.world, self.vault = name, world, WatchedVault(Places())
        self.line, self.offered = Line(name, world), list[Order]()
        self.build()

    def build(self) -> None:
        """The process starts."""
        self.life = Life(self.name)
        step_runner = StepRunner(METHODS, self.vault.parts, sites()[self.name].open_site_data)
        self.agent = Agent(self.name, self.line, self.vault, Pool(step_runner))

    def orders(self) -> tuple[Order, ...]:
        """What it is offered now, if a coordinator answers."""
        try:
            found = self.line.orders()
        except Unreachable:
            return ()
        self.offered += [order for order in found if order.id not in {o.id for o in self.offered}]
        return found


class World:
    """One journal and one store of parts: in memory, or in a folder where each coordinator opens them for itself."""

    def __init__(self, folder: Path | None, coordinators: int) -> None:
        self.folder, self._memory, self._parts = folder, MemoryJournal(), MemoryParts()
        self.frozen: list[Task] = []
        self.runs: list[RunId] = []
        self.witness = Witness(self.journal())
        self.coordinators = [Coordinator(f"coordinator-{at}", self) for at in range(coordinators)]
        self.sites = {ClientId(name): Site(ClientId(name), self) for name in ROSTER}
        run_service = self.coordinators[0].run_service
        for name in self.sites:
            enrol(run_service, run_service.invite(name, {}, 60.0), name, ROLES)

    def journal(self) -> Journal:
        """The journal, opened once more."""
        return self._memory if self.folder is None else SqlJournal(self.folder / "journal.db")

    def parts(self) -> Parts:
        """The store of parts, opened once more."""
        return self._parts if self.folder is None else FolderParts(self.folder / "parts", durable=False)

    def start(self, name: str, **more: Any) -> None:
        """A run of the toy, under a name that is the same every time."""
        run_service = self.coordinators[0].run_service
        given = read_experiment(experiment("toy", ROSTER, **more))
        row = run_service.draft(RunId(name), given, run_service.roster(given, DEFAULT))
        run_service.journal.create([row], joins(row, run_service.clock.now()))
        self.runs.append(row.id)

    def play(self, life: Life, kind: str, work: Callable[[], object], fate: Fate = CALM, run: Any = None) -> None:
        """Begin an activity, unless the process is busy with such a one."""
        if life.alive and self.free(life, kind, run):
            self.go(Task(life, kind, work, run), fate)

    def free(self, life: Life, kind: str, run: Any) -> bool:
        """Whether an activity may begin: one of its kind for a run, and none that would wait for the lock of a frozen one."""
        mine = [task for task in self.frozen if task.life is life]
        if kind in LEASING and any("locked" in task.notes for task in mine):
            return False
        return kind == "person" or not any((task.kind, task.subject) == (kind, run) for task in mine)

    def go(self, task: Task, fate: Fate = CALM) -> None:
        """Let an activity go on to its end, or until it freezes."""
        task.notes.pop("locked", None)
        task.go(fate)
        self.frozen = [each for each in self.frozen if each is not task] + ([] if task.over else [task])
        if not task.over and task.kind in LEASING and self.of(task).leases._lock.locked():
            task.notes["locked"] = True
        for each in {id(t.life): t.life for t in self.frozen if not t.life.alive}.values():
            self.bury(each)

    def of(self, task: Task) -> Coordinator:
        """Whose activity it is."""
        return next(c for c in self.coordinators if c.name == task.life.name)

    def wake(self, task: Task, fate: Fate = CALM) -> None:
        """Let a frozen activity go on, unless it would wait for one that is frozen."""
        if "locked" in task.notes or task.kind not in LEASING or self.free(task.life, "stop", None):
            self.go(task, fate)

    def conduct(self, at: Coordinator) -> None:
        """One look, and a turn of each run that it finds to be its own."""
        held: list[RunId] = []
        self.play(at.life, "look", lambda: held.extend(sorted(at.leases.poll())))
        for run in held:
            newest = self.witness.holders.get((run, self.witness.tokens[run]))
            self.witness.expect(newest is at.life, "R2", f"{at.name} thinks that it holds {run}")
            self.turn(at, run)

    def turn(self, at: Coordinator, run: RunId, fate: Fate = CALM) -> None:
        """A coordinator takes a turn on a run, if it can have its lease. Where nothing goes wrong, nothing is left undone."""
        taken: list[object] = []
        self.play(at.life, "turn", lambda: taken.append(at.scheduler_loop.turn(run)), fate, run)
        if taken and fate == CALM and not at.away:
            self.witness.turned(run, at.life, at.clock.now())

    def answer(self, site: Site, order: Order, fate: Fate = CALM) -> None:
        """A site lives an order. One at a time of a run."""
        self.play(site.life, "order", lambda: site.agent.handle(order), fate, order.run)

    def live(self, site: Site) -> None:
        """A site lives every order that it is offered."""
        for order in site.orders():
            self.answer(site, order)

    def sweep(self) -> None:
        """A while in which nothing goes wrong: every site answers, every coordinator looks."""
        for site in self.sites.values():
            self.live(site)
        for each in self.coordinators:
            if each.up:
                self.conduct(each)

    def mend(self) -> None:
        """Whoever is down is started, whoever is frozen goes on, the journal answers and the clocks are in step."""
        for at in self.coordinators:
            at.away = False
        while self.frozen:
            self.wake(next(t for t in self.frozen if "locked" in t.notes or self.free(t.life, "stop", None)))
        latest = max(at.clock.now() for at in self.coordinators)
        for at in self.coordinators:
            at.clock.advance(latest - at.clock.now())
        self.recover()

    def recover(self) -> None:
        """Build again what is down. Everybody finds the journal."""
        for at in self.coordinators:
            at.away = False
            if not at.up:
                self.bury(at.life)
                at.build()
        for site in self.sites.values():
            if not site.life.alive:
                site.build()

    def bury(self, life: Life) -> None:
        """A process ends, with all that it was about. What an agent has sent may still arrive."""
        life.alive = False
        while mine := [t for t in self.frozen if t.life is life and t.kind != "order"]:
            self.frozen.remove(mine[0])
            self.go(mine[0])

    def close(self) -> None:
        """Let go of everything."""
        for each in (*self.coordinators, *self.sites.values()):
            each.life.alive = False
        while self.frozen:
            self.go(self.frozen[0])
        for at in self.coordinators:
            at.close()
        if self.folder is not None:
            self.witness.truth.close()  # type: ignore[attr-defined]


def worked(site: Site, run: RunId) -> list[int]:
    """The cursors of a run at which a site has committed its memory, in the order in which it did."""
    runs = {order.id: order.run for order in site.offered}
    return [head.cursor for head in site.vault.past if runs[head.order] == run]
