"""The attacks on private training: they work where nothing is private, and prove no more than is claimed where it is."""

from __future__ import annotations

import argparse
import math

import pytest
import torch

from benchmarks import attacks
from tideline.core.asked.world import World


def args(epsilon: str) -> argparse.Namespace:
    return argparse.Namespace(epsilon=epsilon, quick=True, data=None)


@pytest.mark.nightly(job="benchmarks")
def test_canaries_prove_less_than_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attacks, "CANARIES", 300)
    given = argparse.Namespace(epsilon="2,none", quick=False, data=None)
    found = {row["epsilon"]: row["proven_epsilon"] for row in attacks.canaries(given)}
    assert found["2"] <= 2.0 < 3.0 < found["none"]


@pytest.mark.nightly(job="benchmarks")
def test_noise_hides_rows_from_a_trap() -> None:
    found = {row["epsilon"]: row["read"] for row in attacks.trap(args("8,none"))}
    assert found["8"] == 0 and found["none"] >= 8


@pytest.mark.nightly(job="benchmarks")
def test_noise_hides_the_row_of_a_gradient() -> None:
    found = {(row["rows"], row["epsilon"]): row["read_percent"] for row in attacks.gradients(args("8,none"))}
    assert found[1, "none"] == 100.0 and found[8, "none"] > 0
    assert found[1, "8"] == found[8, "8"] == 0.0


def test_a_lower_bound_is_what_guesses_prove() -> None:
    """Half of them right prove nothing; all of them right prove no more than the chance of as many."""
    assert attacks.lower_bound(1000, 1000, 500, 0.95) == pytest.approx(0.0, abs=0.01)
    assert attacks.lower_bound(1000, 1000, 1000, 0.95) > attacks.lower_bound(1000, 1000, 900, 0.95) > 1.5
    # With no delta: e^(r * log share) = 0.05 for r right of r guesses.
    share = 0.05 ** (1 / 100)
    exact = math.log(share / (1 - share))
    assert attacks.lower_bound(1, 100, 100, 0.95) == pytest.approx(exact, rel=0.01)


def test_likelihood_ratios_find_who_is_told_otherwise() -> None:
    """Rows whose number is higher where they are members; the others' numbers say nothing."""
    draw = torch.Generator().manual_seed(0)
    inside = torch.stack([attacks.coin(300, seed) for seed in range(12)])
    told = torch.randn(12, 300, generator=draw, dtype=torch.float64)
    told[:, :150] += 6.0 * inside[:, :150]
    found = attacks.likelihood_ratios(told, inside)
    limit = torch.quantile(found[~inside], 0.99)
    assert float((found[:, :150][inside[:, :150]] > limit).double().mean()) > 0.9
    assert float((found[:, 150:][inside[:, 150:]] > limit).double().mean()) < 0.1


@pytest.mark.nightly(job="benchmarks")
def test_an_attacked_network_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """With some noise a private model fits its rows, so that the attacks have something to attack."""
    x, y, world = attacks.populations(args("8"), 300)["digits, mlp"]
    assert world == World(inputs=(64,), classes=10, model="mlp")
    told = attacks.confidences(x, y, world, torch.ones(300, dtype=torch.bool), "8", 0)
    assert float((told > 0).double().mean()) > 0.5
