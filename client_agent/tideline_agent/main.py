"""The agent process: listens for orders, lives them on threads, beats while steps work. Loads no torch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from tideline import __version__
from tideline.core.algorithm import REGISTRY
from tideline.core.errors import FederationError, IdentityRefused, TooMany, Unreachable
from tideline.core.notes import OTHERWISE
from tideline.core.run import ClientId, OrderId, RunId
from tideline.core.tokens import read_token
from tideline.engine.audit.log import Tip
from tideline.engine.model.accounts import ShownLedger
from tideline.engine.model.orders import Order
from tideline.engine.peers.peer_keys import PeerKeys
from tideline.engine.peers.sealing import ciphers, plaintexts
from tideline.engine.process.private import for_the_owner_alone
from tideline.engine.process.resources import retain_freed_memory
from tideline.engine.process.stopping import stopping
from tideline.engine.site.agent import Agent
from tideline.engine.site.rules import OnDelete
from tideline.engine.site.summing import notebook_in
from tideline.learning.sites.named import place_in
from tideline_agent.discovery import find, introduced
from tideline_agent.home import identity, marks
from tideline_agent.home.budget.owning import owner_of
from tideline_agent.home.budget.releasing import Releasing
from tideline_agent.home.budget.shown import standings
from tideline_agent.home.disclosing.policy_and_data import Disclosing
from tideline_agent.home.held import HeldOrders
from tideline_agent.home.identity import Keys, only_one
from tideline_agent.home.ledger import FileLedger, fits, show
from tideline_agent.home.obeyed import obey
from tideline_agent.home.pins import FolderPins
from tideline_agent.home.retention.cleaner import Cleaner
from tideline_agent.home.retention.deleted import Inquiry, NoInquiry
from tideline_agent.home.runs import SUMS, at_work
from tideline_agent.home.seen import SeenFile
from tideline_agent.link import EnrolReply, GrpcLink
from tideline_agent.machine.device import device_name
from tideline_agent.metrics import AgentMetrics, CountedLink, CountedPool
from tideline_agent.notes import NoteQueue, Witness
from tideline_agent.page.work import Work
from tideline_agent.policy_file import SitePolicy, policy_digest, policy_in, policy_text
from tideline_agent.pool import TrainerPool, pool_of
from tideline_agent.reach import Reach
from tideline_agent.settings import AgentSettings, Switch, check, page_place
from tideline_agent.validity import Validity
from tideline_agent.vault import FolderVault

log = structlog.get_logger()
T = TypeVar("T")
BEAT_SECONDS = 3.0
IDLE_BEATS = 5  # of which an agent without work gives one: its stream of orders says that it lives
# Orders that are open here at once, and parts that they name: what a coordinator tells must fit into memory.
MOST_OPEN, MOST_NAMED = 64, 1 << 20
DOUBLED = (
    "Another agent shows the keys of this home, or this home is older than it was. If there is another one, stop it. Then an "
    "operator of the coordinator lets this session go on: tideline clients approve NAME --session SESSION"
)
LEDGER_DIFFERS = (
    "The ledger does not have the entry that was last reported to the coordinator: look who has had access to this home, and "
    "bring the ledger back; or go on without it: tideline site ledger accept --home DIR, then start the agent again"
)
TURN_SECONDS = 5.0  # between tries to enrol where many do


@dataclass
class Working:
    """An order that is being lived, and how far its step is."""

    order: Order
    progress: float = 0.0
    over: threading.Event = field(default_factory=threading.Event)
    given_up: threading.Event = field(default_factory=threading.Event)
    since: float = field(default_factory=time.time)

    def tick(self, share: float) -> None:
        """Note progress. What is no number is none."""
        self.progress = max(0.0, min(share, 1.0))


def run_agent(settings: AgentSettings) -> None:
    """Serve until interrupted. Raises Refused for what is wrong with settings or identity, Unreachable for a silent address."""
    check(settings)
    text = policy_text(settings.policy)
    policy = policy_in(settings.policy, text)
    for_the_owner_alone()
    retain_freed_memory()
    stop = threading.Event()
    with stopping(stop.set), only_one(settings.folder):
        mark(settings.folder)
        found = find(settings)
        keys = identity.keys(settings.folder)
        endpoints = introduced(found, lambda fetch: patiently(fetch, settings.wait, stop))
        link = GrpcLink(
            endpoints=endpoints,
            name=settings.name,
            keys=keys,
            stop=stop,
            away=away,
            seen=SeenFile(settings.folder),
            session=str(identity.new_session(settings.folder)),
            bulk=settings.bulk is Switch.ON,
        )
        noted = settings.notes and policy.notes  # beside replies
        link.device = device_name(settings.device) if noted else ""
        reach = Reach(settings, found.memo, link)
        reach.begin(stop)
        vault = FolderVault(settings.folder / "runs")
        notes = NoteQueue(link.send_notes, stop, noted)
        validity = Validity(lambda: link.endpoints, stop, lambda: link.ahead)
        witness = Witness(notes.put, settings.folder, warned=validity.notes)
        pool = pool_of(settings, vault, witness)
        if settings.networks or settings.methods != REGISTRY or place_in(settings.data):  # the owner's code: wrong now, not later
            checked(pool)
        if not admission(link, settings, keys, reach.note):
            return
        notes.start()
        validity.start()
        metrics, ledger = AgentMetrics(__version__), FileLedger(settings.folder)
        ledger.record("started", version=__version__, policy=policy_digest(obey(settings.folder, settings.policy, text)))
        link.ledger = partial(shown, settings.folder)
        metrics.show_budgets(partial(standings, settings.folder, ledger))
        discloses = Disclosing(policy, settings.data, settings.folder)
        agent = Agent(
            name=ClientId(settings.name),
            link=CountedLink(link, metrics),
            vault=vault,
            pool=CountedPool(pool, metrics),
            owner=owner_of(policy, ledger, settings.roles, pool.private_methods, discloses),
            log=order_log(witness, metrics),
            peer_keys=PeerKeys(partial(identity.own, settings.folder), FolderPins(settings.folder, met)),
            hours=noted,
            secret=partial(identity.noise_secret, settings.folder),
            notebook=notebook_in(settings.folder / SUMS),
        )
        with metrics.serve(settings.metrics), ExitStack() as stack:
            loop = AgentLoop(
                agent=agent,
                link=link,
                pool=pool,
                stop=stop,
                parallel=settings.parallel,
                rotation=Rotation(link, settings.folder, settings.rotate),
                witness=witness,
                heard=metrics.heard,
                at_work=partial(at_work, settings.folder),
                held=HeldOrders(agent.holds, settings.folder),
                inquiry=cleaning(settings, policy, stop),
            )
            if (place := page_place(settings)) is not None:
                page_link = stack.enter_context(served_page(settings, place, loop.works))
                log.info("page_served", link=page_link, valid="once, for ten minutes")
            loop.run()


def served_page(
    settings: AgentSettings, place: tuple[str, int], works: Callable[[], Sequence[Work]]
) -> AbstractContextManager[str]:
    """The owner's page. What serves it is loaded where it is wanted alone."""
    from tideline_agent.page.serving import serve_page

    return serve_page(settings, place, works)


