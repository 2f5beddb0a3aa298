"""Random devices for tests and benchmarks of links: half of them with labels, as in the published experiments."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tideline.numerics.links.bounds import Floats, Measured, bounds, draw_power, draw_rate, transfer_energy
from tideline.numerics.links.link_problem import Phi, Problem

THEORY = Phi(1.0, 0.5, 1.0)
HARD = Phi(10.0, 0.5, 1.0)


def energies(N: int, rng: np.random.Generator) -> Floats:
    """K (N, N), of the published radio links."""
    return transfer_energy(draw_power(N, rng), draw_rate(N, rng))


def drawn(N: int, seed: int, phi: Phi = HARD, divergence_scale: float = 100.0) -> Problem:
    """N devices, of which the first half has labels: counts as published, errors and divergences uniform."""
    rng = np.random.default_rng(seed)
    labels = np.arange(N) < N // 2
    labelled = np.where(labels, rng.normal(1600, 267, N).clip(10), 0).round()
    rest = np.where(labels, rng.normal(200, 33, N), rng.normal(1000, 167, N)).clip(1).round()
    error = 1 - labelled / (labelled + rest) * (1 - rng.uniform(0.02, 0.4, N))
    half = np.triu(rng.uniform(0, 2, (N, N)), 1)
    told = Measured(error, labelled + rest, labelled, half + half.T)
    S, T = bounds(told, divergence_scale=divergence_scale)
    return Problem(S, T, energies(N, rng), phi, told.pinned)


def any_costs(N: int, able: int, seed: int, phi: Phi, holes: float = 0.0) -> Problem:
    """Costs without meaning: `able` of N devices, in random places, may be sources; a share of links does not exist."""
    rng = np.random.default_rng(seed)
    pinned = rng.permutation(N) >= able
    K = np.where(rng.random((N, N)) < holes, np.inf, rng.uniform(0, 5, (N, N)))
    K[np.argmin(pinned)] = 1.0  # the first of them reaches everybody
    return Problem(rng.uniform(0, 4, N), rng.uniform(0, 9, (N, N)), K, phi, pinned)


def permuted(problem: Problem, order: np.ndarray) -> Problem:
    """The same devices under other numbers."""
    both = np.ix_(order, order)
    return replace(problem, S=problem.S[order], T=problem.T[both], K=problem.K[both], pinned=problem.pinned[order])
