"""Small sites that adapt a source model: one with labels, and four without, of two domains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tests.algorithms.compare import memory_of
from tests.algorithms.remembered import run_player
from tests.laws.stage import Stage, hoarding_stage
from tests.synthetic import Rows, blobs
from tideline.algorithms import METHODS
from tideline.algorithms.source_free.family import Mine
from tideline.archive.checks import LAX
from tideline.archive.reader import decode, decode_order
from tideline.core.algorithm import plan_of, resolve
from tideline.core.asked.world import World
from tideline.core.run import Role
from tideline.engine.model.orders import Order
from tideline.engine.simulation.federation import SimSite

S = TypeVar("S")
DOMAINS = {"anna": 0, "bert": 1, "carl": 1, "dora": 3, "emil": 3}
ROSTER = {"anna": "source", "bert": "target", "carl": "target", "dora": "target", "emil": "target"}
TRUE = {"bert": "near", "carl": "near", "dora": "far", "emil": "far"}


def site(name: str, n: int = 41, further: int = 0, change: Any = lambda data: data) -> SimSite:
    """A site of the roster; those of one domain have other rows. further: steps of domain that it lies beyond its own."""
    seed, domain = 2 * sorted(DOMAINS).index(name), DOMAINS[name] + further

    def opened(world: World, role: Role) -> Rows:
        return Rows(change(blobs(n, domain, seed, world.inputs)), blobs(60, domain, seed + 1, world.inputs))

    return SimSite(opened)


def federation(**changed: SimSite) -> Stage:
    """The sites; none of their parts is forgotten."""
    return hoarding_stage(METHODS, {name: site(name) for name in ROSTER} | changed)


played = run_player(federation, roster=ROSTER)


def away(stage: Stage, who: str, *places: tuple[str, int]) -> Callable[[list[Order]], list[Order]]:
    """Everybody answers but one site, in some rounds: (phase, round)."""

    def there(order: Order) -> bool:
        row = stage.journal.order(order.id)
        assert row is not None
        return row.client != who or (order.phase, order.round) not in places

    return lambda orders: [order for order in orders if there(order)]


def mine(stage: Stage, run: Any, name: str) -> Mine:
    """What a site keeps at the end."""
    return memory_of(stage, run, name, Mine)


WAITING = {"waiting": {"min_replies": 1, "deadline": 60.0}}


def states(stage: Stage, run: Any, kind: type[S]) -> list[S]:
    """The coordinator's states, in order."""
    return [decode(kind, each.state[0][0], stage.parts, LAX) for each in stage.journal.rounds(run) if each.state]


def sent(stage: Stage, run: Any, phase: str) -> dict[tuple[str, int], tuple[Any, Any]]:
    """What was asked and answered in a phase: (client, round) -> (order, reply, or None)."""
    row = stage.row(run)
    algorithm = resolve(METHODS, row.method)
    plan = plan_of(algorithm, algorithm.configure(dict(row.spec.config)), row.spec.scoring)
    found = {}
    for order in stage.journal.orders(run):
        if order.cursor >= 0 and row.plan[order.cursor].phase == phase:
            step = plan[order.cursor].step
            assert step is not None
            asked, rules = decode_order(step.takes, order.files[0][0], stage.parts, LAX)
            reply = decode(step.gives, order.reply[0][0], stage.parts, rules) if order.reply else None
            found[order.client, row.plan[order.cursor].round] = (asked, reply)
    return found
