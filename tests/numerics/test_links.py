"""The problem of links, its optimum, and rounding."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from tests.numerics.devices import HARD, THEORY, any_costs, drawn, permuted
from tests.numerics.examples import for_all
from tideline.numerics.links import link_problem
from tideline.numerics.links.bounds import Unfit, confidence, link_bound, rademacher, source_bound

seeds = st.integers(0, 10_000)
phis = st.sampled_from(
    [THEORY, HARD, link_problem.Phi(1, 1, 0), link_problem.Phi(0.2, 1, 3), link_problem.Phi(0, 1, 1), link_problem.Phi(1, 0, 1)]
)


def problem(**other: Any) -> link_problem.Problem:
    """Three devices, the last pinned, with some fields replaced."""
    fine = {"S": np.ones(3), "T": np.full((3, 3), 2.0), "K": np.ones((3, 3))}
    fine |= {"phi": link_problem.Phi(), "pinned": np.array([False, False, True])}
    return link_problem.Problem(**{**fine, **other})


def orderly(p: link_problem.Problem, plan: link_problem.Plan) -> bool:
    """Rows of targets and columns of sources are zero, target columns sum to one, and weights stand on links only."""
    source, target = plan.psi == 0, plan.psi == 1
    rows = not plan.alpha[target].any() and not plan.alpha[:, source].any() and not plan.alpha[~p.usable].any()
    sums = np.allclose(plan.alpha[:, target].sum(0), 1, rtol=0, atol=1e-12)
    return bool(source.any() and (source | target).all() and not source[p.pinned].any() and rows and sums)


def tried(p: link_problem.Problem) -> float:
    """The least objective over all sets of sources that reach every target, each with its cheapest."""
    able = np.flatnonzero(~p.pinned)
    least = math.inf
    for chosen in itertools.product((0, 1), repeat=len(able)):
        psi = np.ones(len(p.S), np.int64)
        psi[able] = chosen
        if (p.usable[psi == 0].any(0) | (psi == 0)).all() and (psi == 0).any():
            least = min(least, link_problem.single(p, psi).objective)
    return least


@for_all(60, st.integers(2, 8), st.integers(1, 5), seeds, phis, st.sampled_from([0.0, 0.4]), st.sampled_from(["ratio", "linear"]))
def test_nothing_is_better_than_the_optimum(N: int, able: int, seed: int, phi: link_problem.Phi, holes: float, mode: Any) -> None:
    """All sets of sources were tried; the plan is orderly, says what it costs, and has one link for each target."""
    p = replace(any_costs(N, min(able, N), seed, phi, holes), energy_mode=mode)
    plan = link_problem.exact(p)
    assert plan.objective == pytest.approx(tried(p), rel=1e-9, abs=1e-12)
    assert (plan.status, plan.gap, plan.bound) == ("proven", 0.0, plan.objective)
    assert orderly(p, plan) and plan.links == plan.psi.sum() == (plan.alpha == 1).sum()
    assert plan.objective == link_problem.objective(p, plan.psi, plan.alpha) and plan.energy == link_problem.energy(p, plan.alpha)


@for_all(30, seeds, st.integers(0, 100))
def test_numbers_of_devices_do_not_matter(seed: int, other: int) -> None:
    """Another order of the devices is the same plan in another order."""
    p = any_costs(7, 4, seed, HARD)
    order = np.random.default_rng(other).permutation(7)
    plan, again = link_problem.exact(p), link_problem.exact(permuted(p, order))
    assert again.objective == pytest.approx(plan.objective, rel=1e-12)
    assert again.psi.tolist() == plan.psi[order].tolist()
    assert (again.alpha == plan.alpha[np.ix_(order, order)]).all()


@for_all(30, seeds, phis, st.floats(1e-6, 1e6))
def test_common_factors_do_not_matter(seed: int, phi: link_problem.Phi, factor: float) -> None:
    """Phi times anything is the same plan at that many times the objective."""
    p = any_costs(6, 4, seed, phi)
    scaled = replace(p, phi=link_problem.Phi(factor * phi.source, factor * phi.target, factor * phi.energy))
    plan, again = link_problem.exact(p), link_problem.exact(scaled)
    assert again.objective == pytest.approx(factor * plan.objective, rel=1e-9)
    assert link_problem.single(p, again.psi).objective == pytest.approx(plan.objective, rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_energy_falls_with_its_weight(seed: int) -> None:
    """From 1e-3 to 1e4: joules of the optimum never rise, links vanish at thresholds, and every pinned target keeps its own."""
    p = drawn(12, seed, HARD)
    plans = [link_problem.exact(replace(p, phi=replace(HARD, energy=10.0**k))) for k in np.arange(-3, 4.5, 0.5)]
    joules, links = [each.energy for each in plans], [each.links for each in plans]
    assert all(after <= before + 1e-9 for before, after in itertools.pairwise(joules))
    assert links[0] > links[-1] == p.pinned.sum()
    most = max(itertools.pairwise(links), key=lambda pair: pair[0] - pair[1])
    assert most[0] - most[1] >= 1 and len(set(links)) < len(links)


def test_equal_input_is_equal_bytes() -> None:
    a, b = link_problem.exact(drawn(20, 3)), link_problem.exact(drawn(20, 3))
    assert (a.alpha.tobytes(), a.psi.tobytes()) == (b.alpha.tobytes(), b.psi.tobytes())
    assert (a.objective, a.iterations) == (b.objective, b.iterations)


def test_the_objective_written_out() -> None:
    """Eq. 11 by hand: one source, two targets, weights 1 and 1; both forms of energy."""
    T, K = np.array([[9.0, 2.0, 3.0], [9.0, 9.0, 9.0], [9.0, 9.0, 9.0]]), np.full((3, 3), 4.0)
    p = problem(S=np.array([5.0, 1.0, 1.0]), T=T, K=K, phi=link_problem.Phi(2.0, 0.5, 0.1))
    psi, alpha = np.array([0, 1, 1]), np.array([[0.0, 1, 1], [0, 0, 0], [0, 0, 0]])
    assert link_problem.objective(p, psi, alpha) == pytest.approx(2 * 5 + 0.5 * (2 + 3) + 0.1 * 2 * 4 / 1.001)
    assert link_problem.objective(replace(p, energy_mode="linear"), psi, alpha) == pytest.approx(10 + 2.5 + 0.1 * 8)
    relaxed = link_problem.objective(replace(p, phi=link_problem.Phi(2.0, 0.5, 0.0)), np.array([0.5, 0.5, 1]), alpha / 2)
    assert relaxed == pytest.approx(2 * 0.5 * 6 + 0.5 * 0.5 * (0.5 * 0.5 * 2 + 0.5 * 3))
    assert (
        link_problem.smooth_energy(p, alpha / 1000)[0, 1] == pytest.approx(2.0)
        and link_problem.energy(p, alpha / 1000) == 0 < link_problem.energy(p, alpha) == 8
    )


def test_energies_in_percent() -> None:
    assert link_problem.normalised([1.0, 4.0, 2.0]) == (25.0, 100.0, 50.0)
    assert link_problem.normalised([0.0, 0.0]) == (0.0, 0.0) and link_problem.normalised([]) == ()


def regime(error: list[float], d: float, phi: link_problem.Phi) -> link_problem.Problem:
    """Ten devices with five labelled, of equal divergences; errors may be above one, as published."""
    eps, pinned = np.array([*error, *[1.0] * 5]), np.arange(10) >= 5
    count = np.where(pinned, 1000.0, 1800.0)
    rad, conf = rademacher(count), confidence(count)
    return link_problem.Problem(
        source_bound(eps, rad, conf), link_bound(eps, np.full((10, 10), d), rad, conf), np.full((10, 10), 3.5), phi, pinned
    )


def test_a_device_with_a_huge_error_is_a_target() -> None:
    """Of five errors the third is 80; with 0.45 in its place all five are sources."""
    assert link_problem.exact(regime([0.04, 0.27, 80, 0.09, 0.45], 2.0, THEORY)).psi.tolist() == [0, 0, 1, 0, 0] + [1] * 5
    assert link_problem.exact(regime([0.04, 0.27, 0.45, 0.09, 0.45], 2.0, THEORY)).psi.tolist() == [0] * 5 + [1] * 5


def test_extremes_of_phi() -> None:
    """Sources that cost much are few, targets that cost much are none but the pinned."""
    p = drawn(10, 0, THEORY)
    assert (link_problem.exact(replace(p, phi=link_problem.Phi(1e6, 1, 1))).psi == 0).sum() == 1
    assert link_problem.exact(replace(p, phi=link_problem.Phi(1, 1e6, 1))).psi.tolist() == p.pinned.astype(int).tolist()


def test_everybody_has_labels() -> None:
    """Where being a target costs more, all are sources, without a link; where it costs less, one serves all."""
    p = problem(pinned=np.zeros(3, bool), phi=link_problem.Phi(1, 1, 0))
    plan = link_problem.exact(p)
    assert (plan.psi.tolist(), plan.links, plan.energy, plan.objective) == ([0, 0, 0], 0, 0.0, 3.0)
    assert link_problem.exact(replace(p, phi=link_problem.Phi(1, 0.1, 0))).psi.tolist() == [0, 1, 1]


def test_one_labelled_device_serves_all() -> None:
    plan = link_problem.exact(problem(pinned=np.array([True, False, True]), phi=link_problem.Phi(1e9, 1, 1e9)))
    assert plan.psi.tolist() == [1, 0, 1] and plan.alpha[1].tolist() == [1, 0, 1]


def test_ties_go_to_the_smallest_index() -> None:
    """Equal sources: the first sends; equal sets: the first is a source."""
    p = problem(
        S=np.ones(4),
        T=np.ones((4, 4)),
        K=np.ones((4, 4)),
        pinned=np.array([False, False, False, True]),
        phi=link_problem.Phi(1, 0.1, 0),
    )
    assert link_problem.exact(p).psi.tolist() == [0, 1, 1, 1]
    assert link_problem.single(p, [1, 0, 0, 1]).alpha[1].tolist() == [1, 0, 0, 1]


def test_links_that_do_not_exist() -> None:
    """Inf drops a link, whatever its divergence is said to be; who cannot be reached has to be a source."""
    K, T = np.ones((3, 3)), np.full((3, 3), 2.0)
    K[0, 2], T[0, 2] = math.inf, math.nan
    plan = link_problem.exact(problem(K=K, T=T, phi=link_problem.Phi(1, 0.01, 0)))
    assert plan.psi.tolist() == [1, 0, 1]
    K[:, 0] = math.inf
    assert link_problem.exact(problem(K=K, T=T, phi=link_problem.Phi(1, 0.01, 0))).psi.tolist() == [0, 0, 1]


def test_nothing_costs() -> None:
    assert link_problem.exact(problem(K=np.zeros((3, 3)), T=np.zeros((3, 3)))).objective == 1
    free = link_problem.exact(problem(phi=link_problem.Phi(0, 0, 0)))
    assert (free.objective, free.gap) == (0, 0) and orderly(problem(), free)


def test_the_diagonal_is_not_looked_at() -> None:
    bad = np.full((3, 3), 2.0)
    np.fill_diagonal(bad, math.nan)
    assert link_problem.exact(problem(T=bad, K=bad)).objective == link_problem.exact(problem(K=np.full((3, 3), 2.0))).objective


@pytest.mark.parametrize("n", [0.0, 1.0, 7.5, 1e6])
def test_power_weights(n: float) -> None:
    """alpha_ij in proportion to T_ij^-n over sources that reach the target, for any n and T."""
    p = any_costs(8, 4, 5, THEORY, holes=0.3)
    psi = link_problem.repaired(p, np.ones(8))
    psi[np.flatnonzero(~p.pinned)[:3]] = 0
    plan = link_problem.power(p, psi, n)
    assert orderly(p, plan)
    for j in np.flatnonzero(psi == 1):
        i = np.flatnonzero((psi == 0) & p.usable[:, j])
        raw = (p.T[i, j] / p.T[i, j].min()) ** -n
        np.testing.assert_allclose(plan.alpha[i, j], raw / raw.sum(), rtol=1e-9, atol=1e-300)


def test_power_weights_of_zero_and_huge_bounds() -> None:
    T = np.array([[0.0, 1, 0], [1, 0, 1e-3], [1, 1, 0]])
    assert link_problem.power(problem(T=T), [0, 0, 1], 50).alpha[:, 2] == pytest.approx([1, 0, 0])
    assert link_problem.power(problem(T=np.full((3, 3), 1e300)), [0, 0, 1], 50).alpha[:, 2].tolist() == [0.5, 0.5, 0]
    with pytest.raises(Unfit, match="at least 0"):
        link_problem.power(problem(), [0, 0, 1], -1)


def test_rounding() -> None:
    """Small weights go, the rest sums to one, and what a source still receives is told."""
    p = problem(S=np.ones(4), T=np.ones((4, 4)), K=np.ones((4, 4)), pinned=np.array([False, False, True, True]))
    alpha = np.array([[0, 0.05, 0.72, 0.02], [0.01, 0, 0.24, 0.02], [0, 0, 0, 0], [0, 0, 0, 0]])
    plan = link_problem.rounded(p, np.array([0.1, 0.49, 1, 1]), alpha)
    assert plan.psi.tolist() == [0, 0, 1, 1]
    assert plan.alpha[:, 2].tolist() == [0.75, 0.25, 0, 0] and plan.alpha[:, 3].tolist() == [1, 0, 0, 0]
    assert orderly(p, plan) and plan.flags == ()
    alpha[0, 1] = 0.07
    assert link_problem.rounded(p, np.array([0.1, 0.49, 1, 1]), alpha).flags == ("unsettled",)


def test_rounding_finds_a_source() -> None:
    """Where all would be targets, the one that costs least with all its links; where one is out of reach, who reaches it too."""
    p = any_costs(6, 3, 2, THEORY)
    able = np.flatnonzero(~p.pinned)
    one = [link_problem.single(p, np.where(np.arange(6) == i, 0, 1)).objective for i in able]
    assert (
        link_problem.rounded(p, np.ones(6), np.zeros((6, 6))).psi.tolist()
        == np.where(np.arange(6) == able[np.argmin(one)], 0, 1).tolist()
    )
    K = np.ones((4, 4))
    K[0, 3] = K[1, 2] = math.inf
    p = problem(S=np.ones(4), T=np.ones((4, 4)), K=K, pinned=np.array([False, False, True, True]))
    assert link_problem.repaired(p, [0, 1, 1, 1]).tolist() == [0, 0, 1, 1]


@for_all(40, st.integers(3, 8), st.integers(1, 4), seeds, st.sampled_from([0.0, 0.5]))
def test_whatever_is_rounded_is_a_plan(N: int, able: int, seed: int, holes: float) -> None:
    """Of any relaxed numbers; polishing keeps the sources, and neither is below the optimum."""
    p = any_costs(N, able, seed, HARD, holes)
    rng = np.random.default_rng(seed)
    plan = link_problem.rounded(p, rng.random(N), rng.random((N, N)))
    better = link_problem.polished(p, plan)
    assert orderly(p, plan) and orderly(p, better)
    assert (better.psi == plan.psi).all() and better.links == (plan.psi == 1).sum()
    assert link_problem.exact(p).objective <= better.objective + 1e-9 <= plan.objective + 2e-9


@for_all(40, st.integers(3, 8), st.integers(2, 4), seeds, st.sampled_from([0.0, 0.5]))
def test_what_devices_leave_behind_is_a_plan(N: int, able: int, seed: int, holes: float) -> None:
    """Weights that are left keep their proportions, and no source goes; with nobody gone a plan stays as it is."""
    p = any_costs(N, able, seed, HARD, holes)
    before = link_problem.power(p, link_problem.exact(p).psi, 1.0)
    assert np.allclose(link_problem.mended(p, before.psi, before.alpha).alpha, before.alpha)
    at = np.delete(np.arange(N), np.flatnonzero(~p.pinned)[0])
    assume(not p.pinned[at].all() and (~p.pinned[at] | p.usable[at][:, at].any(0)).all())
    left = link_problem.Problem(p.S[at], p.T[np.ix_(at, at)], p.K[np.ix_(at, at)], p.phi, p.pinned[at])
    kept = before.alpha[np.ix_(at, at)]
    after = link_problem.mended(left, before.psi[at], kept)
    assert orderly(left, after)
    assert (after.psi <= before.psi[at]).all()
    some = (kept.sum(0) > 0) & (after.psi == 1)
    assert np.allclose(after.alpha[:, some], kept[:, some] / kept[:, some].sum(0))


def test_a_device_that_nothing_reaches_keeps_its_own_model() -> None:
    K = np.ones((3, 3))
    K[:, 1] = math.inf
    p = problem(K=K)
    alpha = np.array([[0.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    made = link_problem.mended(p, np.array([0, 1, 1]), alpha)
    assert made.psi.tolist() == [0, 0, 1]
    assert made.alpha[:, 2].tolist() == [1, 0, 0] and made.links == 1


LONELY = np.ones((3, 3))
LONELY[:2, 2] = math.inf
BAD: list[tuple[dict[str, Any], str, tuple[int, ...], str]] = [
    ({"S": np.ones((3, 1))}, "S", (), "shape"),
    ({"S": np.ones(1)}, "S", (), "at least two"),
    ({"S": np.array([1, math.nan, 1])}, "S", (1,), "not a finite number"),
    ({"S": np.array([1, 1, -1.0])}, "S", (2,), "negative"),
    ({"T": np.ones((3, 2))}, "T", (), "shape"),
    ({"T": np.array([[0, 1, 1], [1, 0, math.nan], [1, 1, 0]])}, "T", (1, 2), "from 1 to 2"),
    ({"T": np.full((3, 3), math.inf)}, "T", (0, 1), "not a finite number"),
    ({"T": np.full((3, 3), -1.0)}, "T", (0, 1), "negative"),
    ({"K": np.ones(3)}, "K", (), "shape"),
    ({"K": np.full((3, 3), math.nan)}, "K", (0, 1), "not a finite number"),
    ({"K": np.full((3, 3), -math.inf)}, "K", (0, 1), "not a finite number"),
    ({"K": np.array([[0, 1, 1], [1, 0, 1], [-1, 1, 0]])}, "K", (2, 0), "negative"),
    ({"K": LONELY}, "K", (2,), "no device with labels can reach device 2"),
    ({"pinned": np.ones(3, bool)}, "pinned", (0, 1, 2), "none can be a source"),
    ({"pinned": np.zeros(2, bool)}, "pinned", (), "3 truth values"),
    ({"pinned": np.zeros(3)}, "pinned", (), "3 truth values"),
    ({"energy_mode": "log"}, "energy_mode", (), "neither ratio nor linear"),
    ({"eps_e": 0.0}, "eps_e", (), "positive"),
]


@pytest.mark.parametrize(("other", "field", "devices", "why"), BAD)
def test_what_does_not_fit_is_refused(other: dict[str, Any], field: str, devices: tuple[int, ...], why: str) -> None:
    with pytest.raises(Unfit) as caught:
        problem(**other)
    assert (caught.value.field, caught.value.devices) == (field, devices)
    assert why in str(caught.value)


def test_weights_that_do_not_fit_are_refused() -> None:
    for phi in ({"source": -1.0}, {"target": math.nan}, {"energy": math.inf}):
        with pytest.raises(Unfit, match="phi"):
            link_problem.Phi(**phi)
    with pytest.raises(Unfit, match="no link"):
        link_problem.objective(problem(), [0, 0, 1], np.ones((3, 3)))
    for psi in ([0, 0, 0], [1, 1, 1], [0, 2, 1], [0, 1]):
        with pytest.raises(Unfit, match="psi"):
            link_problem.single(problem(), psi)


def test_a_problem_cannot_be_changed() -> None:
    S = np.ones(3)
    p = problem(S=S)
    S[0] = 7
    assert p.S[0] == 1
    with pytest.raises(ValueError, match="read-only"):
        p.S[0] = 2
