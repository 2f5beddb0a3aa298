"""Who is a source, who a target, and which source sends its model to which target: the problem, its optimum, and rounding.

Wang, Hosseinalipour, Brinton, "Multi-Source to Multi-Target Decentralized Federated Domain Adaptation", IEEE TCCN 2024
(arXiv 2304.12422), problem (P), equations 11-18:

    min  phi_S sum_i (1 - psi_i) S_i + phi_T sum_j psi_j sum_i (1 - psi_i) alpha_ij T_ij + phi_E sum_ij E_ij
    s.t. sum_i alpha_ij = psi_j,  0 <= alpha <= 1,  psi in {0, 1},  psi_i alpha_ij = 0

For whole psi it is a facility location problem: T is linear and E concave in alpha, so that one source is best for each target.
`exact` solves that; `tideline.numerics.links.signomial` has the paper's successive convex approximation. Both give a `Plan`.

Shapes: N devices; psi (N,), 0 for a source and 1 for a target; alpha, T, K (N, N), where i sends and j receives. Diagonals are
no links and are ignored. A link exists where the sender has labels and K is finite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from tideline.numerics.links.bounds import Bools, Floats, Ints, Unfit, array, refuse
from tideline.numerics.links.facility_location import cheapest

EnergyMode = Literal["ratio", "linear"]
EPS_E = 1e-3
LINK = 1e-3  # a weight above which a link counts as one
HALF, SOURCE_REST, TARGET_REST = 0.5, 0.06, 0.025  # of rounding, as published
SMALLEST_T = 1e-6  # where a logarithm of T is taken


@dataclass(frozen=True)
class Phi:
    """Weights of sources' errors, targets' errors and energy in the objective. Raises Unfit unless finite and not negative."""

    source: float = 1.0
    target: float = 0.5
    energy: float = 1.0

    def __post_init__(self) -> None:
        for name in ("source", "target", "energy"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise Unfit(f"phi.{name}", f"{getattr(self, name)} is not a finite number of at least 0")


@dataclass(frozen=True, eq=False)
class Problem:
    """S (N,) and T (N, N), bounds of numerics.links.bounds; K (N, N) joules a transfer, inf where i cannot reach j; pinned
    (N,), who must be a target.

    energy_mode: ratio, E = K alpha / (alpha + eps_e) (eq. 14); linear, E = K alpha. Raises Unfit, with the devices at fault,
    for wrong shapes, numbers that are negative or not finite, where nobody can be a source, and for a target that nobody reaches.
    """

    S: Floats
    T: Floats
    K: Floats
    phi: Phi
    pinned: Bools
    energy_mode: EnergyMode = "ratio"
    eps_e: float = EPS_E

    def __post_init__(self) -> None:
        N = np.size(self.S)
        if N < 2:
            raise Unfit("S", f"links want at least two devices; there are {N}")
        S, pinned = array("S", self.S, (N,)), flags("pinned", self.pinned, N)
        K = reach(self.K, N)
        given = np.array(self.T, np.float64)
        if given.shape == K.shape:
            given[np.isinf(K)] = 0  # it cannot have been measured
        T = array("T", given, (N, N), diagonal=False)
        for name, made in (("S", S), ("T", T), ("K", K), ("pinned", pinned)):
            made.setflags(write=False)
            object.__setattr__(self, name, made)
        self._check()

    def _check(self) -> None:
        if self.energy_mode not in ("ratio", "linear"):
            raise Unfit("energy_mode", f"{self.energy_mode!r} is neither ratio nor linear")
        if not (math.isfinite(self.eps_e) and self.eps_e > 0):
            raise Unfit("eps_e", f"{self.eps_e} is not a positive number")
        if bool(self.pinned.all()):
            raise Unfit("pinned", "every device has to be a target, so that none can be a source", range(len(self.S)))
        lonely = np.flatnonzero(self.pinned & ~self.usable.any(0))
        if len(lonely):
            raise Unfit("K", f"no device with labels can reach device {int(lonely[0])}, which has to be a target", lonely)

    @cached_property
    def usable(self) -> Bools:
        """(N, N): where i may send to j."""
        return ~np.eye(len(self.S), dtype=bool) & ~self.pinned[:, None] & np.isfinite(self.K)

    @cached_property
    def opening(self) -> Floats:
        """f (N,): what a source costs."""
        return self.phi.source * self.S

    @cached_property
    def service(self) -> Floats:
        """c (N, N): what it costs that j gets its whole model from i; inf where it cannot."""
        whole = 1.0 if self.energy_mode == "linear" else 1 / (1 + self.eps_e)
        joules = np.where(self.usable, self.K, 0)
        return np.where(self.usable, self.phi.target * self.T + self.phi.energy * whole * joules, np.inf)


@dataclass(frozen=True, eq=False)
class Plan:
    """Sources (psi = 0), targets (psi = 1) and weights: columns of targets sum to one, all else is zero.

    objective of (P); bound, below which no plan is, and gap = (objective - bound) / objective, where they are known; energy in
    joules and links, of weights above 1e-3; iterations with the objective of each, or nodes of the exact search. status: proven,
    limit (a search was cut short), converged, iterations (no more were allowed), failed (no solver got further), given. flags:
    `inaccurate`, a step was not solved to the usual precision; `unsettled`, a source still received when the iteration ended.
    """

    psi: Ints
    alpha: Floats
    objective: float
    energy: float
    links: int
    status: str = "given"
    bound: float | None = None
    gap: float | None = None
    iterations: int = 0
    objectives: tuple[float, ...] = ()
    flags: tuple[str, ...] = ()


def plan(problem: Problem, psi: npt.ArrayLike, alpha: Floats) -> Plan:
    """A plan of these, measured."""
    alpha = np.asarray(alpha, np.float64)
    whole = np.asarray(psi, np.int64)
    return Plan(
        psi=whole,
        alpha=alpha,
        objective=objective(problem, whole, alpha),
        energy=energy(problem, alpha),
        links=int((alpha > LINK).sum()),
    )


def objective(problem: Problem, psi: npt.ArrayLike, alpha: Floats) -> float:
    """Eq. 11 at psi (N,) and alpha (N, N), whole or relaxed. Raises Unfit for a weight where there is no link."""
    target = np.asarray(psi, np.float64)
    alpha = array("alpha", alpha, problem.T.shape, diagonal=False)
    refuse("alpha", "a weight where there is no link", (alpha > 0) & ~problem.usable)
    sources = float(((1 - target) * problem.opening).sum())
    targets = float(((1 - target)[:, None] * target[None, :] * alpha * problem.T).sum())
    return sources + problem.phi.target * targets + problem.phi.energy * float(smooth_energy(problem, alpha).sum())


def smooth_energy(problem: Problem, alpha: Floats) -> Floats:
    """E (N, N) joules, eq. 14, or its linear form."""
    K = np.where(problem.usable, problem.K, 0)
    return K * alpha if problem.energy_mode == "linear" else K * alpha / (alpha + problem.eps_e)


def energy(problem: Problem, alpha: Floats) -> float:
    """Joules of all transfers: K over links of weight above 1e-3."""
    return float(problem.K[(alpha > LINK) & problem.usable].sum())


def normalised(energies: Sequence[float]) -> tuple[float, ...]:
    """Energies in percent of the largest; zeros where all are zero."""
    most = max(energies, default=0.0)
    return tuple(100 * each / most if most > 0 else 0.0 for each in energies)


def exact(problem: Problem, *, time_limit: float | None = None, node_limit: int | None = None) -> Plan:
    """The optimum of (P), one source for each target. Ties go to the smallest index.

    time_limit in seconds or node_limit of the search; where one cuts it short, `bound` and `gap` say what may be left, and with
    time_limit the plan depends on the machine.
    """
    able = np.flatnonzero(~problem.pinned)
    c = problem.service[able]
    c[np.arange(len(able)), able] = 0  # a source needs no sender
    found = cheapest(problem.opening[able], c, time_limit=time_limit, node_limit=node_limit)
    psi = np.ones(len(problem.S), np.int64)
    psi[able[found.facilities]] = 0
    made = single(problem, psi)
    bound = made.objective if found.proven else min(found.bound, made.objective)
    gap = (made.objective - bound) / made.objective if made.objective > 0 else 0.0
    status = "proven" if found.proven else "limit"
    return replace(made, status=status, bound=bound, gap=gap, iterations=found.nodes)


def single(problem: Problem, psi: npt.ArrayLike) -> Plan:
    """These sources and targets, each target with its cheapest source alone; ties go to the smallest index. Raises Unfit."""
    c = from_sources(problem, psi)
    target = np.flatnonzero(np.asarray(psi) == 1)
    alpha = np.zeros(problem.T.shape)
    alpha[c[:, target].argmin(0), target] = 1
    return plan(problem, psi, alpha)


def power(problem: Problem, psi: npt.ArrayLike, n: float) -> Plan:
    """These sources and targets, with alpha_ij in proportion to T_ij^-n over the sources that reach j.

    It is what n iterations of successive approximation make of equal weights where energy weighs nothing. n = 0: equal weights.
    Raises Unfit as `single`, and for an n that is negative or not finite.
    """
    if not (math.isfinite(n) and n >= 0):
        raise Unfit("n", f"{n} is not a finite number of at least 0")
    reached = np.isfinite(from_sources(problem, psi))
    T = np.where(reached, np.maximum(problem.T, SMALLEST_T), np.inf)
    target = np.asarray(psi) == 1
    least = np.where(np.isfinite(T.min(0)), T.min(0), 1)
    logs = np.log(np.where(reached, T / least, 1))
    alpha = np.where(reached & target, np.exp(-n * logs), 0)
    return plan(problem, psi, alpha / np.where(target, alpha.sum(0), 1))


def polished(problem: Problem, given: Plan) -> Plan:
    """A plan's sources and targets, each target with its cheapest source; what is known of how it was found stays."""
    made = single(problem, given.psi)
    return replace(given, alpha=made.alpha, objective=made.objective, energy=made.energy, links=made.links)


