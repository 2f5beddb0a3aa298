"""Dictionary learning over labelled point clouds: atoms whose barycenters are the clients' data, and a client's passes over them.

Shapes: K atoms P of n points; d features; n_c classes; n_q points of a client Q; n_b points of a mini-batch. Equations and
algorithms are those of Fernandes Montesuma et al., "Dataset Dictionary Learning in a Wasserstein Space for Federated Domain
Adaptation", 2024.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields

import torch
from torch import Generator, Tensor

from tideline.numerics.aggregation.averaging import weighted_sum
from tideline.numerics.aggregation.server_step import adam_
from tideline.numerics.labels.softmax import project
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

OPTIMISERS = ("adam", "rows", "sgd")
SMALLEST = 1e-6  # probability that a label is taken to have at least, so that its logarithm is finite


@dataclass(frozen=True)
class Dictionary:
    """The atoms: z (K, n, d), and soft labels y (K, n, n_c) on the simplex.

    At first an atom's points are in the order of their classes, n / n_c of each; training changes labels, but not the order.
    """

    z: Tensor
    y: Tensor


@dataclass(frozen=True)
class Fit:
    """Settings of `fit`. batch: points n_b of a mini-batch of each atom, a multiple of the classes.

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
    """sum_i a_i P_i (eq. 12) for weights a_i of sum one, one operand in memory at a time; labels as probabilities."""
    total = weighted_sum((a, {"z": p.z, "y": p.y}) for a, p in dictionaries)
    return Dictionary(total["z"], total["y"])


def loss(dictionary: Dictionary, alpha: Tensor, z_q: Tensor, y_q: Tensor | None, settings: Fit, rng: Generator) -> Loss:
    """The cost of moving the barycenter B(alpha; P), of as many points as an atom, to the data z_q (n_q, d), y_q (n_q, n_c).

    With y_q the labelled cost T_c, without T_2 (eq. 11). The gradients are exact for constant plans (envelope theorem) and a
    constant beta: only the last barycentric map of the barycenter is differentiated. Raises ValueError as `barycenter` does.
    """
    p, n, c = dictionary, dictionary.z.shape[1], settings
    b = barycenter(p.z, p.y, alpha, n, rng, start=c.start, beta=c.beta, entropy=c.entropy, iterations=c.iterations)
    cost = squared_distances(b.z, z_q)
    beta = cost.amax() if c.beta is None else cost.new_tensor(c.beta)
    cost = labelled(cost, b.y, y_q, beta)
    gamma = plan(cost, c.entropy)
    dz_B = pull(gamma, b.z, z_q)
    dy_B = torch.zeros_like(b.y) if y_q is None else beta * pull(gamma, b.y, y_q)
    plans = len(b.z) * with_idle_atoms(b, p, alpha, c.entropy)
    z, y, dalpha = pulled_back(plans, p, alpha, dz_B, dy_B)
    value, logits = transport_cost(cost, gamma), through_softmax(p.y, y)
    return Loss(value=value, z=z, logits=logits, alpha=dalpha, barycenter=b, plan=gamma)


def pull(gamma: Tensor, b: Tensor, q: Tensor) -> Tensor:
    """The gradient of sum_ij gamma_ij |b_i - q_j|^2 by b: 2 (sum_j gamma_ij b_i - sum_j gamma_ij q_j), (n_b, d)."""
    return 2 * (gamma.sum(dim=1, keepdim=True) * b).sub_(carried(gamma, q))


def with_idle_atoms(b: Barycenter, p: Dictionary, alpha: Tensor, entropy: float) -> Tensor:
    """The barycenter's plans, and those of atoms of weight zero, which it left out: else these could never gain any weight."""
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


@dataclass(frozen=True)
class Moments:
    """Adam's memory of one client: first and second moments of z (K, n, d), of the label logits (K, n, n_c) and of alpha (K,);
    steps taken by each row of the atoms (n,) and by alpha (). Tensors of no elements for plain gradient descent."""

    z1: Tensor
    z2: Tensor
    logits1: Tensor
    logits2: Tensor
    alpha1: Tensor
    alpha2: Tensor
    row_steps: Tensor
    alpha_steps: Tensor


@dataclass(frozen=True)
class Fitted:
    """What `fit` returns: new atoms, new alpha (K,), new moments, and the loss, its mean over the last epoch."""

    dictionary: Dictionary
    alpha: Tensor
    moments: Moments
    loss: float


