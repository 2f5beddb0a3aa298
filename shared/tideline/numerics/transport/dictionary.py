"""Dictionary learning over labelled point clouds: atoms whose barycenters are the clients' data.

Shapes: K atoms P of n points; d features; n_c classes; n_q points of a client Q; n_b points of a mini-batch. Equations and
algorithms are those of Fernandes Montesuma et al., "Dataset Dictionary Learning in a Wasserstein Space for Federated Domain
Adaptation", 2024.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from tideline.numerics.aggregation.averaging import weighted_sum
from tideline.numerics.transport.optimal_transport import (
    Barycenter,
    barycenter,
    carried,
    ground_cost,
    labelled,
    plan,
    squared_distances,
    transport_cost,
)

SMALLEST = 1e-6  # probability that a label is taken to have at least, so that its logarithm is finite


@dataclass(frozen=True)
class Dictionary:
    """The atoms: z (K, n, d), and soft labels y (K, n, n_c) on the simplex.

    The points of an atom stand in the order of their classes, n / n_c of each, when the dictionary is made; training keeps the
    order, whatever becomes of the labels.
    """

    z: Tensor
    y: Tensor


@dataclass(frozen=True)
class Fit:
    """Settings of `client_update.fit`. batch: points n_b of a mini-batch of each atom, a multiple of the classes.

    epochs: local passes E. rate: the step, unless z, labels' logits and alpha have their own. optimiser: "adam", moments of all
    rows move in every step; "rows", those of the mini-batch alone; "sgd", the plain gradient. beta, entropy, start and iterations
    as in `barycenter`; beta also weighs the labels of the loss, where None takes the largest feature cost of the mini-batch.
    """

    batch: int
    epochs: int = 1
    rate: float = 0.1
    rate_z: float | None = None
    rate_y: float | None = None
    rate_alpha: float | None = None
    optimiser: str = "adam"
    beta: float | None = None
    entropy: float = 0.0
    start: str = "atom"
    iterations: int = 10

    @property
    def rates(self) -> tuple[float, float, float]:
        z, y, alpha = (self.rate if own is None else own for own in (self.rate_z, self.rate_y, self.rate_alpha))
        return z, y, alpha


@dataclass(frozen=True)
class Loss:
    """f_l(P, alpha) (eq. 11), a tensor (), and its gradients by z (K, n, d), by the label logits (K, n, n_c) and by alpha (K,);
    the barycenter and the plan (n_b, n_q) from it to the data."""

    value: Tensor
    z: Tensor
    logits: Tensor
    alpha: Tensor
    barycenter: Barycenter
    plan: Tensor


def logits_of(y: Tensor) -> Tensor:
    """log max(y, 1e-6), each row centred: logits (..., n_c) that `soft_labels` takes back to y, unless an entry is smaller."""
    logits = y.clamp_min(SMALLEST).log()
    return logits - logits.mean(dim=-1, keepdim=True)


def soft_labels(logits: Tensor) -> Tensor:
    return logits.softmax(dim=-1)


def one_hot_logits(labels: Tensor, classes: int, confidence: float) -> Tensor:
    """Logits (..., n_c) whose softmax gives each label (...) the probability p0 = confidence, and shares the rest out evenly.

    s at the label and 0 elsewhere, s = log(p0 (n_c - 1) / (1 - p0)). The authors' code has s = 1, which for 10 classes gives the
    label a probability of 0.23. Raises ValueError unless 0 < confidence < 1.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"The confidence of a label is {confidence}; it is between 0 and 1, both excluded")
    s = math.log(confidence * max(classes - 1, 1) / (1 - confidence))
    return s * torch.nn.functional.one_hot(labels.long(), classes).to(torch.get_default_dtype())


