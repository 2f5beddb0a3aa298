"""Weights of cluster models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.metrics.pairwise import cosine_similarity
from torch import Tensor

from tests.numerics.clouds import normal, simplex_point
from tests.numerics.examples import for_all
from tideline.numerics.clustering.mixing import (
    MIXINGS,
    Mix,
    across,
    cosine_confidence,
    mean_weights,
    mixed,
    soft_weights,
    softmax_weights,
    start_weights,
)

clusters = st.integers(1, 6)
mixings = st.sampled_from(MIXINGS)
seeds = st.integers(0, 10_000)


def weights_of(count: int, size: int, seed: int) -> list[Tensor]:
    """Points of the simplex, one for each client."""
    return [simplex_point(size, seed + i) for i in range(count)]


def random_mix(C: int, seed: int) -> Mix:
    return mean_weights(weights_of(2 * C, C, seed), weights_of(2 * C, 2, seed + 50), [*range(C), *range(C)], C)


def soft_models(mix: Mix, models: list[Tensor], mixing: str) -> list[Tensor]:
    """f~_c as the specification of each mixing writes it, a cluster at a time."""
    C, a, soft = len(models), mix.a.tolist(), []
    for c in range(C):
        if mixing == "column":
            total = sum(a[o][c] for o in range(C))
            others = sum((a[o][c] / total * models[o] for o in range(C)), torch.zeros(()))
        else:
            others = sum((a[c][o] * models[o] for o in range(C)), torch.zeros(()))
        soft.append(mix.b[c, 0] * models[c] + mix.b[c, 1] * others)
    return soft


@for_all(50, clusters, mixings, seeds)
def test_the_start_is_mixed_in_steps(C: int, mixing: str, seed: int) -> None:
    """Mixing soft models, then with the own one, is mixing the cluster models with v (eq. 7)."""
    mix, models, own = random_mix(C, seed), list(normal(C, 7, seed=seed)), seed % C
    alpha, beta = simplex_point(C, seed + 90), simplex_point(2, seed + 91)
    soft = soft_models(mix, models, mixing)
    mean = sum((alpha[c] * soft[c] for c in range(C)), torch.zeros(()))
    v = start_weights(own, alpha, beta, soft_weights(mix, mixing))
    torch.testing.assert_close(v @ torch.stack(models), beta[0] * models[own] + beta[1] * mean, rtol=0, atol=1e-12)
    torch.testing.assert_close(soft_weights(mix, mixing) @ torch.stack(models), torch.stack(soft), rtol=0, atol=1e-12)


@for_all(50, clusters, mixings, seeds)
def test_the_start_is_equation_8(C: int, mixing: str, seed: int) -> None:
    """Its closed form, sums written out; in the row form the last factor is a_{c'c}."""
    mix, own, a = random_mix(C, seed), seed % C, random_mix(C, seed).a
    alpha, beta = simplex_point(C, seed + 90), simplex_point(2, seed + 91)
    A = across(mix.a, mixing)
    expected = []
    for c in range(C):
        last = sum(float(mix.b[o, 1] * alpha[o] * (A[c, o] if mixing == "column" else a[o, c])) for o in range(C))
        expected.append(float((c == own) * beta[0] + beta[1] * alpha[c] * mix.b[c, 0]) + float(beta[1]) * last)
    v = start_weights(own, alpha, beta, soft_weights(mix, mixing))
    np.testing.assert_allclose(v.numpy(), expected, atol=1e-12)


@for_all(50, clusters, mixings, seeds, st.data())
def test_all_weights_are_on_the_simplex(C: int, mixing: str, seed: int, data: st.DataObject) -> None:
    """Not negative, of sum one, whoever answered, with zeros and with float32 from the wire."""
    of = data.draw(st.lists(st.integers(0, C - 1), max_size=8))
    alphas = [softmax_weights(2 * a, 1e-3).float() for a in weights_of(len(of), C, seed)]
    mix = mean_weights(alphas, [b.float() for b in weights_of(len(of), 2, seed)], of, C)
    S = soft_weights(mix, mixing)
    v = start_weights(seed % C, simplex_point(C, seed), simplex_point(2, seed).float(), S)
    for weights in (*S, *across(mix.a, mixing).mT, *mix.b, v):
        assert weights.dtype is torch.float64
        assert float(weights.min()) >= 0
        assert float(weights.sum()) == pytest.approx(1, abs=1e-12)


def test_one_cluster_starts_from_itself() -> None:
    mix = mean_weights([torch.ones(1)], [torch.tensor([0.3, 0.7])], [0], 1)
    for mixing in MIXINGS:
        assert start_weights(0, torch.ones(1), torch.tensor([0.2, 0.8]), soft_weights(mix, mixing)).tolist() == [1.0]


def test_before_the_first_mix() -> None:
    """With f~_c = f_c the start is beta_0 of the own model and beta_1 alpha of all."""
    v = start_weights(1, torch.tensor([0.25, 0.25, 0.5]), torch.tensor([0.5, 0.5]), torch.eye(3))
    assert v.tolist() == [0.125, 0.625, 0.25]


def test_means_over_the_members() -> None:
    """Rows are the clusters that the clients are in; a cluster without an answer has no say and stands alone."""
    alphas = [torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 0.5, 0.5]), torch.tensor([0.5, 0.0, 0.5])]
    betas = [torch.tensor([1.0, 0.0]), torch.tensor([0.25, 0.75]), torch.tensor([0.5, 0.5])]
    mix = mean_weights(alphas, betas, [2, 0, 2], 3)
    assert mix.a.tolist() == [[0.0, 0.5, 0.5], [0.0, 0.0, 0.0], [0.75, 0.0, 0.25]]
    assert mix.b.tolist() == [[0.25, 0.75], [1.0, 0.0], [0.75, 0.25]]
    for mixing in MIXINGS:
        assert soft_weights(mix, mixing)[1].tolist() == [0.0, 1.0, 0.0]