def fresh(dictionary: Dictionary, optimiser: str = "adam") -> Moments:
    z, y = (dictionary.z, dictionary.y) if optimiser != "sgd" else (dictionary.z[:0, :0], dictionary.y[:0, :0])
    K, n = z.shape[:2]
    z1, z2, logits1, logits2 = (torch.zeros_like(x, memory_format=torch.contiguous_format) for x in (z, z, y, y))
    steps = torch.zeros(n + 1, dtype=torch.int64, device=z.device)
    return Moments(
        z1=z1,
        z2=z2,
        logits1=logits1,
        logits2=logits2,
        alpha1=z.new_zeros(K),
        alpha2=z.new_zeros(K),
        row_steps=steps[1:].clone(),
        alpha_steps=steps[0].clone(),
    )


def fit(
    dictionary: Dictionary,
    alpha: Tensor,
    moments: Moments,
    z_q: Tensor,
    y_q: Tensor | None,
    settings: Fit,
    rng: Generator,
    tick: Callable[[float], None] = lambda share: None,
) -> Fitted:
    """ClientUpdate (algorithm 2) from global atoms (K, n, d), this client's alpha (K,), its moments and its data (n_q, d).

    y_q (n_q, n_c) for a source, None for a target. In each of E epochs every mini-batch of the atoms is taken once: contiguous
    within each class, n_b / n_c points of it. The client's data are drawn with replacement, n_b / n_c of each class, a class
    without samples left out; a target's uniformly. alpha is projected on the simplex after every step. Arguments are left as they
    were. tick is called with the share of steps done. Raises ValueError for sizes that do not fit, or when a cost is no
    longer finite.
    """
    check(dictionary, alpha, z_q, y_q, settings)
    state = State.of(dictionary, alpha, moments, settings)
    pool = Pool.of(z_q, y_q)
    batches = tuple(slices(dictionary.y.shape[1], dictionary.y.shape[2], settings.batch))
    steps = settings.epochs * len(batches)
    losses = []
    for i in range(steps):
        rows = batches[i % len(batches)].to(z_q.device)
        f = loss(state.batch(rows), state.alpha, *pool.draw(len(rows), rng), settings, rng)
        state.step_(rows, f)
        losses.append(f.value)
        tick((i + 1) / steps)
    last = torch.stack(losses[-len(batches) :]).mean()
    return Fitted(Dictionary(state.z, soft_labels(state.logits)), state.alpha, state.moments, float(last))


def check(dictionary: Dictionary, alpha: Tensor, z_q: Tensor, y_q: Tensor | None, settings: Fit) -> None:
    """Sizes fit together. Raises ValueError."""
    (K, n, d), n_c = dictionary.z.shape, dictionary.y.shape[-1]
    if n % n_c or settings.batch % n_c or settings.batch < 1:
        raise ValueError(f"{n} points an atom and {settings.batch} a mini-batch; both are multiples of the {n_c} classes")
    if z_q.ndim != 2 or z_q.shape[1] != d or not len(z_q):
        raise ValueError(f"The data are of shape {tuple(z_q.shape)}; the atoms want rows of {d} features, and at least one")
    if y_q is not None and y_q.shape != (len(z_q), n_c):
        raise ValueError(f"The labels are of shape {tuple(y_q.shape)}; {(len(z_q), n_c)} was expected")
    if alpha.shape != (K,):
        raise ValueError(f"alpha is of shape {tuple(alpha.shape)}; there are {K} atoms")
    if settings.optimiser not in OPTIMISERS:
        raise ValueError(f"optimiser is {settings.optimiser!r}; it is one of {', '.join(OPTIMISERS)}")


