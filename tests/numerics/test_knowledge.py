"""Knowledge vote, quality, weights and Shapley values: by hand, by their definitions, and what holds of any tables."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from tests.numerics.examples import for_all
from tideline.numerics.labels import knowledge
from tideline.numerics.labels.knowledge import Vote, leave_one_out, quality, shapley, shares, strongest, vote

sources, seeds = st.integers(1, 5), st.integers(0, 10_000)
gates = st.floats(0.3, 0.95)


def drawn(S: int, seed: int, n: int = 12, K: int = 4, sharp: float = 4.0) -> Tensor:
    """Probabilities (S, n, K) in float64, some of them near one."""
    rng = torch.Generator().manual_seed(seed)
    return (sharp * torch.randn(S, n, K, generator=rng, dtype=torch.float64)).softmax(2)


def one_by_one(p: Tensor, gate: float) -> list[tuple[int, bool, list[int]]]:
    """The vote as it is defined, sample by sample: c*, u, and the supporters."""
    found = []
    for x in range(p.shape[1]):
        A = [k for k in range(len(p)) if float(p[k, x].max()) > gate]
        sure = bool(A)
        A = A or list(range(len(p)))
        votes = [sum(float(p[k, x].max()) for k in A if int(p[k, x].argmax()) == c) for c in range(p.shape[2])]
        chosen = votes.index(max(votes))
        found.append((chosen, sure, [k for k in A if int(p[k, x].argmax()) == chosen]))
    return found


def printed_quality(p: Tensor, gate: float, T: tuple[int, ...]) -> float:
    """Q(T) = sum_x u n_V max_c pbar_c, as it is printed."""
    if not T:
        return 0.0
    agreed = vote(p[list(T)], gate)
    return float((agreed.sure * agreed.support * agreed.mean.max(1).values).sum())


def test_a_vote_by_hand() -> None:
    """Two who are less sure outvote one who is surer; who is below the gate has no vote; where nobody is above it, all have."""
    p = torch.tensor(
        [
            [[0.95, 0.05, 0.0], [0.92, 0.04, 0.04], [0.5, 0.3, 0.2]],
            [[0.05, 0.91, 0.04], [0.1, 0.85, 0.05], [0.2, 0.6, 0.2]],
            [[0.02, 0.93, 0.05], [0.1, 0.85, 0.05], [0.1, 0.55, 0.35]],
        ],
        dtype=torch.float64,
    )
    agreed = vote(p, 0.9)
    assert agreed.label.tolist() == [1, 0, 1]
    assert agreed.sure.tolist() == [True, True, False]
    assert agreed.support.tolist() == [2, 1, 2]
    torch.testing.assert_close(agreed.mean, torch.stack([p[1:, 0].mean(0), p[0, 1], p[1:, 2].mean(0)]))


@for_all(50, sources, seeds, gates)
def test_a_vote_is_its_definition(S: int, seed: int, gate: float) -> None:
    p = drawn(S, seed)
    agreed = vote(p, gate)
    for x, (label, sure, V) in enumerate(one_by_one(p, gate)):
        assert (int(agreed.label[x]), bool(agreed.sure[x]), int(agreed.support[x])) == (label, sure, len(V))
        torch.testing.assert_close(agreed.mean[x], p[V, x].mean(0))


@for_all(50, sources, seeds, gates)
def test_quality_is_the_printed_one(S: int, seed: int, gate: float) -> None:
    p = drawn(S, seed)
    top, label = strongest(p)
    for T in [(), (0,), tuple(range(S)), tuple(range(1, S))]:
        found = quality(top[list(T)], label[list(T)], p.shape[2], gate)
        assert found == pytest.approx(printed_quality(p, gate, T), abs=1e-9)


@for_all(25, st.integers(2, 5), seeds)
def test_a_source_that_knows_nothing_has_no_focus(S: int, seed: int) -> None:
    """Its output is constant and uniform, and the gate above 1 / K: by either measure 0."""
    p = drawn(S, seed)
    p[S - 1] = 1 / p.shape[2]
    for by in (shapley, leave_one_out):
        assert float(by(lambda T: printed_quality(p, 0.3, T), S)[S - 1]) == pytest.approx(0, abs=1e-9)


@for_all(50, sources, seeds, st.floats(0, 1))
def test_weights_lie_on_the_simplex(S: int, seed: int, sure: float) -> None:
    """Whatever the focus; the target's is its share of sure samples over S + 1."""
    focus = torch.randn(S, generator=torch.Generator().manual_seed(seed))
    a = shares(focus, sure)
    assert a.shape == (S + 1,) and a.dtype == torch.float64
    assert bool((a >= 0).all()) and float(a.sum()) == pytest.approx(1, abs=1e-12)
    assert float(a[0]) == pytest.approx(sure / (S + 1))


