"""Prototypes: contrasted between clients, and labels from them by one model and by two."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from scipy.stats import entropy
from sklearn.metrics.pairwise import cosine_similarity
from torch import Tensor

from tests.numerics.clouds import client, normal, seeded
from tests.numerics.examples import for_all
from tideline.numerics.labels.prototypes import (
    Labelled,
    Sets,
    class_means,
    classified,
    contrast,
    information_maximisation,
    log_likelihoods,
    mean_prototypes,
    partners,
    pseudo_labels,
    two_model,
)

seeds = st.integers(0, 10_000)
TAU = 0.7


def some(S: int, M: int, w: int, seed: int) -> Sets:
    """S sets in which about two in three classes exist."""
    present = torch.rand(S, M, generator=torch.Generator().manual_seed(seed)) < 0.67
    return Sets(normal(S, M, w, seed=seed) * present[:, :, None], present)


def by_hand(z: Tensor, y: int, sets: Sets) -> float:
    """The mean of log softmax over the sets that have y, a class at a time; 0 where none has."""
    found = []
    for C, there in zip(sets.prototypes, sets.present, strict=True):
        if bool(there[y]):
            total = sum(math.exp(float(z @ C[c]) / TAU) for c in range(len(C)) if bool(there[c]))
            found.append(float(z @ C[y]) / TAU - math.log(total))
    return sum(found) / len(found) if found else 0.0


@for_all(50, st.integers(0, 4), st.integers(2, 5), seeds)
def test_the_loss_is_its_definition(S: int, M: int, seed: int) -> None:
    """Over the samples whose class has a mean prototype, each term over the classes that its set has."""
    sets, z, y = some(S, M, 3, seed), normal(8, 3, seed=seed + 1), torch.arange(8) % M
    mean = mean_prototypes(sets)
    rows = [i for i in range(8) if bool(mean.present[0, y[i]])]
    terms = [-by_hand(z[i], int(y[i]), mean) - by_hand(z[i], int(y[i]), sets) for i in rows]
    assert float(contrast(z, y, mean, sets, TAU)) == pytest.approx(sum(terms) / len(rows) if rows else 0.0, abs=1e-10)


def test_its_gradient_is_that_of_differences() -> None:
    sets = some(3, 4, 3, 5)
    assert not bool(sets.present.all())
    z, y = normal(6, 3, seed=1).requires_grad_(), torch.arange(6) % 4
    torch.autograd.gradcheck(lambda z: contrast(z, y, mean_prototypes(sets), sets, TAU), (z,))


def test_without_any_prototype_there_is_nothing_to_learn() -> None:
    none = Sets(torch.zeros(0, 3, 2).double(), torch.zeros(0, 3, dtype=torch.bool))
    z = normal(4, 2, seed=0).requires_grad_()
    value = contrast(z, torch.arange(4) % 3, mean_prototypes(none), none, TAU)
    value.backward()
    assert float(value.detach()) == 0.0 and z.grad is not None and not bool(z.grad.any())


def test_equal_prototypes_give_the_logarithm_of_their_number() -> None:
    sets = Sets(torch.ones(2, 4, 3).double(), torch.tensor([[True] * 4] * 2))
    z, y = normal(5, 3, seed=0), torch.tensor([0, 1, 2, 3, 0])
    assert float(contrast(z, y, mean_prototypes(sets), sets, 70.0)) == pytest.approx(2 * math.log(4))


@for_all(50, st.integers(1, 4), seeds)
def test_prototypes_that_are_not_there_do_not_matter(S: int, seed: int) -> None:
    sets = some(S, 4, 3, seed)
    other = Sets(sets.prototypes + 1e6 * (~sets.present)[:, :, None], sets.present)
    z, y = normal(6, 3, seed=seed + 1), torch.arange(6) % 4
    assert torch.equal(log_likelihoods(z, y, sets, TAU), log_likelihoods(z, y, other, TAU))
    torch.testing.assert_close(mean_prototypes(sets).prototypes, mean_prototypes(other).prototypes)


def test_mean_prototypes_are_over_those_who_have_the_class() -> None:
    """Each counts alike; a class that none has is zeros and not there."""
    sets = Sets(
        torch.tensor([[[2.0], [1.0], [9.0]], [[4.0], [9.0], [9.0]]]), torch.tensor([[True, True, False], [True, False, False]])
    )
    mean = mean_prototypes(sets)
    assert mean.prototypes.tolist() == [[[3.0], [1.0], [0.0]]]
    assert mean.present.tolist() == [[True, True, False]]


def test_a_class_with_too_few_samples_is_not_told() -> None:
    z = torch.tensor([[1.0, 0.0], [3.0, 2.0], [7.0, 7.0], [5.0, 4.0]])
    means, counts = class_means(z, torch.tensor([0, 0, 2, 0]), 4, 2)
    assert means.tolist() == [[3.0, 2.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    assert counts.tolist() == [3, 0, 0, 0]
    with pytest.raises(ValueError, match="one for each"):
        class_means(z, torch.tensor([0]), 4, 2)


def test_what_nobody_has_is_not_predicted() -> None:
    mean = torch.tensor([[-1.0], [0.0], [-2.0]])
    found = classified(torch.tensor([[1.0], [-1.0]]), mean, torch.tensor([True, False, True]))
    assert found.argmax(1).tolist() == [0, 2]


@pytest.mark.parametrize("tau", [0.0, -1.0, math.nan])
def test_a_temperature_is_positive(tau: float) -> None:
    sets = some(1, 3, 2, 0)
    with pytest.raises(ValueError, match="temperature"):
        contrast(normal(2, 2, seed=0), torch.tensor([0, 1]), sets, sets, tau)


def labelled(labels: list[int], similarity: list[float], common: float) -> Labelled:
    """What a model says, as far as `two_model` looks at it."""
    none = torch.empty(0)
    return Labelled(torch.tensor(labels), torch.tensor(similarity, dtype=torch.float64), none, none, common)


def direct(z: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Equation 4, twice, class by class: labels, similarities, and the mean cosine between prototypes."""
    for _ in range(2):
        classes = [m for m in range(p.shape[1]) if p[:, m].sum() > 0]
        prototypes = np.array([(p[:, [m]] * z).sum(0) / p[:, m].sum() for m in classes])
        cos = cosine_similarity(z, prototypes)
        # Of classes that differ by rounding alone the first: one row is as near to every prototype as to any other.
        labels = np.array(classes)[(cos >= cos.max(1, keepdims=True) - 1e-13).argmax(1)]
        p = np.eye(p.shape[1])[labels]
    pairs = [float(cosine_similarity([a], [b])[0, 0]) for a, b in itertools.permutations(prototypes, 2)]
    return labels, cos.max(1), sum(pairs) / len(pairs) if pairs else 0.0


