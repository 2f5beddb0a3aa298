"""Orders that wait at their site for its owner's word, an hour or a day, and a record of them for the owner's commands.

held/RUN.json   the brief of a run that waits, why, and since when; gone once it waits no longer
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from tideline.core.errors import FederationError, Malformed
from tideline.core.run import OrderId, RunId
from tideline.core.settings import Plain
from tideline.engine.model.brief import Brief, brief_in
from tideline.engine.model.orders import Hold, Order
from tideline.engine.model.runs import JOIN
from tideline_agent.vault import FolderVault

log = structlog.get_logger()
HELD = "held"
MOST_HELD = 256  # orders that wait at once, each with its brief; more are offered again


@dataclass(frozen=True)
class HeldRun:
    """A run that waits. since: seconds from 1970."""

    run: RunId
    why: Hold
    since: float
    brief: Brief


class HeldOrders:
    """holds: why an order is to wait, if it is. Any number of threads."""

    def __init__(self, holds: Callable[[Order], Hold | None] = lambda order: None, home: Path | None = None) -> None:
        self._holds, self._home, self._lock = holds, home, threading.Lock()
        self._held: dict[OrderId, tuple[Order, Hold]] = {}
        if home is not None:
            for path in sorted((home / HELD).glob("*.json")):  # of an earlier start: what still waits is offered again
                path.unlink(missing_ok=True)

    def holds(self, order: Order) -> bool:
        """Whether an order waits now; then it is remembered."""
        why = self._holds(order)
        with self._lock:
            if why is None:
                self._forget(order.id)
                return False
            if order.id not in self._held and len(self._held) >= MOST_HELD:
                return True
            known = self._held.get(order.id)
            self._held[order.id] = order, why
        if known is None or known[1] is not why:
            log.warning("order_held", run=order.run, order=order.id, phase=order.phase, waits_for=why.value)
            self._write(order, why)
        return True

    def released(self) -> Iterator[Order]:
        """The orders that need wait no longer."""
        with self._lock:
            known = tuple(self._held.values())
        for order, _ in known:
            if not self.holds(order):
                log.info("order_released", run=order.run, order=order.id)
                yield order

    def reasons(self) -> dict[OrderId, Hold]:
        with self._lock:
            return {order: why for order, (_, why) in self._held.items()}

    def drop(self, gone: Iterable[OrderId]) -> None:
        """Orders that are no longer open."""
        with self._lock:
            for order in gone:
                self._forget(order)

    def _forget(self, order: OrderId) -> None:
        known = self._held.pop(order, None)
        if known is not None and self._home is not None and not any(o.run == known[0].run for o, _ in self._held.values()):
            with contextlib.suppress(Malformed):
                self._path(self._home, known[0].run).unlink(missing_ok=True)

    def _write(self, order: Order, why: Hold) -> None:
        """For the owner's commands; without a record they name the run no less by its id."""
        if self._home is None:
            return
        with contextlib.suppress(OSError, Malformed):
            path = self._path(self._home, order.run)
            path.parent.mkdir(exist_ok=True)
            facts = {"run": order.run, "why": why.value, "since": time.time(), "brief": dict(order.brief)}
            path.with_suffix(".tmp").write_text(json.dumps(facts))
            path.with_suffix(".tmp").replace(path)

    @staticmethod
    def _path(home: Path, run: RunId) -> Path:
        FolderVault(home / HELD).path(run)  # raises Malformed for a name that leads elsewhere
        return home / HELD / f"{run}.json"


def held_runs(home: Path) -> list[HeldRun]:
    """The runs that wait in a home, the oldest first."""
    found = []
    for path in (home / HELD).glob("*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, FederationError):
            raw = json.loads(path.read_text())
            found.append(HeldRun(RunId(raw["run"]), Hold(raw["why"]), float(raw["since"]), brief_at(raw["run"], raw["brief"])))
    return sorted(found, key=lambda each: each.since)


def brief_at(run: str, brief: Mapping[str, Plain]) -> Brief:
    """A brief as it was written down. Raises Malformed, ContractRefused, ConfigRefused."""
    order = Order(
        id=OrderId(""),
        run=RunId(run),
        cursor=JOIN,
        phase="",
        step="",
        round=0,
        files=(),
        seed=0,
        after=0,
        seconds_left=0.0,
        brief={name: value for name, value in brief.items() if name not in ("best", "peers")},  # of its place in the plan
    )
    return brief_in(order)
