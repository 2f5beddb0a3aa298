"""Labels for unlabelled data from the prototypes of classes, of one model or of two, and the loss that goes with them.

Equations and algorithms are those of Mori et al., "Federated Source-free Domain Adaptation for Classification: Weighted Cluster
Aggregation for Unlabeled Data". Prototypes and information maximisation: Liang, Hu, Feng, "Do We Really Need to Access the Source
Data? Source Hypothesis Transfer for Unsupervised Domain Adaptation", ICML 2020.

Shapes: n samples of q features; M classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from tideline.numerics.clustering.cosine import cosines, nearest


@dataclass(frozen=True)
class Labelled:
    """What one model says of n samples: labels (n,) int64, and the similarity (n,) of each to the prototype of its label.

    prototypes (M, q), zeros for a class that has none; present (M,) bool: which have one. common: the mean cosine between two
    different prototypes, p of algorithm 2, over the classes that have one; 0 for fewer than two.
    """

    labels: Tensor
    similarity: Tensor
    prototypes: Tensor
    present: Tensor
    common: float


def pseudo_labels(z: Tensor, p: Tensor) -> Labelled:
    """Labels of features z (n, q) with softmax scores p (n, M) (eq. 4), in float64; ties go to the smallest class.

    Prototypes are means of z weighted by the scores, and each sample gets the class of the nearest by cosine; then means of z by
    these labels, and the nearest again. A class without any weight has no prototype and cannot be a label. Raises ValueError for
    no sample, sizes that do not fit, or features and scores that are not finite.
    """
    if z.ndim != 2 or p.ndim != 2 or len(z) != len(p) or not p.numel():
        raise ValueError(
            f"Features are of shape {tuple(z.shape)} and scores of {tuple(p.shape)}; rows for the same samples, please"
        )
    if not bool(torch.isfinite(p).all()) or bool((p < 0).any()):
        raise ValueError("Scores of classes are finite, and not negative")
    z, p = z.double(), p.double()
    first, _ = assigned(z, *weighted_means(z, p))
    prototypes, present = weighted_means(z, torch.nn.functional.one_hot(first, p.shape[1]).double())
    labels, similarity = assigned(z, prototypes, present)
    return Labelled(
        labels=labels, similarity=similarity, prototypes=prototypes, present=present, common=common(prototypes[present])
    )


def two_model(a: Labelled, b: Labelled) -> tuple[Tensor, Tensor]:
    """Labels (n,) from two models, and where they agree, (n,) bool (algorithm 2, lines 5 to 8).

    Where they do not, the label with the larger similarity wins, each divided by its model's mean similarity between prototypes,
    since the two live in different spaces of features. Where either mean is not positive nothing can be divided by it, and the
    similarities are compared as they are. Ties go to a, which is the model that training starts from. Raises ValueError unless
    both label the same number of samples.
    """
    if a.labels.shape != b.labels.shape:
        raise ValueError(f"One model labels {len(a.labels)} samples, the other {len(b.labels)}")
    agree = a.labels == b.labels
    by_a, by_b = (a.common, b.common) if a.common > 0 and b.common > 0 else (1.0, 1.0)
    wins = a.similarity / by_a >= b.similarity / by_b
    return torch.where(agree | wins, a.labels, b.labels), agree


def mixup(x: Tensor, labels: Tensor, agree: Tensor, mu: float, rng: Generator) -> Tensor:
    """Each sample x (n, ...) that two models label differently becomes (1 - mu) x + mu x' (algorithm 2, line 9).

    x' is drawn from the samples that they agree on, among those of the same label (n,); with none, x stays. agree (n,) bool. A
    new tensor. Raises ValueError for mu outside [0, 1], whole numbers, or sizes that do not fit.
    """
    if not 0 <= mu <= 1:
        raise ValueError(f"mu is {mu}; it lies between 0 and 1")
    if not x.is_floating_point() or not len(x) == len(labels) == len(agree):
        raise ValueError(
            f"Samples are {x.dtype} of shape {tuple(x.shape)}, for {len(labels)} labels; mixing wants as many, floating"
        )
    rows, others = partners(labels, agree, rng)
    mixed = x.clone()
    mixed[rows] = (1 - mu) * x[rows] + mu * x[others]
    return mixed


def partners(labels: Tensor, agree: Tensor, rng: Generator) -> tuple[Tensor, Tensor]:
    """The rows (m,) of samples in dispute that some sample of the same label (n,) can help, and one such sample each, (m,).

    The helpers are drawn uniformly from those in agree (n,), with replacement.
    """
    pool = agree.nonzero().flatten()
    pool = pool[labels[pool].argsort(stable=True)]
    classes = int(labels.max()) + 1 if len(labels) else 0
    count = torch.bincount(labels[pool], minlength=classes)
    first = count.cumsum(0) - count
    rows = (~agree & (count[labels] > 0)).nonzero().flatten()
    share = torch.rand(len(rows), generator=rng, dtype=torch.float64, device=rng.device).to(labels.device)
    of = labels[rows]
    return rows, pool[first[of] + (share * count[of]).long()]


def information_maximisation(logits: Tensor) -> Tensor:
    """L_IM = sum_m o_m log o_m + the mean entropy of the outputs, for logits (b, M) (eq. 9): a scalar, differentiable.

    o is the mean output: small where each output is sure of its class and the classes are used alike. 0 log 0 = 0. Between
    -log M and 0. Raises ValueError for no logits.
    """
    if logits.ndim != 2 or not logits.numel():
        raise ValueError(f"Logits are of shape {tuple(logits.shape)}; a batch of at least one row was expected")
    # Finite, so that a class that is ruled out adds 0 times a number.
    log_h = logits.log_softmax(1).clamp_min(torch.finfo(logits.dtype).min)
    log_o = log_h.logsumexp(0) - torch.log(log_h.new_tensor(len(log_h)))
    return (log_o.exp() * log_o).sum() - (log_h.exp() * log_h).sum(1).mean()


def weighted_means(z: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Means of z (n, q) with weights (n, M): (M, q), and which have any weight, (M,) bool; the others are zeros."""
    total = weights.sum(0)
    present = total > 0
    # The weights are made to sum to one first: tiny ones would lose digits in the product.
    return (weights / total.where(present, 1)).mT @ z, present


def assigned(z: Tensor, prototypes: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest prototype (M, q) that is present (M,) to each row of z (n, q): labels (n,) and cosines (n,)."""
    similarity = cosines(z, prototypes).masked_fill_(~present, -torch.inf)
    labels = nearest(similarity)
    return labels, similarity.gather(1, labels[:, None]).squeeze(1)


def common(prototypes: Tensor) -> float:
    """The mean cosine between two different rows of (m, q); 0 for fewer than two."""
    m = len(prototypes)
    if m < 2:
        return 0.0
    return float(cosines(prototypes, prototypes).fill_diagonal_(0).sum()) / (m * (m - 1))