@for_all(50, st.integers(1, 40), st.integers(1, 6), st.integers(1, 7), seeds)
def test_it_is_equation_4(n: int, q: int, classes: int, seed: int) -> None:
    """Labels, similarities and the mean between prototypes are those of the loops, classes without samples left out."""
    z, p = normal(n, q, seed=seed), (4 * normal(n, classes, seed=seed + 1)).softmax(1)
    got, (labels, similarity, common) = pseudo_labels(z, p), direct(z.numpy(), p.numpy())
    assert got.labels.tolist() == labels.tolist()
    np.testing.assert_allclose(got.similarity.numpy(), similarity, atol=1e-12)
    assert got.common == pytest.approx(common, abs=1e-12)
    assert got.prototypes.shape == (classes, q) and got.present.shape == (classes,)
    assert got.present[got.labels].all()
    assert not got.prototypes[~got.present].any()


def test_clear_classes_are_found() -> None:
    z, y = client(120, 6, 4, 0, apart=6.0)
    z = z - z.mean(0)
    assert torch.equal(pseudo_labels(z.float(), (y + 1).softmax(1).float()).labels, y.argmax(1))


def test_prototypes_belong_to_the_one_hot_labels() -> None:
    """The final ones are means by the labels of the first pass, not of the scores."""
    z = torch.tensor([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0], [0.2, 1.0]])
    p = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.3, 0.7]])
    got = pseudo_labels(z, p)
    assert got.labels.tolist() == [0, 0, 1, 1]
    torch.testing.assert_close(got.prototypes, torch.tensor([[1.0, 0.1], [0.1, 1.0]], dtype=torch.float64))
    assert got.common == pytest.approx(0.2 / 1.01)