def mark(home: Path) -> None:
    """Note in the home what this version writes there. Raises IdentityRefused for a home that a newer one has written."""
    marks.check(home)
    if (content := marks.content(home)) is not None:
        identity.write(home / marks.FILE, content)


def cleaning(settings: AgentSettings, policy: SitePolicy, stop: threading.Event) -> Inquiry:
    """Clean the home from now on as its owner says, and what asks for runs that were deleted at the coordinator."""
    cleaner, rules = Cleaner(settings.folder, settings.methods), [policy.rules, *(own.rules for own in policy.projects.values())]
    said = {each.retention.on_delete for each in rules}
    if any(each.cleans for each in rules):
        threading.Thread(target=cleaner.daily, args=(stop,), name="retention", daemon=True).start()
    if said == {OnDelete.RETAIN}:
        return NoInquiry(settings.folder)
    return Inquiry(settings.folder, cleaner.clean if OnDelete.FOLLOW in said else shown_to_owner)


def shown_to_owner() -> None:
    log.info("runs_deleted_elsewhere", todo="tideline site clean --dry-run shows them; nothing was deleted here")


def checked(pool: TrainerPool) -> None:
    """Have a trainer load the owner's methods, networks and function. Raises ConfigRefused, and then no trainer is left."""
    try:
        pool.check()
    except BaseException:
        pool.close()
        raise