def test_both_mixings_of_known_means() -> None:
    """column: each column by its sum, and a column of zeros is the identity's. row: the transpose as it is."""
    a = torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.75, 0.0], [0.25, 0.75, 0.0]])
    assert across(a, "column").tolist() == [[0.5, 0.25, 0.0], [0.25, 0.375, 0.0], [0.25, 0.375, 1.0]]
    assert across(a, "row").tolist() == a.mT.tolist()
    S = soft_weights(Mix(a, torch.tensor([[0.5, 0.5]] * 3, dtype=torch.float64)), "row")
    assert S.tolist() == [[0.75, 0.25, 0.0], [0.125, 0.875, 0.0], [0.125, 0.375, 0.5]]


@for_all(30, st.integers(1, 20), st.integers(1, 6), seeds)
def test_confidence_is_the_nearest_classs_cosine(n: int, classes: int, seed: int) -> None:
    """Equation 1 by scikit-learn's cosines; the length of a feature does not count."""
    z, w = normal(n, 4, seed=seed), normal(classes, 4, seed=seed + 1)
    got = cosine_confidence(z, w)
    assert got.shape == () and got.dtype is torch.float64
    assert float(got) == pytest.approx(float(cosine_similarity(z.numpy(), w.numpy()).max(1).mean()), abs=1e-12)
    assert float(cosine_confidence(7 * z, w)) == pytest.approx(float(got), abs=1e-12)


@for_all(30, st.lists(st.floats(-30, 30), min_size=1, max_size=6), st.sampled_from([1.0, 0.05, 1e-3, 1e-6]))
def test_softmax_weights_are_scipys(scores: list[float], temperature: float) -> None:
    got = softmax_weights(torch.tensor(scores, dtype=torch.float64), temperature)
    np.testing.assert_allclose(got.numpy(), softmax(np.array(scores) / temperature), atol=1e-9)
    assert float(got.sum()) == pytest.approx(1, abs=1e-12)
    assert torch.equal(softmax_weights(torch.tensor(scores[:1] * 3), temperature), torch.full((3,), 1 / 3, dtype=torch.float64))


def test_models_are_mixed_with_their_buffers() -> None:
    """Parameters and running means are summed, counters take the maximum, and the models stay as they were."""
    models = [
        {"w": torch.tensor([1.0, 2.0]), "running_mean": torch.tensor([4.0]), "num_batches_tracked": torch.tensor(7)},
        {"w": torch.tensor([3.0, 6.0]), "running_mean": torch.tensor([8.0]), "num_batches_tracked": torch.tensor(3)},
    ]
    got = mixed(models, torch.tensor([0.25, 0.75], dtype=torch.float64))
    assert {name: x.tolist() for name, x in got.items()} == {"w": [2.5, 5.0], "running_mean": [7.0], "num_batches_tracked": 7}
    assert models[0]["w"].tolist() == [1.0, 2.0]
    assert torch.equal(mixed(models[:1], torch.ones(1))["w"], models[0]["w"])


def test_bad_weights_are_refused() -> None:
    """Of the wrong size, negative, not finite, not of sum one; clusters that do not exist; lists that do not fit."""
    half, mix = torch.full((2,), 0.5), Mix(torch.eye(2), torch.eye(2))
    for bad in (torch.ones(1), torch.tensor([1.5, -0.5]), torch.tensor([torch.nan, 1.0]), torch.tensor([0.6, 0.6]), half[None]):
        for alpha, beta in ((bad, half), (half, bad)):
            with pytest.raises(ValueError, match="sum to one"):
                mean_weights([alpha], [beta], [0], 2)
            with pytest.raises(ValueError, match="sum to one"):
                start_weights(0, alpha, beta, torch.eye(2))
    for own in (-1, 2):
        with pytest.raises(ValueError, match="cluster"):
            mean_weights([half], [half], [own], 2)
        with pytest.raises(ValueError, match="cluster"):
            start_weights(own, half, half, torch.eye(2))
    with pytest.raises(ValueError, match="from 2 clients"):
        mean_weights([half], [half], [0, 1], 2)
    with pytest.raises(ValueError, match="one of column, row"):
        soft_weights(mix, "both")


def test_bad_scores_and_models_are_refused() -> None:
    """No scores, none that are finite, no temperature; no sample; models that do not fit."""
    for scores in (torch.zeros(0), torch.tensor([1.0, torch.nan])):
        with pytest.raises(ValueError, match="at least one score"):
            softmax_weights(scores, 1.0)
    for temperature in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="positive"):
            softmax_weights(torch.ones(2), temperature)
    with pytest.raises(ValueError, match="0 samples"):
        cosine_confidence(torch.zeros(0, 2), torch.ones(3, 2))
    for models, given_ in (([], torch.ones(0)), ([{"w": torch.ones(1)}], torch.ones(2))):
        with pytest.raises(ValueError, match="one for each"):
            mixed(models, given_)
    with pytest.raises(ValueError, match="the same tensors"):
        mixed([{"w": torch.ones(1)}, {"v": torch.ones(1)}], torch.ones(2))
