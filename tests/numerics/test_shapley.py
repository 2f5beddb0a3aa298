"""Shapley values: the four axioms, the definition by orders of arrival, and a game with a known answer."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.budgets import examples
from tideline.numerics.labels.knowledge import leave_one_out, shapley

players, seeds = st.integers(1, 5), st.integers(0, 10_000)


def game(seed: int, S: int) -> dict[tuple[int, ...], float]:
    """A value at random for each set of players, by its bits."""
    v = torch.randn(1 << S, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).tolist()
    return {tuple(k for k in range(S) if bits >> k & 1): v[bits] for bits in range(1 << S)}


@settings(max_examples=examples(40))
@given(players, seeds)
def test_it_is_the_mean_over_orders_of_arrival(S: int, seed: int) -> None:
    """What a player adds to those before it, over all orders; and all of it is shared out."""
    v = game(seed, S)
    expected = torch.zeros(S, dtype=torch.float64)
    orders = list(permutations(range(S)))
    for order in orders:
        for i, k in enumerate(order):
            expected[k] += (v[tuple(sorted(order[: i + 1]))] - v[tuple(sorted(order[:i]))]) / len(orders)
    phi = shapley(v.__getitem__, S)
    torch.testing.assert_close(phi, expected)
    assert float(phi.sum()) == pytest.approx(v[tuple(range(S))] - v[()])


@settings(max_examples=examples(20))
@given(st.integers(2, 5), seeds)
def test_players_who_add_alike_or_nothing(S: int, seed: int) -> None:
    """A value by the number of players: all alike. A player who adds the same to every set gets that; one who adds none, 0."""
    size = torch.randn(S + 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).tolist()
    torch.testing.assert_close(shapley(lambda T: size[len(T)], S), torch.full((S,), (size[S] - size[0]) / S, dtype=torch.float64))
    v = game(seed, S - 1)
    phi = shapley(lambda T: v[tuple(k for k in T if k < S - 1)] + 2.5 * (S - 1 in T), S)
    assert float(phi[S - 1]) == pytest.approx(2.5)
    torch.testing.assert_close(phi[:-1], shapley(v.__getitem__, S - 1))


def test_gloves() -> None:
    """One left glove and two right ones; a pair is worth 1: 2/3, 1/6, 1/6. Left out alone, a right one is worth nothing."""

    def pair(T: tuple[int, ...]) -> float:
        return float(0 in T and len(T) > 1)

    assert shapley(pair, 3).tolist() == pytest.approx([2 / 3, 1 / 6, 1 / 6])
    assert leave_one_out(pair, 3).tolist() == [1.0, 0.0, 0.0]


def test_of_one_player_both_are_its_value() -> None:
    """v({0}) - v(none)."""
    v = {(): 0.5, (0,): 2.0}
    assert shapley(v.__getitem__, 1).tolist() == leave_one_out(v.__getitem__, 1).tolist() == [1.5]
