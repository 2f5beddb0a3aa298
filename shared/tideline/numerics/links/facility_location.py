"""Which facilities to open: uncapacitated facility location to proven optimality, by branch and bound on Lagrangian bounds.

    min_{O not empty}  sum_{i in O} f_i + sum_j min_{i in O} c_ij

Relaxing that each customer j is served, at a price v_j, leaves facilities that decide alone (Cornuejols, Fisher, Nemhauser,
Management Science 23, 1977): rho_i = f_i - sum_j (v_j - c_ij)+, and for every v

    L(v) = sum_j v_j + sum_i min(0, rho_i)  is a lower bound; rho_i alone for a facility that is fixed open, 0 for one fixed shut.

Prices rise to their best by Polyak's steps towards the cost of the best plan (Held, Wolfe, Crowder, Mathematical Programming
6, 1974). Where costs have no structure this proves in seconds what general solvers of integer programs do not in minutes.

Shapes: n facilities, N customers; f (n,) and c (n, N) not negative; c may be inf, where a facility cannot serve a customer.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from tideline.numerics.links.bounds import Floats, Ints

FREE, OPEN, SHUT = 0, 1, -1
PROVEN = 1e-9  # relative distance of bound and plan that counts as none
TIE = 1e-12  # relative difference of plans that counts as none
ROOT_STEPS, NODE_STEPS, PATIENCE = 400, 15, 5  # a node starts from its parent's prices and needs few
FEWER, SMALLEST = 0.6, 5e-3  # by which steps shrink where the bound stalls, and where they end
STARTS = 4  # of local search at random


@dataclass(frozen=True, eq=False)
class Opened:
    """Facilities that are open, ascending; their cost; a lower bound on any plan's; nodes searched; whether it is proven."""

    facilities: Ints
    cost: float
    bound: float
    nodes: int
    proven: bool


@dataclass(frozen=True, eq=False)
class Bound:
    """L(v) at the best prices v (N,) found, with rho (n,), zero where shut, and the share (n,) of late steps with each open."""

    value: float
    v: Floats
    rho: Floats
    share: Floats


def cheapest(f: Floats, c: Floats, *, time_limit: float | None = None, node_limit: int | None = None) -> Opened:
    """The best plan for f (n,) and c (n, N), the same one each time unless time_limit, in seconds, cuts the search short.

    Of plans that cost the same and differ in one facility, the one with the smaller index. Raises ValueError where a customer
    can be served by no facility.
    """
    if not bool(np.isfinite(c).any(0).all()):
        raise ValueError(f"No facility can serve customer {int(np.argmin(np.isfinite(c).any(0)))}")
    over = stopping(time_limit, node_limit)
    best = improved(f, c, np.arange(len(f)))
    root = bounded(f, c, np.zeros(len(f), np.int8), first_prices(c), cost_of(f, c, best), ROOT_STEPS)
    for start in starts(root, len(f)):
        if closed(root.value, cost_of(f, c, best)):
            break
        best = min(best, improved(f, c, start), key=lambda each: cost_of(f, c, each))
    best, bound, nodes = searched(f, c, best, root, over)
    best = exchanged(f, c, best)
    cost = cost_of(f, c, best)
    proven = closed(bound, cost)
    return Opened(facilities=best, cost=cost, bound=cost if proven else bound, nodes=nodes, proven=proven)


def cost_of(f: Floats, c: Floats, facilities: Ints) -> float:
    """What a plan costs; inf for none, or one that leaves a customer alone."""
    return float(f[facilities].sum() + c[facilities].min(0).sum()) if len(facilities) else math.inf


def closed(bound: float, cost: float) -> bool:
    return bound >= cost - PROVEN * abs(cost)


def stopping(seconds: float | None, nodes: int | None) -> Callable[[int], bool]:
    """Whether a search after so many nodes is to end."""
    end = None if seconds is None else time.monotonic() + seconds
    return lambda seen: (nodes is not None and seen >= nodes) or (end is not None and time.monotonic() >= end)


def first_prices(c: Floats) -> Floats:
    """Each customer's third-cheapest offer, or its cheapest where there are not as many."""
    third = np.sort(c, 0)[min(2, len(c) - 1)]
    prices: Floats = np.where(np.isfinite(third), third, c.min(0))
    return prices


def starts(root: Bound, n: int) -> Iterator[Ints]:
    """Where local search begins: what the bound has open, its cheapest facility, and draws of fixed seed."""
    yield np.flatnonzero(root.share > 0.5)
    yield np.array([np.argmin(root.rho)])
    rng = np.random.default_rng(0)
    for _ in range(STARTS):
        yield np.sort(rng.choice(n, int(rng.integers(1, n + 1)), replace=False))