def mean(dictionaries: Iterable[tuple[float, Dictionary]]) -> Dictionary:
    """sum_i a_i P_i (eq. 12) for weights a_i that sum to one, point by point; one operand in memory at a time.

    Labels are averaged as probabilities, not as logits, and so stay on the simplex.
    """
    total = weighted_sum((a, {"z": p.z, "y": p.y}) for a, p in dictionaries)
    return Dictionary(total["z"], total["y"])


def loss(dictionary: Dictionary, alpha: Tensor, z_q: Tensor, y_q: Tensor | None, settings: Fit, rng: Generator) -> Loss:
    """The cost of moving the barycenter B(alpha; P), of as many points as an atom, to the data z_q (n_q, d), y_q (n_q, n_c).

    With y_q the labelled cost T_c, without T_2 (eq. 11). The gradients are exact for constant plans (envelope theorem) and a
    constant beta: only the last barycentric map of the barycenter is differentiated. Raises ValueError as `barycenter` does.
    """
    b = barycenter(
        dictionary.z,
        dictionary.y,
        alpha,
        dictionary.z.shape[1],
        rng,
        start=settings.start,
        beta=settings.beta,
        entropy=settings.entropy,
        iterations=settings.iterations,
    )
    cost = squared_distances(b.z, z_q)
    beta = cost.amax() if settings.beta is None else cost.new_tensor(settings.beta)
    cost = labelled(cost, b.y, y_q, beta) if y_q is not None else cost
    gamma = plan(cost, settings.entropy)
    dz_B = pull(gamma, b.z, z_q)
    dy_B = torch.zeros_like(b.y) if y_q is None else beta * pull(gamma, b.y, y_q)
    plans = len(b.z) * with_idle_atoms(b, dictionary, alpha, settings.entropy)
    z, y, dalpha = pulled_back(plans, dictionary, alpha, dz_B, dy_B)
    return Loss(
        value=transport_cost(cost, gamma), z=z, logits=through_softmax(dictionary.y, y), alpha=dalpha, barycenter=b, plan=gamma
    )


def pull(gamma: Tensor, b: Tensor, q: Tensor) -> Tensor:
    """The gradient of sum_ij gamma_ij |b_i - q_j|^2 by b: 2 (sum_j gamma_ij b_i - sum_j gamma_ij q_j), (n_b, d)."""
    return 2 * (gamma.sum(dim=1, keepdim=True) * b).sub_(carried(gamma, q))


def with_idle_atoms(b: Barycenter, p: Dictionary, alpha: Tensor, entropy: float) -> Tensor:
    """The barycenter's plans, and those of atoms of weight zero, which it left out: the gradient by alpha needs them, or an atom
    once without weight could never gain any."""
    idle = alpha == 0
    if not bool(idle.any()):
        return b.plans
    plans = b.plans.clone()
    plans[idle] = plan(ground_cost(p.z[idle], b.z, p.y[idle], b.y, b.beta), entropy)
    return plans


def pulled_back(plans: Tensor, p: Dictionary, alpha: Tensor, dz_B: Tensor, dy_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients by the barycenter's z and y, taken back through z_B = sum_k alpha_k n_b plan_k^T z_k to z, y and alpha.

    plans (K, n, n_b) are n_b times those of the barycenter. With h_k = plan_k dz_B: dz_k = alpha_k h_k, dalpha_k = <h_k, z_k>.
    """
    h_z, h_y = (carried(plans.flatten(0, 1), db).view(*plans.shape[:2], -1) for db in (dz_B, dy_B))
    dalpha = (h_z.flatten(1) * p.z.flatten(1)).sum(1) + (h_y.flatten(1) * p.y.flatten(1)).sum(1)
    weight = alpha[:, None, None]
    return h_z.mul_(weight), h_y.mul_(weight), dalpha


def through_softmax(y: Tensor, dy: Tensor) -> Tensor:
    """The gradient by the logits of y = softmax(logits): y (dy - <y, dy>), (..., n_c)."""
    return y * (dy - (y * dy).sum(dim=-1, keepdim=True))