def rounded(problem: Problem, psi: Floats, alpha: Floats) -> Plan:
    """Relaxed psi (N,) and alpha (N, N) made whole (algorithm 2's last lines).

    psi at the nearer of 0 and 1, weights up to 0.025 dropped, then `mended`. Flag `unsettled` where a source had a weight of
    more than 0.06, which is dropped.
    """
    made = mended(problem, np.where(problem.pinned | (np.asarray(psi) >= HALF), 1, 0), np.where(alpha > TARGET_REST, alpha, 0))
    rest = bool((np.where(problem.usable, alpha, 0)[:, made.psi == 0] > SOURCE_REST).any())
    return replace(made, flags=("unsettled",) if rest else ())


def mended(problem: Problem, psi: npt.ArrayLike, alpha: Floats) -> Plan:
    """A plan of psi (N,) and what weights (N, N) are left, such as when devices are gone.

    Sources are added as in `repaired`. Weights of no link are dropped and a target's others divided by their sum, or, where none
    is left, its cheapest source takes all.
    """
    whole = repaired(problem, psi)
    target = whole == 1
    weights = np.where(target & (from_sources(problem, whole) < np.inf), alpha, 0)
    weights = np.where(target & (weights.sum(0) == 0), single(problem, whole).alpha, weights)
    return plan(problem, whole, weights / np.where(target, weights.sum(0), 1))


