"""The same run once more, without any trouble: the same replies are folded, and the ending must be the same."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from tests.engine.toys import stage, start
from tests.engine.witness import root
from tests.engine.world import World, worked
from tests.laws.stage import Stage, ready
from tideline.core.run import ClientId, Digest, RunId
from tideline.engine.model.orders import Files
from tideline.engine.model.runs import RunRow
from tideline.engine.ports.journal import Journal

Names = frozenset[ClientId]


class Ending(NamedTuple):
    """What was asked and folded in each closed round, by digest; the sites' memories; the last state."""

    told: list[Any]
    memories: dict[ClientId, Files]
    state: Digest | None


def ending(world: World, row: RunRow) -> Ending:
    """How a run has ended here."""
    heads = {name: site.vault.head(row.id) for name, site in world.sites.items()}
    memories = {name: head.memory for name, head in heads.items() if head is not None}
    return Ending(told(world.witness.truth, row.id), memories, row.state_digest)


def undisturbed(world: World, row: RunRow, rounds: int) -> Ending:
    """How it ends where nothing goes wrong: these reply and are folded, those have worked as well and are not heard."""
    done = {name: worked(site, row.id) for name, site in world.sites.items()}
    at_work = {cursor: frozenset(name for name in done if cursor in done[name]) for cursor in range(-1, row.cursor + 1)}
    closed = [(frozenset(r.folded), at_work[r.cursor]) for r in world.witness.truth.rounds(row.id)]
    return played(row.spec.seed, rounds, (*closed, (frozenset(), at_work[row.cursor])))


@lru_cache(2000)
def played(seed: int, rounds: int, exchanges: tuple[tuple[Names, Names], ...]) -> Ending:
    """A run on a stage of its own."""
    on = stage()
    run = start(on, rounds=rounds, seed=seed, waiting={"min_replies": 1, "deadline": 1.0})
    for folded, at_work in exchanges:
        exchange(on, folded, at_work)
        on.clock.advance(1.0)
        if folded:
            on.scheduler.turn(run)
    return Ending(told(on.journal, run), on.memories(run), on.row(run).state_digest)


def exchange(on: Stage, folded: Iterable[ClientId], at_work: Iterable[ClientId]) -> None:
    """Some answer; others work as well, and are not heard."""
    for name, agent in on.agents.items():
        for order in on.agent_service.orders(name):
            if name in folded:
                on.handle(order)
            elif name in at_work:
                ready(agent, order)


def told(journal: Journal, run: RunId) -> list[Any]:
    """What was asked and folded in each closed round."""
    found = []
    for closed in journal.rounds(run):
        orders = {o.client: o for o in journal.orders(run, closed.cursor)}
        found.append((closed.cursor, dict(closed.asked), {c: root(orders[c].reply) for c in sorted(closed.folded)}))
    return found
