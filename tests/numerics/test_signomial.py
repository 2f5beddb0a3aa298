"""Successive convex approximation of the problem of links."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from typing import Any

import cvxpy
import numpy as np
import pytest
from scipy.sparse import eye_array, vstack

from tests.numerics.devices import HARD, THEORY, any_costs, drawn, energies
from tests.numerics.test_links import orderly, problem, regime
from tideline.numerics.links import geometric
from tideline.numerics.links.link_problem import Phi, Plan, Problem, exact, polished
from tideline.numerics.links.signomial import advanced, sca, solved, steps, value, violation

at_night = pytest.mark.nightly(job="numbers")


def divergences(T: np.ndarray) -> Problem:
    """Ten devices, five labelled, with bounds that are divergences in percent alone."""
    pinned = np.arange(10) >= 5
    return Problem(np.full(10, 2.7), T, energies(10, np.random.default_rng(0)), Phi(1, 0.5, 0.01), pinned)


def descends(plan: Plan) -> bool:
    """Whether the objective never rises once delta_link is tight."""
    tight = plan.objectives[geometric.TIGHTENED :]
    return all(after <= before * (1 + 1e-4) for before, after in pairwise(tight))


def kl(p: np.ndarray, q: np.ndarray) -> float:
    """KL(p || q) of weights after division by their sums."""
    p, q = p / p.sum(), q / q.sum()
    return float((p * np.log(p / q)).sum())


def test_the_programs_point_is_allowed_and_costs_what_it_did() -> None:
    """Each bound is tight at the point: psi + rest = 1 and the columns' sums fit, so that w = 0 breaks nothing but delta_link."""
    p = any_costs(6, 4, 0, HARD)
    at, point = geometric.layout(p), geometric.start(p)
    of = geometric.program(p, at, point, 0.3)
    assert violation(of, np.zeros(at.unknowns)) < 1e-6
    sources = (p.opening * point.rest)[~p.pinned].sum()
    targets = (point.rest[:, None] * point.psi * point.alpha * p.T).sum()
    K = np.where(p.usable, p.K, 0)
    expected = sources + HARD.target * targets + HARD.energy * (K * point.alpha / (point.alpha + p.eps_e)).sum()
    assert value(of, np.zeros(at.unknowns)) == pytest.approx(expected, rel=1e-9)
    assert np.exp(of.f).sum() == pytest.approx(1)


@pytest.mark.parametrize("mode", ["ratio", "linear"])
def test_two_codings_of_one_step_agree(mode: Any) -> None:
    """Ours in logarithms, and the paper's own variables, chi among them, in a language for geometric programs."""
    p = replace(any_costs(5, 3, 1, HARD), energy_mode=mode)
    at = geometric.layout(p)
    first = advanced(p, at, geometric.start(p), 0.3)
    assert first is not None
    second = advanced(p, at, first.point, 0.2)
    assert second is not None
    assert second.objective == pytest.approx(posynomials(p, at, first.point, 0.2), rel=1e-6)


def posynomials(p: Problem, at: geometric.Layout, z: geometric.Point, delta: float) -> float:
    """The optimum of one step with variables psi, alpha, chi_S, chi_T (eqs. 56-80), by cvxpy's geometric programs."""
    psi: dict[int, Any] = {int(i): cvxpy.Variable(pos=True) for i in at.devices}
    links = [(int(i), int(j)) for i, j in zip(at.senders, at.receivers, strict=True)]
    alpha, chi = ({link: cvxpy.Variable(pos=True) for link in links} for _ in range(2))
    chi_s = {i: cvxpy.Variable(pos=True) for i in psi}
    cost, rules = 0.0, []
    for i in psi:
        theta = z.psi[i] / (z.psi[i] + z.rest[i])
        cost += p.opening[i] * chi_s[i] / p.S[i]
        rules += [
            (psi[i] / theta) ** -theta * (chi_s[i] / (p.S[i] * (1 - theta))) ** (theta - 1) <= 1,
            psi[i] >= 1e-6,
            psi[i] <= 1 + 1e-6,
        ]
    for i, j in links:
        C, a0, theta = p.T[i, j], z.alpha[i, j], z.psi[i] / (z.psi[i] + z.rest[i])
        cost += p.phi.target * psi.get(j, 1.0) * chi[i, j]
        rules += [(psi[i] / theta) ** -theta * (chi[i, j] / (C * alpha[i, j] * (1 - theta))) ** (theta - 1) <= 1]
        rules += [
            psi[i] * alpha[i, j] <= max(delta, 1.5 * geometric.floor(p)[j]),
            alpha[i, j] <= 1,
            alpha[i, j] >= geometric.floor(p)[j],
        ]
        theta = a0 / (a0 + p.eps_e)
        bound = (alpha[i, j] / theta) ** theta * (p.eps_e / (1 - theta)) ** (1 - theta)
        cost += p.phi.energy * p.K[i, j] * (alpha[i, j] / bound if p.energy_mode == "ratio" else alpha[i, j])
    for j in range(len(p.S)):
        column = [(alpha[i, j], z.alpha[i, j]) for i, k in links if k == j]
        theta, total = z.psi[j] / (z.psi[j] + geometric.EPS_C), sum(a0 for _, a0 in column) + geometric.EPS_C
        mono = (psi.get(j, 1.0) / theta) ** theta * (geometric.EPS_C / (1 - theta)) ** (1 - theta)
        lower = total ** (geometric.EPS_C / total)
        for a, a0 in column:
            lower = lower * (a * total / a0) ** (a0 / total)
        rules += [sum(a for a, _ in column) / mono <= 1, psi.get(j, 1.0) / lower <= 1]
    return float(cvxpy.Problem(cvxpy.Minimize(cost), rules).solve(gp=True, solver="CLARABEL"))


