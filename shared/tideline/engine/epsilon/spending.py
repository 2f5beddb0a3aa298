"""What each site of a private run has spent so far, by what it was asked: for users, and told by nobody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache

from tideline.core.asked.private import Charge, together
from tideline.core.run import ClientId
from tideline.engine.epsilon.renyi import renyi_epsilon
from tideline.engine.model.runs import JOIN, RoundRow, RunRow
from tideline.engine.model.totals import AnyOrder

Exchange = str  # phase/step


def exchange(phase: str, step: str) -> Exchange:
    """The name of an exchange, by which a run's charges are listed."""
    return f"{phase}/{step}"


def epsilons(run: RunRow, rounds: Iterable[RoundRow], now_open: Iterable[AnyOrder] = ()) -> dict[ClientId, float]:
    """The epsilon of each site of the roster at the run's delta, from above; empty for runs that protect no rows.

    rounds: all that are closed. now_open: the orders of the open one. A round that was asked again counts once.
    """
    if run.spec.privacy is None or not run.spec.charges:
        return {}
    asked: dict[ClientId, Counter[Exchange]] = {client: Counter() for client in run.roster}
    open_now = {(order.cursor, order.client) for order in now_open}
    for cursor, client in (*((each.cursor, client) for each in rounds for client in each.asked), *open_now):
        if cursor != JOIN and client in asked:
            fact = run.fact(cursor)
            asked[client][exchange(fact.phase, fact.step)] += 1
    most = run.spec.epsilon
    found = {client: epsilon_of(charges_of(run.spec.charges, counts), run.spec.privacy.delta) for client, counts in asked.items()}
    return found if most is None else {client: min(each, most) for client, each in found.items()}


def charges_of(charges: Mapping[Exchange, tuple[Charge, ...]], counts: Mapping[Exchange, int]) -> tuple[Charge, ...]:
    return together(
        Charge(each.noise, each.rate, each.times * times) for name, times in counts.items() for each in charges.get(name, ())
    )


@lru_cache(maxsize=4096)
def epsilon_of(charges: tuple[Charge, ...], delta: float) -> float:
    return renyi_epsilon(charges, delta)