def bounded(f: Floats, c: Floats, state: npt.NDArray[np.int8], v: Floats, cost: float, steps: int) -> Bound:
    """The best L(v) within so many steps from prices v, where some facilities are fixed; inf where no plan is left below them."""
    active = np.flatnonzero(state != SHUT)
    f, c, fixed = f[active], c[active], state[active] == OPEN
    nothing = np.zeros(len(state))
    if not len(active) or not bool(np.isfinite(c).any(0).all()):
        return Bound(math.inf, v, nothing, nothing)
    best, best_v, best_rho, share, length, stalled = -math.inf, v, f, np.zeros(len(f)), 1.0, 0
    gain = np.empty_like(c)
    for _ in range(steps):
        np.maximum(np.subtract(v, c, out=gain), 0, out=gain)
        rho = f - gain.sum(1)
        on = fixed | (rho < 0)
        value = float(v.sum() + rho[on].sum())
        if value > best:
            best, best_v, best_rho, stalled = value, v, rho, 0
        else:
            stalled += 1
        if stalled == PATIENCE:
            length, stalled, v = length * FEWER, 0, best_v
        served = 1.0 - (gain[on] > 0).sum(0)
        share = 0.9 * share + 0.1 * on
        if closed(best, cost) or length < SMALLEST or not bool(served.any()):
            break
        v = v + length * (cost - value) / float(served @ served) * served
    rho, shares = nothing.copy(), nothing.copy()
    rho[active], shares[active] = best_rho, share
    return Bound(best, best_v, rho, shares)


def searched(f: Floats, c: Floats, best: Ints, root: Bound, over: Callable[[int], bool]) -> tuple[Ints, float, int]:
    """The best plan, a bound on all, and nodes searched: the node with the lowest bound is always the next."""
    cost, nodes = cost_of(f, c, best), 0
    heap = [(root.value, 0, np.zeros(len(f), np.int8), root)]
    while heap and not closed(heap[0][0], cost) and not over(nodes):
        bound, _, state, at = heapq.heappop(heap)
        # Facilities are fixed whose other decision would cost more than the best plan: |rho_i| above what is left.
        fixed = (state == FREE) & (bound + np.abs(at.rho) >= cost)
        state = np.where(fixed, np.where(at.rho > 0, SHUT, OPEN), state).astype(np.int8)
        if not bool((state == FREE).any()):
            left = np.flatnonzero(state == OPEN)
            if cost_of(f, c, left) < cost:
                best, cost = left, cost_of(f, c, left)
            continue
        for child in branches(state, at):
            nodes += 1
            found = bounded(f, c, child, at.v, cost, NODE_STEPS)
            heapq.heappush(heap, (max(found.value, bound), nodes, child, found))
    return best, min(cost, heap[0][0]) if heap else cost, nodes


def branches(state: npt.NDArray[np.int8], at: Bound) -> Iterator[npt.NDArray[np.int8]]:
    """The least decided free facility, open and shut."""
    i = int(np.argmin(np.where(state == FREE, np.abs(at.share - 0.5), np.inf)))
    for decided in (OPEN, SHUT):
        child = state.copy()
        child[i] = decided
        yield child


def improved(f: Floats, c: Floats, start: Ints) -> Ints:
    """Local search: of opening, shutting and exchanging one facility the best, until none lowers the cost."""
    here = start if math.isfinite(cost_of(f, c, start)) else np.arange(len(f))
    while True:
        change, leaves, comes = best_move(f, c, here)
        if not change < -TIE * cost_of(f, c, here):
            return here
        here = moved(here, leaves, comes)


def best_move(f: Floats, c: Floats, here: Ints) -> tuple[float, int, int]:
    """The least change of the cost; which facility shuts for it, and which opens, -1 for none. Opening is first of equals."""
    out, first = np.setdiff1d(np.arange(len(f)), here), itemgetter(0)
    least, c_out = c[here].min(0), c[out]
    best = lowest(f[out] - np.maximum(least - c_out, 0).sum(1), -1, out)
    for at, i in enumerate(here):
        rest = without(c, here, at)
        if len(here) > 1:
            best = min(best, (float((rest - least).sum() - f[i]), int(i), -1), key=first)
        best = min(best, lowest(f[out] - f[i] + (np.minimum(rest, c_out) - least).sum(1), int(i), out), key=first)
    return best


def lowest(changes: Floats, leaves: int, out: Ints) -> tuple[float, int, int]:
    """The move of the smallest change among those that open one of `out`; a change of inf for none."""
    if not len(out):
        return math.inf, leaves, -1
    return float(changes.min()), leaves, int(out[changes.argmin()])


def moved(here: Ints, leaves: int, comes: int) -> Ints:
    """The plan after a move, ascending."""
    left = here[here != leaves]
    return left if comes < 0 else np.sort(np.append(left, comes))


def without(c: Floats, here: Ints, at: int) -> Floats:
    """Each customer's cheapest service (N,) when the open facility at that place shuts; inf where no other is open."""
    rest: Floats = c[np.delete(here, at)].min(0, initial=np.inf)
    return rest


def exchanged(f: Floats, c: Floats, here: Ints) -> Ints:
    """The plan with facilities replaced by ones of smaller index where that costs the same."""
    while (found := next(smaller(f, c, here), None)) is not None:
        here = found
    return here


def smaller(f: Floats, c: Floats, here: Ints) -> Iterator[Ints]:
    """Plans of the same cost with a smaller index in place of an open facility."""
    cost = cost_of(f, c, here)
    out = np.setdiff1d(np.arange(len(f)), here)
    for at, i in enumerate(here):
        below = out[out < i]
        sums = f[np.delete(here, at)].sum() + f[below] + np.minimum(without(c, here, at), c[below]).sum(1)
        same = np.flatnonzero(sums <= cost * (1 + TIE))
        if len(same):
            yield moved(here, int(i), int(below[same[0]]))
