"""One convex step of successive approximation of the link problem: a point to a geometric program around it, and back.

Wang, Hosseinalipour, Brinton, "Multi-Source to Multi-Target Decentralized Federated Domain Adaptation", IEEE TCCN 2024
(arXiv 2304.12422), equations 56-80. The tool: for positive monomials u_k, a point z0 and theta_k = u_k(z0) / sum_l u_l(z0),

    sum_k u_k(z) >= prod_k (u_k(z) / theta_k)^theta_k,   with equality at z0,

and the right side is valid, if not tight, for any other theta of sum one, so that shares may be clipped.

The unknowns are logarithms: u = ln psi of devices that may be sources, v = ln alpha of links, and s, one for each source. The
paper has variables chi_S_i >= (1 - psi_i) S_i and chi_T_ij >= (1 - psi_i) alpha_ij T_ij. Both bounds are 1 <= psi_i + chi / (its
scale), with one theta where they began alike, so that both ratios stay one number: s_i, ln of at least 1 - psi_i. Pinned devices
have psi = 1.

Left out, since nothing measurable hangs on them: chi_C of eq. 13's slack, which is eps_C alone; the disagreement of sources at a
target; and the cap of 1 + 1e-6 on a column's sum beside that slack, which would halve the step that a column can take.

Shapes: N devices, n of them not pinned, m links.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tideline.numerics.links.bounds import Floats, Ints
from tideline.numerics.links.link_problem import SMALLEST_T, Problem

if TYPE_CHECKING:
    from scipy.sparse import csr_array  # type: ignore[import-untyped,unused-ignore]

EPS_C = 1e-2
DELTA_LINK = 1e-3
SMALLEST_PSI, OVER, SMALLEST = 1e-6, 1e-6, 1e-9
SMALLEST_SHARE = 1e-6  # of theta
SMALLEST_REST = 1e-3  # of theta of a source's shares: a coefficient of the program, which solvers want not too small
LOOSEST, TIGHTER, TIGHTENED = 0.3, 0.6, 15  # delta_link at the start, its factor, and the steps that have it
FEW = 10  # sources up to which it starts so


@dataclass(frozen=True, eq=False)
class Point:
    """psi (N,) and alpha (N, N), relaxed, zero where there is no link; rest (N,): the bound on 1 - psi that came with them."""

    psi: Floats
    alpha: Floats
    rest: Floats


@dataclass(frozen=True, eq=False)
class Layout:
    """Where unknowns stand: u (n), v (m) and s (n), in this order.

    devices (n,) that may be sources, senders (m,) and receivers (m,) of links; place (N,) of a device's u, -1 for a pinned one.
    v and s are the columns of these unknowns.
    """

    devices: Ints
    senders: Ints
    receivers: Ints
    place: Ints

    @property
    def n(self) -> int:
        return len(self.devices)

    @property
    def m(self) -> int:
        return len(self.senders)

    @property
    def v(self) -> Ints:
        return self.n + np.arange(self.m)

    @property
    def s(self) -> Ints:
        return self.n + self.m + np.arange(self.n)

    @property
    def unknowns(self) -> int:
        return 2 * self.n + self.m


@dataclass(frozen=True, eq=False)
class Program:
    """min sum exp(F w + f)  s.t.  sum over each group, a row of M, of exp(G w + g) <= 1,  A w <= b.

    w is the step from the point that the program was made around, which is w = 0: so coefficients are of one size, and solvers of
    cones need no scaling of their own. scale: ln of what the objective was divided by, its value at the point.
    """

    F: csr_array
    f: Floats
    G: csr_array
    g: Floats
    M: csr_array
    A: csr_array
    b: Floats
    scale: float


def layout(problem: Problem) -> Layout:
    """The unknowns of a problem; links that do not exist have none."""
    senders, receivers = np.nonzero(problem.usable)
    devices = np.flatnonzero(~problem.pinned)
    place = np.full(len(problem.S), -1)
    place[devices] = np.arange(len(devices))
    return Layout(devices, senders, receivers, place)


def start(problem: Problem) -> Point:
    """psi = 0.5, or 1 where pinned; each column in equal parts."""
    psi = np.where(problem.pinned, 1.0, 0.5)
    senders = np.maximum(problem.usable.sum(0), 1)
    return Point(psi, np.where(problem.usable, psi / senders, 0), 1 - psi + SMALLEST)


def around(problem: Problem, psi: Floats, alpha: Floats) -> Point:
    """The feasible point next to given psi (N,) and alpha (N, N), whole or relaxed: each weight at its floor at least."""
    psi = np.where(problem.pinned, 1, np.clip(psi, SMALLEST_PSI, 1))
    low = floor(problem)
    given = np.where(problem.usable, alpha, 0)
    above = np.maximum(psi - low * problem.usable.sum(0), 0)
    sums = given.sum(0)
    share = np.where(sums > 0, given / np.where(sums > 0, sums, 1), 1 / np.maximum(problem.usable.sum(0), 1))
    return Point(psi, np.where(problem.usable, low + above * share, 0), 1 - psi + SMALLEST)


def floor(problem: Problem) -> Floats:
    """The smallest alpha of each column (N,): eps_C / 2 over the number of senders, so that all of them fit into the slack."""
    low: Floats = EPS_C / (2 * np.maximum(problem.usable.sum(0), 1))
    return low


def delta_link(m: int, sources: int, final: float = DELTA_LINK) -> float:
    """What psi_i alpha_ij may be at most in step m, where so many devices may be sources: it begins loose and tightens.

    The more of them beyond ten, the tighter it begins: else all become targets that send to each other before it binds.
    """
    return max(final, LOOSEST * min(1, FEW / sources) * TIGHTER**m) if m < TIGHTENED else final


def shares(at: Floats, of: Floats, smallest: float = SMALLEST_SHARE) -> Floats:
    """theta = at / of, clipped to [smallest, 1 - smallest]."""
    return np.clip(at / of, smallest, 1 - smallest)


def entropy(theta: Floats) -> Floats:
    """H = -theta ln theta - (1 - theta) ln(1 - theta)."""
    H: Floats = -theta * np.log(theta) - (1 - theta) * np.log1p(-theta)
    return H


def program(problem: Problem, at: Layout, point: Point, delta: float) -> Program:
    """The convex program around a point, with delta_link."""
    F, f = objective_terms(problem, at, point)
    G, g, M = column_sums(at, point)
    A, b = inequalities(problem, at, point, delta)
    z = logarithms(at, point)
    f = f + F @ z
    scale = float(np.logaddexp.reduce(f)) if len(f) else 0.0
    return Program(F=F, f=f - scale, G=G, g=g + G @ z, M=M, A=A, b=b - A @ z, scale=scale)


def logarithms(at: Layout, point: Point) -> Floats:
    z: Floats = np.log(np.concatenate([point.psi[at.devices], point.alpha[at.senders, at.receivers], point.rest[at.devices]]))
    return z


def objective_terms(problem: Problem, at: Layout, point: Point) -> tuple[csr_array, Floats]:
    """exp of these sum to phi_S sum S_i e^s_i + phi_T sum psi_j alpha_ij T_ij e^s_i + phi_E sum E_ij; no term of weight zero."""
    i, j = at.senders, at.receivers
    rows, f = Rows(at.unknowns), []
    opening = problem.opening[at.devices]
    some = opening > 0
    rows.add(some.sum(), (at.s[some], 1))
    f.append(np.log(opening[some]))
    if problem.phi.target > 0:
        rows.add(at.m, (at.v, 1), (at.s[at.place[i]], 1), (at.place[j], 1))
        f.append(np.log(problem.phi.target * np.maximum(problem.T[i, j], SMALLEST_T)))
    joules = problem.phi.energy * problem.K[i, j]
    some = joules > 0
    slope, offset = energy_monomial(problem, point.alpha[i, j][some])
    rows.add(some.sum(), (at.v[some], slope))
    f.append(np.log(joules[some]) + offset)
    return rows.matrix(), np.concatenate(f)


def energy_monomial(problem: Problem, alpha: Floats) -> tuple[Floats, Floats]:
    """ln of an upper bound of E / K around alpha (k,): slope (k,) times v, plus offset (k,) (eqs. 73-74)."""
    if problem.energy_mode == "linear":
        return np.ones_like(alpha), np.zeros_like(alpha)
    theta = shares(alpha, alpha + problem.eps_e)
    return 1 - theta, -entropy(theta) - (1 - theta) * math.log(problem.eps_e)


def column_sums(at: Layout, point: Point) -> tuple[csr_array, Floats, csr_array]:
    """sum_i alpha_ij <= psi_j + eps_C (the upper half of eq. 13): a group for each column that has links."""
    theta = shares(point.psi, point.psi + EPS_C)
    most = entropy(theta) + (1 - theta) * math.log(EPS_C)
    rows, groups, j = Rows(at.unknowns), Rows(at.m), at.receivers
    rows.add(at.m, (at.v, 1), (at.place[j], -theta[j]))
    each, group = np.unique(j, return_inverse=True)
    groups.put(len(each), group, np.arange(at.m), 1)
    return rows.matrix(), -most[j], groups.matrix()


def inequalities(problem: Problem, at: Layout, point: Point, delta: float) -> tuple[csr_array, Floats]:
    """A z <= b: the sources' shares, the lower half of eq. 13, what targets may send, and the boxes."""
    rows, b = Rows(at.unknowns), []
    psi, i, j = point.psi[at.devices], at.senders, at.receivers
    u = np.arange(at.n)
    low = floor(problem)[j]
    theta = shares(psi, psi + point.rest[at.devices], SMALLEST_REST)
    rows.add(at.n, (u, -theta), (at.s, theta - 1))  # 1 <= psi + e^s
    b.append(entropy(theta))
    b.append(received(rows, at, point))
    rows.add(at.m, (u[at.place[i]], 1), (at.v, 1))
    b.append(np.log(np.maximum(delta, 1.5 * low)))
    for column, sign, most in ((u, 1, OVER), (u, -1, -math.log(SMALLEST_PSI)), (at.v, 1, 0), (at.v, -1, -np.log(low))):
        rows.add(len(column), (column, sign))
        b.append(np.broadcast_to(most, len(column)))
    return rows.matrix(), np.concatenate(b)