def test_a_class_nobody_has_is_left_out() -> None:
    """Without any score in the first pass, or without a label in the second: never a label, and no part of the mean."""
    z = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.1, 1.0]])
    p = torch.tensor([[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
    p[:, 3] = 1e-30  # a mean of all, the nearest prototype of nobody
    got = pseudo_labels(z, p)
    assert got.labels.tolist() == [1, 2, 2]
    assert got.present.tolist() == [False, True, True, False]
    assert got.common == pytest.approx(0.05 / math.hypot(0.05, 1), abs=1e-7)
    assert pseudo_labels(z, p[:, 1:2]).common == 0.0
    # Everything points away from the mean of the one class that has a score: it is the label all the same.
    assert pseudo_labels(torch.tensor([[1.0], [-3.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])).labels.tolist() == [0, 0]


def test_near_ties_are_decided_in_float64() -> None:
    t = 3e-4
    z = torch.tensor([[1.0, 0.0], [1.0, t], [1.0, 0.4 * t]])
    p = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    assert pseudo_labels(z, p).labels.tolist() == [0, 1, 0]


def test_the_normalised_similarity_decides() -> None:
    """0.6 / 0.3 beats 0.8 / 0.5; where they agree nothing is to be decided."""
    a, b = labelled([0, 1, 2], [0.8, 0.8, 0.1], 0.5), labelled([3, 1, 4], [0.6, 0.1, 0.05], 0.3)
    labels, agree = two_model(a, b)
    assert labels.tolist() == [3, 1, 2]
    assert agree.tolist() == [False, True, False]
    assert two_model(b, a)[0].tolist() == [3, 1, 2]


@pytest.mark.parametrize(("first", "second"), [(-0.5, 0.3), (0.5, -0.3), (0.0, 0.3), (0.5, 0.0), (-0.5, -0.3)])
def test_raw_similarities_where_a_mean_is_not_positive(first: float, second: float) -> None:
    a, b = labelled([0, 0], [0.8, 0.5], first), labelled([1, 1], [0.6, 0.7], second)
    assert two_model(a, b)[0].tolist() == [0, 1]


def test_ties_go_to_the_first() -> None:
    for common in (0.5, -0.5):
        assert two_model(labelled([4], [0.7], common), labelled([2], [0.7], common))[0].tolist() == [4]


@for_all(50, st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=30), seeds)
def test_partners_have_the_same_label(samples: list[tuple[int, bool]], seed: int) -> None:
    """A sample in dispute gets one of the same label that both models agree on, if there is one; the others get none."""
    labels = torch.tensor([y for y, _ in samples], dtype=torch.int64)
    agree = torch.tensor([sure for _, sure in samples], dtype=torch.bool)
    rows, others = partners(labels, agree, seeded(seed))
    helped = [i for i, (y, sure) in enumerate(samples) if not sure and (y, True) in samples]
    assert rows.tolist() == helped
    assert torch.equal(labels[rows], labels[others]) and agree[others].all()


def test_helpers_are_drawn_alike() -> None:
    """Each of the three of the label about equally often, by the generator alone."""
    labels, agree = torch.tensor([1, 0, 1, 0, 1] + [1] * 3000), torch.tensor([True] * 5 + [False] * 3000)
    _, others = partners(labels, agree, seeded(0))
    count = others.bincount(minlength=5).tolist()
    assert count[1] == count[3] == 0
    assert all(abs(count[i] - 1000) < 130 for i in (0, 2, 4))
    assert torch.equal(partners(labels, agree, seeded(0))[1], others)
    assert not torch.equal(partners(labels, agree, seeded(1))[1], others)


@for_all(50, st.integers(1, 20), st.integers(1, 9), st.floats(0.1, 30), seeds)
def test_information_maximisation_is_two_entropies(b: int, classes: int, sure: float, seed: int) -> None:
    """SciPy's mean entropy less the entropy of the mean: never positive, never below -log M."""
    logits = sure * normal(b, classes, seed=seed)
    h = logits.softmax(1).numpy()
    value = float(information_maximisation(logits))
    assert value == pytest.approx(float(entropy(h, axis=1).mean() - entropy(h.mean(0))), abs=1e-10)
    assert -math.log(classes) - 1e-10 <= value <= 1e-10


def test_its_best_and_its_worst() -> None:
    """Sure and even: -log M. Unsure everywhere, or one class alone: 0."""
    assert float(information_maximisation(1000 * torch.eye(4))) == pytest.approx(-math.log(4))
    assert float(information_maximisation(torch.zeros(3, 4))) == pytest.approx(0, abs=1e-6)
    assert float(information_maximisation(torch.tensor([[1000.0, 0.0]] * 3))) == pytest.approx(0, abs=1e-6)


def test_its_gradient() -> None:
    """By finite differences, and finite where a probability is nothing."""
    logits = normal(5, 4, seed=0).requires_grad_()
    assert torch.autograd.gradcheck(information_maximisation, (logits,))
    extreme = torch.tensor([[1e4, 0.0, -1e4], [0.0, 3e38, -torch.inf]], requires_grad=True)
    value = information_maximisation(extreme)
    value.backward()  # type: ignore[no-untyped-call]
    assert float(value.detach()) == pytest.approx(-math.log(2))
    assert extreme.grad is not None and bool(torch.isfinite(extreme.grad).all())


def test_bad_input_is_refused() -> None:
    z, p = torch.ones(3, 2), torch.ones(3, 4)
    for features, scores in ((z[:2], p), (z[:0], p[:0]), (z[0], p), (z, p[:, :0])):
        with pytest.raises(ValueError, match="rows for the same samples"):
            pseudo_labels(features, scores)
    with pytest.raises(ValueError, match="is not finite"):
        pseudo_labels(z * torch.nan, p)
    for scores in (p * torch.nan, p * torch.inf, -p):
        with pytest.raises(ValueError, match="Scores of classes"):
            pseudo_labels(z, scores)
    with pytest.raises(ValueError, match="One model labels 1 samples"):
        two_model(labelled([0], [0.5], 0.1), labelled([0, 1], [0.5, 0.5], 0.1))
    for logits in (torch.zeros(0, 3), torch.zeros(3), torch.zeros(3, 0)):
        with pytest.raises(ValueError, match="at least one row"):
            information_maximisation(logits)