def away(error: BaseException | None) -> None:
    log.warning("coordinator_away", reason=str(error))


def shown(folder: Path, reported: Tip) -> ShownLedger:
    """The ledger as it is shown to the coordinator, beside what was reported to that; where it does not fit, the log says so."""
    found = show(folder, reported)
    if not fits(found, reported):
        log.warning("ledger_differs", reported=reported.seq, hash=reported.hash, entries=found.last.seq, reason=LEDGER_DIFFERS)
    return found


def met(name: str, fingerprint: str, before: str) -> None:
    if before:
        log.warning("peer_rekeyed", peer=name, fingerprint=fingerprint, before=before)
    else:
        log.info("peer_met", peer=name, fingerprint=fingerprint)


def order_log(witness: Witness, metrics: AgentMetrics) -> Callable[[str, Order, FederationError | None], None]:
    """Logs what becomes of an order, counts those that failed, and sends notes of it."""

    def log_order(what: str, order: Order, error: FederationError | None) -> None:
        if what == "failed" and error is not None:
            metrics.failures.labels(error.kind).inc()
        if what in OTHERWISE:
            log.warning(what, run=order.run, phase=order.phase, round=order.round)
        elif what not in ("begun", "worked"):
            write = log.warning if error else log.info
            why = {"reason": str(error)} if error else {}
            write("reply", verdict=what, run=order.run, phase=order.phase, round=order.round, order=order.id, **why)
        witness.saw(what, order, error)

    return log_order


def admission(link: GrpcLink, settings: AgentSettings, keys: Keys, known: Callable[[], object] = lambda: None) -> bool:
    """Enrol, and wait for approval; False if stopped before. known: called once the coordinator knows this agent."""
    reply = enrol(link, settings, keys)
    known()
    if reply.warning:
        log.warning("coordinator_warns", warning=reply.warning[:1000])
    if reply.standing == "pending":
        log.warning("approval_awaited", name=settings.name, fingerprint=keys.fingerprint, coordinator=settings.coordinator)
    if reply.standing == "doubled":
        log.warning("session_doubled", name=settings.name, session=link.session, reason=DOUBLED)
    while reply.standing in ("pending", "doubled"):
        if link.stop.wait(TURN_SECONDS):
            return False
        reply = enrol(link, settings, keys)
    log.info(
        "enrolled", name=reply.name, theirs=reply.version, ours=__version__, fingerprint=keys.fingerprint, session=link.session
    )
    return True


def enrol(link: GrpcLink, settings: AgentSettings, keys: Keys) -> EnrolReply:
    """Enrol with the home's keys, or with those of a rotation that was cut before the home knew that it was done."""
    roles, folder = tuple(r.value for r in settings.roles), settings.folder
    secret = read_token(settings.token).secret
    try:
        return patiently(lambda: link.enrol(secret, roles), settings.wait, link.stop)
    except IdentityRefused as error:
        fresh = identity.unfinished(folder)
        if fresh is None:
            raise
        link.use(fresh)
        try:
            reply = patiently(lambda: link.enrol(secret, roles), settings.wait, link.stop)
        except IdentityRefused:
            raise error from None
        identity.take_over(folder)
        return reply