def received(rows: Rows, at: Layout, point: Point) -> Floats:
    """psi_j <= sum_i alpha_ij + eps_C, in rows that are added, with their right sides (N,)."""
    N = len(at.place)
    alpha = point.alpha[at.senders, at.receivers]
    total = np.bincount(at.receivers, alpha, N) + EPS_C
    w = alpha / total[at.receivers]
    first = rows.count
    rows.add(N, (at.place, 1))
    rows.put(0, first + at.receivers, at.v, -w)
    w_c = EPS_C / total
    most: Floats = w_c * math.log(EPS_C) - w_c * np.log(w_c) - np.bincount(at.receivers, w * np.log(w), N)
    return most


def moved(at: Layout, point: Point, w: Floats) -> Point:
    """The point that a solution w of the program around another leads to."""
    z = logarithms(at, point) + w
    N = len(at.place)
    psi, alpha, rest = np.ones(N), np.zeros((N, N)), np.full(N, SMALLEST)
    psi[at.devices] = np.exp(np.clip(z[: at.n], math.log(SMALLEST_PSI), 0))
    alpha[at.senders, at.receivers] = np.exp(np.clip(z[at.v], math.log(SMALLEST), 0))
    rest[at.devices] = np.exp(np.clip(z[at.s], math.log(SMALLEST), 0))
    return Point(psi, alpha, rest)


class Rows:
    """A sparse matrix that is written down block by block; the columns of pinned devices, -1, are left out."""

    def __init__(self, columns: int) -> None:
        self.columns, self.count = columns, 0
        self._parts: list[tuple[Ints, Ints, Floats]] = []

    def add(self, count: int, *terms: tuple[Ints, npt.ArrayLike]) -> None:
        """Add `count` rows, with a column and a coefficient in each for every term."""
        for columns, values in terms:
            self.put(0, self.count + np.arange(count), columns, values)
        self.count += int(count)

    def put(self, count: int, rows: Ints, columns: Ints, values: npt.ArrayLike) -> None:
        """Add entries to rows; `count` of the rows are new."""
        free = np.asarray(columns) >= 0
        self._parts.append((rows[free], columns[free], np.broadcast_to(np.asarray(values, np.float64), free.shape)[free]))
        self.count += count

    def matrix(self) -> csr_array:
        from scipy.sparse import csr_array

        rows, columns, values = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        return csr_array((values, (rows, columns)), shape=(self.count, self.columns))