def test_columns_move_by_a_small_step() -> None:
    """Eq. 13's two bounds keep KL(old || new) of a column to ln((1 + eps_C) / (1 - eps_C)), and strong costs use it all."""
    N, most = 8, math.log((1 + geometric.EPS_C) / (1 - geometric.EPS_C))
    pinned = np.arange(N) >= 4
    p = Problem(np.ones(N), np.tile(10.0 ** np.arange(N), (N, 1)).T, np.zeros((N, N)), Phi(1, 1, 0), pinned)
    first = geometric.around(p, np.where(pinned, 1.0, 0.0), np.ones((N, N)))
    made = [
        first,
        *(step.point for step, _ in zip(steps(p, geometric.layout(p), first, continuation=False), range(4), strict=False)),
    ]
    moves = [kl(a.alpha[:4, 5], b.alpha[:4, 5]) for a, b in pairwise(made)]
    assert max(moves) <= most * (1 + 1e-4)
    assert max(moves) > 0.99 * most


def test_weights_are_powers_of_the_bounds() -> None:
    """With psi fixed, energy free and bounds close together, n steps from equal weights are alpha_ij ~ T_ij^-n."""
    N, n = 6, 20
    pinned = np.arange(N) >= 3
    T = 1 + 0.01 * np.random.default_rng(0).random((N, N))
    p = Problem(np.ones(N), T, np.zeros((N, N)), Phi(1, 1, 0), pinned)
    at, point = geometric.layout(p), geometric.around(p, np.where(pinned, 1.0, 0.0), np.ones((N, N)))
    for _ in range(n):
        found = solved(with_psi_fixed(geometric.program(p, at, point, 1e-3), at))
        assert found is not None
        point = geometric.moved(at, point, found[0])
    made, law = point.alpha[:3, 3:], T[:3, 3:] ** -float(n)
    np.testing.assert_allclose(made / made.sum(0), law / law.sum(0), atol=1e-4)


def with_psi_fixed(of: geometric.Program, at: geometric.Layout) -> geometric.Program:
    """The program with steps of u kept at zero."""
    u = eye_array(at.n, at.unknowns)
    return replace(of, A=vstack([of.A, u, -u]).tocsr(), b=np.concatenate([of.b, np.zeros(2 * at.n)]))


@pytest.mark.parametrize("seed", [0, pytest.param(3, marks=at_night)])
def test_it_descends_to_a_plan_that_is_not_below_the_optimum(seed: int) -> None:
    """The hard scale: orderly, monotone once delta_link is tight, and above the exact optimum before and after polishing."""
    p = drawn(10, seed, HARD)
    plan = sca(p)
    better, best = polished(p, plan), exact(p)
    assert orderly(p, plan) and orderly(p, better) and descends(plan)
    assert plan.status in ("converged", "iterations") and len(plan.objectives) == plan.iterations <= 50
    assert best.objective <= better.objective * (1 + 1e-9) <= plan.objective * (1 + 2e-9)
    assert better.objective <= 1.15 * best.objective
    assert (better.status, better.objectives) == (plan.status, plan.objectives)


def test_on_the_theorys_scale_it_finds_the_optimum() -> None:
    """Polished: all labelled devices are sources, and each target has its best."""
    p = drawn(10, 1, THEORY)
    assert polished(p, sca(p)).objective == pytest.approx(exact(p).objective, rel=1e-9)


@pytest.mark.parametrize("percent", [10.0, pytest.param(100.0, marks=at_night)])
def test_equal_divergences(percent: float) -> None:
    """All labelled devices are sources, in equal parts; the optimum's single links have the same T."""
    p = divergences(np.full((10, 10), percent))
    plan, best = sca(p), exact(p)
    assert plan.psi.tolist() == best.psi.tolist() == p.pinned.astype(int).tolist()
    np.testing.assert_allclose(plan.alpha[:5, 5:], 0.2, atol=0.01)
    free = replace(p, phi=Phi(1, 0.5, 0))
    assert polished(free, plan).objective == pytest.approx(exact(free).objective, rel=1e-9)


@pytest.mark.parametrize("continuation", [True, False])
def test_one_device_that_is_near_to_all(continuation: bool) -> None:
    """It is the only source, of everybody, with weight one; without continuation others stay sources that need not be."""
    T = np.full((10, 10), 100.0)
    T[0] = T[:, 0] = 1
    plan = sca(divergences(T), continuation=continuation)
    assert (plan.psi.tolist() == [0] + [1] * 9) is continuation
    assert plan.alpha[0] == pytest.approx(plan.psi)
    assert exact(divergences(T)).psi.tolist() == [0] + [1] * 9