def repaired(problem: Problem, psi: npt.ArrayLike) -> Ints:
    """psi (N,) with sources added until each target is reached: the device that leaves the fewest alone, and of these the one
    with the least f_i + sum_j c_ij over those that it serves; ties go to the smallest index."""
    made = np.array(psi, np.int64)
    while True:
        alone = (made == 1) & ~problem.usable[made == 0].any(0)
        if not bool(alone.any()):
            return made
        helps = problem.usable & alone
        left = alone.sum() - helps.sum(1) - alone
        cost = problem.opening + np.where(helps, problem.service, 0).sum(1)
        candidates = np.flatnonzero((made == 1) & ~problem.pinned)
        made[candidates[np.lexsort((cost[candidates], left[candidates]))[0]]] = 0


def from_sources(problem: Problem, psi: npt.ArrayLike) -> Floats:
    """c (N, N), inf where i is no source. Raises Unfit where psi is no plan's: not 0 and 1, a pinned source, a target alone."""
    whole = np.asarray(psi)
    if whole.shape != problem.S.shape or not bool(np.isin(whole, (0, 1)).all()):
        raise Unfit("psi", f"{len(problem.S)} numbers, each 0 or 1, were expected")
    refuse("psi", "a device that has to be a target is a source", problem.pinned & (whole == 0))
    c = np.where((whole == 0)[:, None], problem.service, np.inf)
    refuse("psi", "a target that no source reaches", (whole == 1) & ~np.isfinite(c).any(0))
    return c


def reach(K: npt.ArrayLike, N: int) -> Floats:
    """K (N, N), which may be inf; its diagonal is zero. Raises Unfit for NaN, negative numbers, or another shape."""
    made = np.array(K, np.float64)
    finite = array("K", np.where(np.isposinf(made), 0, made), (N, N), diagonal=False)
    return np.where(np.isposinf(made) & ~np.eye(N, dtype=bool), np.inf, finite)


def flags(name: str, given: npt.ArrayLike, N: int) -> Bools:
    """A copy (N,) of truth values. Raises Unfit for anything else."""
    made = np.array(given)
    if made.shape != (N,) or made.dtype != np.bool_:
        raise Unfit(name, f"{N} truth values were expected")
    return made
