"""Who is a source and which links there are, by successive convex approximation: a chain of geometric programs.

Wang, Hosseinalipour, Brinton, "Multi-Source to Multi-Target Decentralized Federated Domain Adaptation", IEEE TCCN 2024
(arXiv 2304.12422), algorithm 2. It is a local method; `link_problem.exact` has the optimum of the same problem.

    problem -> geometric program around a point -> its solution -> next point -> ... -> whole plan

The step in the middle is the only one that needs a solver of cone programs. Everything is a function of the input alone, so that
equal input gives equal bytes on one machine with one version of the solvers.
"""

from __future__ import annotations

import itertools
import math
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tideline.numerics.links.bounds import Floats
from tideline.numerics.links.geometric import TIGHTENED, Layout, Point, Program, delta_link, layout, moved, program, start
from tideline.numerics.links.link_problem import Plan, Problem, rounded

ITERATIONS, TOLERANCE = 50, 1e-5
VIOLATION = 1e-3  # of a constraint, up to which an inaccurate solution is taken
CLEAN = 1e-6  # up to which no other solver is asked
RISE = 1e-4  # relative, of the objective, up to which an inaccurate solution is taken
# Interior points, then the same with shorter steps in three ways; where all get stuck, operator splitting, which is slower.
# Programs are around their points, so that scaling them again is not the first to be tried.
UNSCALED = {"equilibrate_enable": False}
SOLVERS: tuple[tuple[str, Mapping[str, float]], ...] = (
    ("CLARABEL", UNSCALED),
    ("CLARABEL", {**UNSCALED, "max_step_fraction": 0.95, "linesearch_backtrack_step": 0.5}),
    ("CLARABEL", {**UNSCALED, "max_step_fraction": 0.8}),
    ("CLARABEL", {"max_step_fraction": 0.9, "linesearch_backtrack_step": 0.5}),
    ("SCS", {"eps_abs": 1e-7, "eps_rel": 1e-7, "max_iters": 5000}),
)


@dataclass(frozen=True, eq=False)
class Step:
    """A point, the objective of the program that it solves, and whether that was solved to the solver's usual precision."""

    point: Point
    objective: float
    accurate: bool


def sca(
    problem: Problem,
    begin: Point | None = None,
    *,
    iterations: int = ITERATIONS,
    tolerance: float = TOLERANCE,
    continuation: bool = True,
    time_limit: float | None = None,
) -> Plan:
    """Algorithm 2 from `begin`, or psi = 0.5 and equal weights, and its rounding. `links.polished` leaves one source a target.

    It ends when the objective changes by less than `tolerance` relatively, and delta_link no longer moves, or after so many
    iterations. continuation: delta_link, what a target may send, begins loose and tightens, without which a source at first
    is one for ever. The objectives never rise once it is tight. The weights of a target are spread over its sources the more,
    the earlier it ends: alpha_ij falls as T_ij^-n after n iterations where energy weighs nothing.

    time_limit, in seconds: it ends with the first iteration that is done later, with the status `limit`, and its plan then
    depends on the machine.
    """
    until = math.inf if time_limit is None else time.monotonic() + time_limit
    at, steps_done = layout(problem), list[Step]()
    first = start(problem) if begin is None else begin
    for step in itertools.islice(steps(problem, at, first, continuation), iterations):
        steps_done.append(step)
        if converged(steps_done, tolerance, TIGHTENED if continuation else 0):
            return finished(problem, first, steps_done, "converged")
        if time.monotonic() >= until:
            return finished(problem, first, steps_done, "limit")
    return finished(problem, first, steps_done, "iterations" if len(steps_done) == iterations else "failed")


def steps(problem: Problem, at: Layout, point: Point, continuation: bool = True) -> Iterator[Step]:
    """One point after the other; it ends where no solver gets further."""
    for m in itertools.count(0 if continuation else TIGHTENED):
        step = advanced(problem, at, point, delta_link(m, at.n))
        if step is None:
            return
        yield step
        point = step.point


def advanced(problem: Problem, at: Layout, point: Point, delta: float) -> Step | None:
    """The next point; None where no solver found one that keeps the constraints to 1e-3."""
    of = program(problem, at, point, delta)
    found = solved(of)
    return None if found is None else Step(moved(at, point, found[0]), value(of, found[0]), found[1])


def solved(of: Program) -> tuple[Floats, bool] | None:
    """A solution w of a program, and whether it is accurate; None where there is none. Where nothing costs, the point stays.

    The first solver's that is accurate, which is what it calls optimal, or keeps the constraints to 1e-6; else the one that
    misses them least, if by less than 1e-3 and without a rise of the objective from a point that is itself allowed.
    """
    point = np.zeros(of.A.shape[1])
    if not len(of.f):
        return point, True
    most = (1 + RISE) * value(of, point) if violation(of, point) < VIOLATION else np.inf
    best, least = None, VIOLATION
    for solver, options in SOLVERS:
        w, status = asked(of, solver, options)
        missed = np.inf if w is None else violation(of, w)
        accurate = status == "optimal" or missed < CLEAN
        if w is not None and missed < least and (accurate or value(of, w) <= most):
            best, least = (w, accurate), missed
        if best is not None and best[1]:
            break
    return best


def asked(of: Program, solver: str, options: Mapping[str, float]) -> tuple[Floats | None, str]:
    # Imported here, since it takes a second to load and few runs need it.
    import cvxpy

    cp: Any = cvxpy  # its types say little
    w = cp.Variable(of.A.shape[1])
    constraints = [of.M @ cp.exp(of.G @ w + of.g) <= 1, of.A @ w <= of.b]
    convex = cp.Problem(cp.Minimize(cp.sum(cp.exp(of.F @ w + of.f))), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it warns of is the status, which is checked
        try:
            convex.solve(solver=solver, **options)
        except cp.error.SolverError:
            return None, "failed"
    return w.value, str(convex.status)


def value(of: Program, w: Floats) -> float:
    """The objective at w, as it was before it was divided."""
    with np.errstate(over="ignore"):
        return float(np.exp(of.F @ w + of.f + of.scale).sum())


def violation(of: Program, w: Floats) -> float:
    """By how much w misses the worst constraint; inf where it is not finite."""
    if not bool(np.isfinite(w).all()):
        return np.inf
    with np.errstate(over="ignore"):
        sums = of.M @ np.exp(of.G @ w + of.g) - 1
    return float(max((of.A @ w - of.b).max(), sums.max(initial=-np.inf)))


def converged(steps_done: list[Step], tolerance: float, tightened: int) -> bool:
    """Whether delta_link has its last value and the objective has stopped to change."""
    if len(steps_done) < max(tightened + 2, 2):
        return False
    before, now = steps_done[-2].objective, steps_done[-1].objective
    return abs(now - before) <= tolerance * abs(before)


def finished(problem: Problem, first: Point, steps_done: list[Step], status: str) -> Plan:
    last = steps_done[-1].point if steps_done else first
    plan = rounded(problem, last.psi, last.alpha)
    flags = plan.flags if all(step.accurate for step in steps_done) else (*plan.flags, "inaccurate")
    objectives = tuple(step.objective for step in steps_done)
    return replace(plan, status=status, flags=flags, iterations=len(steps_done), objectives=objectives)
