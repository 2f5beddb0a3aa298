"""Predictions where classes are more or less frequent than where the classifier learnt.

Saerens, Latinne, Decaestecker, "Adjusting the Outputs of a Classifier to New a Priori Probabilities: A Simple Procedure", Neural
Computation 14, 2002.

Shapes: n rows, K classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tideline.numerics.labels.scores import are_probabilities

PSEUDO = 1.0  # rows of each class, as frequent as at the sources, that stand for what was known before
STEPS, STILL = 200, 1e-6
NEVER = -1e4  # in place of -inf: beyond all logits, and a number wherever it is stored and added


def shifted_prior(p: Tensor, prior: Tensor, pseudo: float = PSEUDO) -> Tensor:
    """The shares of classes (K,) that best explain predictions p (n, K) of a classifier that learnt at shares `prior` (K,).

    EM from `prior`, drawn towards it by `pseudo` rows for each class (a Dirichlet prior). float64, sums to one; `prior` without a
    row. A class that has no share at the sources gets none.
    """
    source = prior.double() / prior.double().sum()
    if not len(p):
        return source
    own, q = p.double(), source
    added = pseudo * len(source) * source
    for _ in range(STEPS):
        counted = reweighted(own, source, q).sum(0) + added
        last, q = q, counted / counted.sum()
        if float((q - last).abs().sum()) < STILL:
            break
    return q


def reweighted(p: Tensor, prior: Tensor, target: Tensor) -> Tensor:
    """Predictions p (n, K) made at class shares `prior`, at shares `target`: p_k target_k / prior_k, summing to one."""
    tiny = torch.finfo(torch.float64).tiny
    there = target.double() / prior.double().clamp_min(tiny)
    made = p.double() * torch.where(prior > 0, there, torch.zeros_like(there))
    return made / made.sum(1, keepdim=True).clamp_min(tiny)


def log_ratios(prior: Tensor, target: Tensor) -> Tensor:
    """log(target_k / prior_k) (K,) float64: what, added to logits, makes of predictions at `prior` those at `target`.

    NEVER for a class without a share on either side.
    """
    there = (prior > 0) & (target > 0)
    tiny = torch.finfo(torch.float64).tiny
    made = target.double().clamp_min(tiny).log() - prior.double().clamp_min(tiny).log()
    return torch.where(there, made, torch.full_like(made, NEVER))


def shifted_logits(out: Tensor, ratios: Tensor) -> Tensor:
    """Logits (n, K), with log-ratios (K,) added. out: logits, logarithms of probabilities, or probabilities."""
    logits = out.clamp_min(torch.finfo(out.dtype).tiny).log() if are_probabilities(out) else out
    return logits + ratios.to(logits.dtype)