def patiently(ask: Callable[[], T], wait: float, stop: threading.Event) -> T:
    """An answer, waiting a while for a coordinator that is still starting, and as long as it takes for one that puts off."""
    until = time.monotonic() + wait
    while True:
        try:
            return ask()
        except TooMany as error:
            if stop.is_set():
                raise
            log.warning("enrolment_put_off", reason=str(error))
            stop.wait(TURN_SECONDS)
        except Unreachable as error:
            left = until - time.monotonic()
            if left <= 0 or stop.is_set():
                raise
            log.warning("coordinator_away", reason=str(error), gives_up_in_seconds=round(left))
            stop.wait(min(left, 1.0))


@dataclass
class Rotation:
    """New keys for an agent that is asked for them: by its coordinator, by its owner, or by a rotation that was cut."""

    link: GrpcLink
    folder: Path
    wanted: bool = False

    def __post_init__(self) -> None:
        self.wanted = self.wanted or identity.unfinished(self.folder) is not None

    def turn(self, asked: bool) -> None:
        """Make them and hand them in, if that is wanted; what an outage cuts is tried again with the next sign of life."""
        if not (asked or self.wanted):
            return
        self.wanted = True
        fresh = identity.next_keys(self.folder)
        self.link.rotate(fresh, lambda: identity.take_over(self.folder))
        self.wanted = False
        log.info("keys_rotated", name=self.link.name, fingerprint=fresh.fingerprint)


