"""Prototypes of classes: labels for unlabelled data from those of one model or two, and the losses that draw samples to them.

Labels from prototypes: Mori et al., "Federated Source-free Domain Adaptation for Classification: Weighted Cluster Aggregation
for Unlabeled Data". Prototypes and information maximisation: Liang, Hu, Feng, "Do We Really Need to Access the Source Data?
Source Hypothesis Transfer for Unsupervised Domain Adaptation", ICML 2020. Prototypes of several clients (FedPCL): Tan et al.,
"Federated Learning from Pre-Trained Models: A Contrastive Learning Approach", NeurIPS 2022.

Shapes: n or b samples of q or w features; M classes; S sets of prototypes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional

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


@dataclass(frozen=True)
class Sets:
    """Prototypes (S, M, w), zeros where there is none, and present (S, M) bool: which of them exist."""

    prototypes: Tensor
    present: Tensor


def class_means(z: Tensor, labels: Tensor, classes: int, least: int) -> tuple[Tensor, Tensor]:
    """C^c (M, w), the mean of z (n, w) over the samples of each class of labels (n,), and how many there are, (M,) int64.

    Computed in float64, given in z's dtype. A class with fewer than `least` samples has zeros and the count 0: its mean would say
    too much of each of them. Raises ValueError where there is not a label for each sample.
    """
    if z.ndim != 2 or labels.shape != z.shape[:1]:
        raise ValueError(f"Samples are of shape {tuple(z.shape)}, and labels of {tuple(labels.shape)}; one for each, please")
    hot = functional.one_hot(labels, classes).double()
    count = hot.sum(0)
    means = hot.mT @ z.detach().double() / count.clamp_min(1)[:, None]
    enough = count >= least
    return (means * enough[:, None]).to(z.dtype), (count * enough).long()


def mean_prototypes(sets: Sets) -> Sets:
    """Cbar^c, the mean of C_j^c over the sets that have the class: one set, with zeros for a class that none has."""
    weight = sets.present.double()
    total = torch.einsum("sm,smw->mw", weight, sets.prototypes.double())
    mean = (total / weight.sum(0).clamp_min(1)[:, None]).to(sets.prototypes.dtype)
    return Sets(mean[None], sets.present.any(0)[None])


def log_likelihoods(z: Tensor, y: Tensor, sets: Sets, tau: float) -> Tensor:
    """The mean of log softmax_c(z . C_j^c / tau)[y] over the sets j that have the class y: (b,); 0 where none has.

    The softmax of a set is over the classes that it has. z (b, w), y (b,). Differentiable in z. Raises ValueError for a tau that
    is not positive.
    """
    if not tau > 0:
        raise ValueError(f"The temperature is {tau}; it is positive")
    has = sets.present[:, y]
    logits = (torch.einsum("bw,smw->sbm", z, sets.prototypes) / tau).masked_fill(~sets.present[:, None, :], -torch.inf)
    # A set that does not have y is left out before its logarithm, which would be infinite.
    logits = torch.where(has[:, :, None], logits, 0)
    chosen = logits.log_softmax(2).gather(2, y.expand(len(has), -1)[:, :, None]).squeeze(2)
    return (chosen * has).sum(0) / has.sum(0).clamp_min(1)


def contrast(z: Tensor, y: Tensor, mean: Sets, each: Sets, tau: float) -> Tensor:
    """The mean of L over the samples whose class has a mean prototype, a scalar; 0 where none has.

    L = - log softmax_c(z . Cbar^c / tau)[y] - (1 / |P|) sum_{j in P} log softmax_c(z . C_j^c / tau)[y], P: those of `each`
    that have y. z (b, w), y (b,); mean: one set. Raises ValueError as `log_likelihoods` does.
    """
    both = log_likelihoods(z, y, mean, tau) + log_likelihoods(z, y, each, tau)
    known = mean.present[0, y]
    return -(both * known).sum() / known.sum().clamp_min(1)


def classified(z: Tensor, mean: Tensor, present: Tensor) -> Tensor:
    """z . Cbar^c of z (b, w) for the classes that have a prototype, (M, w) and present (M,): (b, M); -inf for the others."""
    return (z @ mean.mT).masked_fill(~present, -torch.inf)