@at_night
def test_a_device_with_a_huge_error_becomes_a_target() -> None:
    assert sca(regime([0.04, 0.27, 80, 0.09, 0.45], 2.0, THEORY)).psi.tolist() == [0, 0, 1, 0, 0] + [1] * 5


def test_equal_input_is_equal_bytes() -> None:
    p = any_costs(5, 3, 4, HARD)
    best = exact(p)
    first = geometric.around(p, best.psi.astype(float), best.alpha)
    a, b = (sca(p, first, iterations=6, continuation=False) for _ in range(2))
    assert (a.alpha.tobytes(), a.psi.tobytes(), a.objectives) == (b.alpha.tobytes(), b.psi.tobytes(), b.objectives)
    assert a.objectives[0] >= a.objectives[-1] and a.iterations <= 6


EDGES = {
    "two devices": problem(S=np.ones(2), T=np.ones((2, 2)), K=np.ones((2, 2)), pinned=np.array([False, True])),
    "one labelled": problem(pinned=np.array([True, False, True])),
    "all labelled": problem(pinned=np.zeros(3, bool)),
    "no energy": problem(phi=Phi(1, 1, 0)),
    "energy alone": problem(phi=Phi(0, 0, 1)),
    "nothing": problem(phi=Phi(0, 0, 0)),
    "zeros": problem(S=np.zeros(3), T=np.zeros((3, 3)), K=np.zeros((3, 3))),
    "out of reach": problem(K=np.array([[0, 1, math.inf], [math.inf, 0, 1], [1, 1, 0]])),
    "huge": problem(T=np.full((3, 3), 1e12), phi=Phi(1e6, 1e6, 1e6)),
    "tiny": problem(phi=Phi(1e-12, 1e-12, 1e-12)),
}


QUICK = ("one labelled", "all labelled", "nothing", "out of reach", "huge")


@pytest.mark.parametrize("name", [x if x in QUICK else pytest.param(x, marks=at_night) for x in EDGES])
def test_edges(name: str) -> None:
    p = EDGES[name]
    plan = sca(p, iterations=20)
    assert orderly(p, plan) and plan.status != "failed"
    assert exact(p).objective <= polished(p, plan).objective * (1 + 1e-9)


def test_a_program_without_solution_has_none() -> None:
    p = problem()
    of = geometric.program(p, geometric.layout(p), geometric.start(p), 0.3)
    assert solved(replace(of, b=of.b - 50)) is None


@pytest.mark.parametrize("iterations", [0, 1])
def test_few_iterations_are_a_plan(iterations: int) -> None:
    p = any_costs(5, 3, 4, HARD)
    plan = sca(p, iterations=iterations)
    assert orderly(p, plan) and (plan.iterations, plan.status) == (iterations, "iterations")


def test_a_time_limit_leaves_a_plan() -> None:
    """Of no time there is still one iteration, and a plan that says what ended it."""
    found = sca(drawn(8, 0, HARD), time_limit=0.0)
    assert (found.status, found.iterations) == ("limit", 1)
    assert orderly(drawn(8, 0, HARD), found)


def test_a_wrong_solution_is_not_taken() -> None:
    """What misses a constraint by much counts as none, also where it is not finite."""
    p = problem()
    of = geometric.program(p, geometric.layout(p), geometric.start(p), 0.3)
    assert violation(of, np.full(of.A.shape[1], math.nan)) == math.inf
    assert violation(of, np.full(of.A.shape[1], 5.0)) > 1
    assert isinstance(of, geometric.Program)


def test_the_limit_on_what_targets_send_tightens() -> None:
    """From 0.3 by 0.6 a step, to its last value at step fifteen; with many devices it begins lower."""
    made = [geometric.delta_link(m, 5) for m in range(17)]
    assert geometric.delta_link(0, 50) == pytest.approx(0.06) and geometric.delta_link(0, 1) == 0.3
    assert made[:2] == [0.3, 0.18] and made[15] == made[16] == 1e-3 == min(made)
    assert geometric.entropy(np.array([0.5])) == pytest.approx(math.log(2))


def test_modelling_is_loaded_by_who_solves() -> None:
    """Nothing of links loads cvxpy or SciPy before a program is solved: both take their time."""
    names = ("baselines", "bounds", "facility_location", "geometric", "link_problem", "signomial")
    text = "".join(f"import tideline.numerics.links.{name}\n" for name in names)
    text += "import sys\nsys.exit(' '.join(n for n in ('cvxpy', 'scipy', 'torch') if n in sys.modules))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


@at_night
def test_larger_problems_descend() -> None:
    p = drawn(40, 0, HARD)
    plan = sca(p)
    assert orderly(p, plan) and descends(plan) and plan.status != "failed"
    assert exact(p).objective <= polished(p, plan).objective <= 1.3 * exact(p).objective