def slices(n: int, n_c: int, n_b: int) -> Iterator[Tensor]:
    """Rows of each mini-batch of class-ordered atoms, n_b / n_c of each class, in order; the last may be shorter."""
    by_class = torch.arange(n).view(n_c, n // n_c)
    for columns in torch.split(by_class, n_b // n_c, dim=1):
        yield columns.flatten()


@dataclass(frozen=True)
class Pool:
    """A client's data in groups that are drawn from alike: its classes, or all of it as one. rows (n_q,), a group after the
    other; first and count, of each group that has a row; groups: how many there are, the empty ones too."""

    z: Tensor
    y: Tensor | None
    rows: Tensor
    first: Tensor
    count: Tensor
    groups: int

    @classmethod
    def of(cls, z: Tensor, y: Tensor | None) -> Pool:
        """Groups of labelled data (n_q, d), (n_q, n_c) are the likeliest classes."""
        group = torch.zeros(len(z), dtype=torch.int64) if y is None else y.argmax(-1).cpu()
        groups = 1 if y is None else y.shape[-1]
        count = torch.bincount(group, minlength=groups)
        first = count.cumsum(0) - count
        return cls(z, y, group.argsort(stable=True), first[count > 0], count[count > 0], groups)

    def draw(self, n: int, rng: Generator) -> tuple[Tensor, Tensor | None]:
        """n / groups rows of each group that has any, with replacement."""
        share = torch.rand(len(self.count), n // self.groups, generator=rng, dtype=torch.float64, device=rng.device).cpu()
        chosen = self.rows[(self.first[:, None] + (share * self.count[:, None]).long()).flatten()].to(self.z.device)
        return self.z[chosen], None if self.y is None else self.y[chosen]


@dataclass(frozen=True)
class State:
    """What `fit` changes in place, all of it its own copy. dense: gradients (K, n, d) and (K, n, n_c) of whole atoms, zero
    outside the mini-batch, for the optimiser that moves all rows; empty for the others."""

    z: Tensor
    logits: Tensor
    alpha: Tensor
    moments: Moments
    dense: tuple[Tensor, ...]
    settings: Fit

    @classmethod
    def of(cls, dictionary: Dictionary, alpha: Tensor, moments: Moments, settings: Fit) -> State:
        z, logits = dictionary.z.clone(memory_format=torch.contiguous_format), logits_of(dictionary.y).contiguous()
        own = Moments(*(getattr(moments, field.name).clone() for field in fields(moments)))
        dense = (torch.zeros_like(z), torch.zeros_like(logits)) if settings.optimiser == "adam" else ()
        return cls(z, logits, alpha.clone(), own, dense, settings)

    def batch(self, rows: Tensor) -> Dictionary:
        return Dictionary(self.z.index_select(1, rows), soft_labels(self.logits.index_select(1, rows)))

    def step_(self, rows: Tensor, f: Loss) -> None:
        """One step of the optimiser along a mini-batch's gradients; alpha back on the simplex."""
        {"adam": self.adam_, "rows": self.adam_rows_, "sgd": self.sgd_}[self.settings.optimiser](rows, f)
        self.alpha.copy_(project(self.alpha))

    def sgd_(self, rows: Tensor, f: Loss) -> None:
        rate_z, rate_y, rate_alpha = self.settings.rates
        self.z.index_add_(1, rows, f.z, alpha=-rate_z)
        self.logits.index_add_(1, rows, f.logits, alpha=-rate_y)
        self.alpha.sub_(f.alpha, alpha=rate_alpha)

    def adam_(self, rows: Tensor, f: Loss) -> None:
        """Adam over whole atoms: rows outside the mini-batch have gradient zero, and go on by their moments."""
        m, (rate_z, rate_y, rate_alpha) = self.moments, self.settings.rates
        for whole, part in zip(self.dense, (f.z, f.logits), strict=True):
            whole.index_copy_(1, rows, part)
        adam_(self.z, self.dense[0], (m.z1, m.z2), m.row_steps, rate_z, fused=True)
        adam_(self.logits, self.dense[1], (m.logits1, m.logits2), m.row_steps, rate_y, fused=True)
        adam_(self.alpha, f.alpha, (m.alpha1, m.alpha2), m.alpha_steps, rate_alpha, fused=True)
        for whole in self.dense:
            whole.index_fill_(1, rows, 0)
        m.row_steps.add_(1)
        m.alpha_steps.add_(1)

    def adam_rows_(self, rows: Tensor, f: Loss) -> None:
        """Adam over the rows of the mini-batch, which alone count the step."""
        m, (rate_z, rate_y, rate_alpha) = self.moments, self.settings.rates
        taken = m.row_steps[rows]
        for x, gradient, moments, rate in (
            (self.z, f.z, (m.z1, m.z2), rate_z),
            (self.logits, f.logits, (m.logits1, m.logits2), rate_y),
        ):
            parts = [whole.index_select(1, rows) for whole in (x, *moments)]
            adam_(parts[0], gradient, (parts[1], parts[2]), taken, rate, fused=True)
            for whole, part in zip((x, *moments), parts, strict=True):
                whole.index_copy_(1, rows, part)
        adam_(self.alpha, f.alpha, (m.alpha1, m.alpha2), m.alpha_steps, rate_alpha, fused=True)
        m.row_steps[rows] += 1
        m.alpha_steps.add_(1)