def test_weights_by_hand() -> None:
    """In proportion to focus; negative focus is none; without any, and of one source, what the target leaves is shared alike."""
    assert shares(torch.tensor([3.0, 1.0, -9.0]), 0.8).tolist() == pytest.approx([0.2, 0.6, 0.2, 0.0])
    assert shares(torch.tensor([-1.0, 0.0]), 0.0).tolist() == pytest.approx([0.0, 0.5, 0.5])
    assert shares(torch.tensor([7.0]), 0.5).tolist() == pytest.approx([0.25, 0.75])


def test_a_broken_table_is_uniform() -> None:
    p = torch.tensor([[0.9, 0.1], [torch.nan, 0.5], [torch.inf, 0.0]])
    assert knowledge.finite(p).tolist() == [pytest.approx([0.9, 0.1]), [0.5, 0.5], [0.5, 0.5]]


def test_the_share_of_a_pair_is_beta_2_2() -> None:
    """The middle of three uniform numbers has its mean 1/2, variance 1/20 and distribution function x^2 (3 - 2 x)."""
    rng = torch.Generator().manual_seed(0)
    l_n = torch.tensor([knowledge.share_of_pair(torch.rand(3, generator=rng)) for _ in range(20_000)])
    assert float(l_n.mean()) == pytest.approx(0.5, abs=0.005)
    assert float(l_n.var()) == pytest.approx(0.05, abs=0.002)
    for x in (0.1, 0.3, 0.8):
        assert float((l_n <= x).double().mean()) == pytest.approx(x * x * (3 - 2 * x), abs=0.01)


def test_losses_by_hand() -> None:
    """Cross-entropy with a mixed label is that with the soft label, the divergence is its definition; both weigh rows."""
    rng = torch.Generator().manual_seed(3)
    logits = torch.randn(6, 4, generator=rng, dtype=torch.float64)
    label, partner = torch.tensor([0, 1, 2, 3, 0, 1]), torch.tensor([3, 1, 0, 2, 2, 0])
    weight = torch.tensor([1.0, 0, 1, 1, 0, 1]).double()
    soft = 0.7 * functional.one_hot(label, 4).double() + 0.3 * functional.one_hot(partner, 4).double()
    expected = (weight * -(soft * logits.log_softmax(1)).sum(1)).mean()
    torch.testing.assert_close(knowledge.mixed_cross_entropy(logits, label, partner, 0.7, weight), expected)
    mean = torch.randn(6, 4, generator=rng, dtype=torch.float64).softmax(1)
    expected = (weight * (mean * (mean.log() - logits.log_softmax(1))).sum(1)).mean()
    torch.testing.assert_close(knowledge.weighted_divergence(logits, mean, weight), expected)
    assert float(knowledge.weighted_divergence(mean.log(), mean, weight)) == pytest.approx(0, abs=1e-12)


def test_what_it_is_not_defined_for() -> None:
    for p in (torch.zeros(0, 3, 2), torch.zeros(3, 2)):
        with pytest.raises(ValueError, match="sources, samples, classes"):
            vote(p, 0.5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        shares(torch.ones(2), 1.5)
    assert isinstance(vote(drawn(1, 0), 0.5), Vote)


players, draws = st.integers(1, 5), st.integers(0, 10_000)


def game(seed: int, S: int) -> dict[tuple[int, ...], float]:
    """A value at random for each set of players, by its bits."""
    v = torch.randn(1 << S, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).tolist()
    return {tuple(k for k in range(S) if bits >> k & 1): v[bits] for bits in range(1 << S)}


@for_all(40, players, draws)
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


@for_all(20, st.integers(2, 5), draws)
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
    v = {(): 0.5, (0,): 2.0}
    assert shapley(v.__getitem__, 1).tolist() == leave_one_out(v.__getitem__, 1).tolist() == [1.5]