@dataclass
class AgentLoop:
    """Orders in, threads out: one thread per order, at most `parallel` at once."""

    agent: Agent
    link: GrpcLink
    pool: TrainerPool
    stop: threading.Event
    parallel: int
    rotation: Rotation
    witness: Witness
    heard: Callable[[], None] = lambda: None
    at_work: Callable[[RunId], AbstractContextManager[None]] = lambda run: nullcontext()
    held: HeldOrders = field(default_factory=HeldOrders)
    inquiry: Inquiry = field(default_factory=lambda: NoInquiry(Path()))

    def __post_init__(self) -> None:
        self.releasing = Releasing(self.agent.owner.ledger)
        self._threads = ThreadPoolExecutor(self.parallel, "order")
        self._working: dict[OrderId, Working] = {}
        self._lock, self._full = threading.Lock(), False
        self._error: FederationError | None = None

    def run(self) -> None:
        """Until `stop`, or until the coordinator no longer knows this agent."""
        threads = [threading.Thread(target=self.safely, args=(each,)) for each in (self.listen, self.send_heartbeats)]
        for thread in threads:
            thread.start()
        self.stop.wait()
        self.pool.close()
        self.link.close()
        for thread in threads:
            thread.join()
        self._threads.shutdown(cancel_futures=True)
        if self._error is not None:
            raise self._error

    def safely(self, loop: Callable[[], None]) -> None:
        """A loop whose end ends the agent, with its reason."""
        try:
            loop()
        except FederationError as error:
            if not self.stop.is_set():
                self._error = error
        except Exception as error:
            log.exception("agent_failed")
            self._error = FederationError(f"The agent failed with {type(error).__name__}", "See its log, and start it again")
        finally:
            self.stop.set()

    def listen(self) -> None:
        """Take orders; the same one may come any number of times."""
        for order in self.link.orders():
            self.heard()
            if not self.held.holds(order):
                self.begin(order)

    def begin(self, order: Order) -> None:
        """Have an order lived, unless it is already, or there is no room."""
        with self._lock:
            if order.id in self._working or self.stop.is_set() or not self.room(order):
                return
            older = [w for w in self._working.values() if w.order.run == order.run]
            working = self._working[order.id] = Working(order)
            for each in older:
                self.give_up(each)
        self._threads.submit(self.live, working, older)

    def room(self, order: Order) -> bool:
        """Whether one more order may be open here, with the lock held. One for which there is no room is offered again."""
        orders = (order, *(w.order for w in self._working.values()))
        # An order brings its message's parts, sealed files of peers, and the values that they hold.
        named = sum(len(o.files) + len(ciphers(o.sealed)) + len(plaintexts(o.sealed)) for o in orders)
        full = bool(self._working) and (len(self._working) >= MOST_OPEN or named > MOST_NAMED)
        if full and not self._full:
            log.warning("orders_put_off", open=len(self._working), reason="more orders than an agent has open at once")
        self._full = full
        return not full

    def live(self, working: Working, older: list[Working]) -> None:
        """One order, after those that it supersedes have let go."""
        order = working.order
        place = {"phase": order.phase, "round": order.round}
        structlog.contextvars.bind_contextvars(client=self.link.name, run=order.run, order=order.id, **place)
        for each in older:
            each.over.wait()
        try:
            # Orders that came at once were let through before any of them was written down, and counted.
            if not working.given_up.is_set() and not self.held.holds(order):
                self.answer(working)
        except Unreachable as error:
            log.warning("order_left", order=order.id, reason=str(error))
        except Exception:
            log.exception("order_lost", order=order.id, run=order.run)
        finally:
            structlog.contextvars.clear_contextvars()
            with self._lock:
                del self._working[order.id]
                self.link.forget(order.id)
            working.over.set()

    def answer(self, working: Working) -> None:
        """Answer an order. What goes wrong unforeseen is an answer too: a run must not wait for its deadline to hear of it."""
        try:
            with self.at_work(working.order.run):
                self.agent.handle(working.order, working.tick)
        except FederationError:
            raise
        except Exception as error:
            log.exception("order_failed", order=working.order.id, run=working.order.run)
            name = type(error).__name__
            failed = FederationError(f"The agent failed with {name}", "See the agent's own log at that site", error=name)
            self.agent.fail(working.order, failed)

    def works(self) -> list[Work]:
        """What is lived now, for the owner's page."""
        with self._lock:
            working = tuple(self._working.values())
        return [
            Work(run=o.run, phase=o.phase, step=o.step, round=o.round, progress=w.progress, since=w.since)
            for w in working
            for o in (w.order,)
        ]

    def send_heartbeats(self) -> None:
        """Say that this agent lives; give up what is no longer wanted; end idle trainers."""
        idle = 0
        while not self.stop.wait(BEAT_SECONDS):
            self.pool.sweep()
            with self._lock:
                working = tuple(self._working.values())
            self.witness.check_progress((w.order, w.progress) for w in working)
            for released in self.held.released():
                self.begin(released)
            progress, held = {w.order.id: w.progress for w in working}, self.held.reasons()
            idle = 0 if progress or held else idle + 1
            if idle % IDLE_BEATS:
                continue
            try:
                beaten = self.link.beat(progress, held, self.releasing.asks(self.pool.quiet()), self.inquiry.due())
                self.heard()
                self.rotation.turn(beaten.rotate)
            except Unreachable:
                continue  # the stream of orders tells of the outage
            self.pool.end(beaten.over)
            self.releasing.heard(beaten.over)
            self.inquiry.heard(beaten.deleted)
            self.held.drop(beaten.gone)
            with self._lock:
                for order in beaten.gone:
                    if order in self._working:
                        self.give_up(self._working[order])

    def give_up(self, working: Working) -> None:
        """End what is done for an order that is no longer open. With the lock held: a newer order's step may not have begun."""
        self.pool.cancel(RunId(working.order.run))  # each time: what was still coming may have become a step since
        if working.given_up.is_set():
            return
        working.given_up.set()
        self.link.give_up(working.order.id)
        log.info("order_withdrawn", run=working.order.run, phase=working.order.phase)
        self.witness.withdrawn(working.order)
