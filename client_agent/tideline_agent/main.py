"""The agent process: listens for orders, lives them on threads, beats while steps work. Loads no torch."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import structlog

from tideline import __version__
from tideline.core.errors import FederationError, TooMany, Unreachable
from tideline.core.run import ClientId, OrderId, RunId
from tideline.engine.agent import Agent
from tideline.engine.rows import Order
from tideline.engine.thrift import keep_freed_memory
from tideline_agent.identity import credential, only_one
from tideline_agent.link import GrpcLink
from tideline_agent.policy import read_policy
from tideline_agent.pool import TrainerPool
from tideline_agent.settings import AgentSettings, check
from tideline_agent.vault import FolderVault

log = structlog.get_logger()
BEAT_SECONDS = 3.0
TURN_SECONDS = 5.0  # between tries to enrol where many do


@dataclass
class Working:
    """An order that is being lived, and how far its step is."""

    order: Order
    progress: float = 0.0
    over: threading.Event = field(default_factory=threading.Event)

    def tick(self, share: float) -> None:
        """Note progress."""
        self.progress = share


def run_agent(settings: AgentSettings) -> None:
    """Serve until interrupted. Raises Refused for what is wrong with settings or identity, Unreachable for a silent address."""
    check(settings)
    policy = read_policy(settings.policy)
    keep_freed_memory()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with only_one(settings.folder):
        link = GrpcLink(settings.addresses, settings.name, credential(settings.folder), settings.ca, stop, away)
        vault = FolderVault(settings.folder / "runs")
        pool = TrainerPool(vault.folder, settings.data, settings.methods, settings.device, settings.trainer_idle)
        enrol(link, settings)
        agent = Agent(ClientId(settings.name), link, vault, pool, policy, tell, settings.roles)
        AgentLoop(agent, link, pool, stop, settings.parallel).run()


def away(error: BaseException | None) -> None:
    """Tell the owner of an outage."""
    log.warning("coordinator_away", reason=str(error))


def tell(what: str, order: Order, error: FederationError | None) -> None:
    """Tell the owner what became of an order."""
    note = log.warning if error else log.info
    why = {"reason": str(error)} if error else {}
    note("reply", verdict=what, run=order.run, phase=order.phase, round=order.round, order=order.id, **why)


def enrol(link: GrpcLink, settings: AgentSettings) -> None:
    """Enrol, waiting a while for a coordinator that is still starting, and as long as it takes for one that puts off."""
    roles = tuple(r.value for r in settings.roles)
    until = time.monotonic() + settings.wait
    while True:
        try:
            reply = link.enrol(settings.token, roles)
            log.info("enrolled", name=reply.name, coordinator=settings.coordinator, theirs=reply.version, ours=__version__)
            return
        except TooMany as error:
            if link.stop.is_set():
                raise
            log.warning("enrolment_put_off", reason=str(error))
            link.stop.wait(TURN_SECONDS)
        except Unreachable as error:
            left = until - time.monotonic()
            if left <= 0 or link.stop.is_set():
                raise
            log.warning("coordinator_away", reason=str(error), gives_up_in_seconds=round(left))
            link.stop.wait(min(left, 1.0))


class AgentLoop:
    """Orders in, threads out: one thread per order, at most `parallel` at once."""

    def __init__(self, agent: Agent, link: GrpcLink, pool: TrainerPool, stop: threading.Event, parallel: int) -> None:
        self.agent, self.link, self.pool, self.stop = agent, link, pool, stop
        self._threads = ThreadPoolExecutor(parallel, "order")
        self._working: dict[OrderId, Working] = {}
        self._lock = threading.Lock()
        self._error: FederationError | None = None

    def run(self) -> None:
        """Until `stop`, or until the coordinator no longer knows this agent."""
        threads = [threading.Thread(target=self.safely, args=(each,)) for each in (self.listen, self.beat)]
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
            with self._lock:
                if order.id in self._working or self.stop.is_set():
                    continue
                older = [w for w in self._working.values() if w.order.run == order.run]
                working = self._working[order.id] = Working(order)
                for each in older:
                    self.give_up(each)
            self._threads.submit(self.live, working, older)

    def live(self, working: Working, older: list[Working]) -> None:
        """One order, after those that it supersedes have let go."""
        order = working.order
        for each in older:
            each.over.wait()
        try:
            self.answer(working)
        except Unreachable as error:
            log.warning("order_left", order=order.id, reason=str(error))
        except Exception:
            log.exception("order_lost", order=order.id, run=order.run)
        finally:
            with self._lock:
                del self._working[order.id]
            working.over.set()

    def answer(self, working: Working) -> None:
        """Answer an order. What goes wrong unforeseen is an answer too: a run must not wait for its deadline to hear of it."""
        try:
            self.agent.handle(working.order, working.tick)
        except FederationError:
            raise
        except Exception as error:
            log.exception("order_failed", order=working.order.id, run=working.order.run)
            failed = FederationError(f"The agent failed with {type(error).__name__}", "See the agent's own log at that site")
            self.agent.fail(working.order, failed)

    def beat(self) -> None:
        """Say that this agent lives; give up what is no longer wanted; end idle trainers."""
        while not self.stop.wait(BEAT_SECONDS):
            self.pool.sweep()
            with self._lock:
                progress = {order: w.progress for order, w in self._working.items()}
            try:
                gone = self.link.beat(progress)
            except Unreachable:
                continue  # the stream of orders tells of the outage
            with self._lock:
                for order in gone:
                    if order in self._working:
                        self.give_up(self._working[order])

    def give_up(self, working: Working) -> None:
        """End the step of an order that is no longer open. With the lock held: a newer order's step may not have begun."""
        log.info("order_withdrawn", run=working.order.run, phase=working.order.phase)
        self.pool.cancel(RunId(working.order.run))


__all__ = ["AgentLoop", "run_agent"]
