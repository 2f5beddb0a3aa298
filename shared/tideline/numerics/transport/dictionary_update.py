"""ClientUpdate (algorithm 2 of Fernandes Montesuma et al., 2024): a client's local passes over atoms and its own coordinates.

Shapes as in `dictionary`: K atoms of n points; d features; n_c classes; n_q points of the client; n_b points of a mini-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import torch
from torch import Generator, Tensor
from torch.optim.adam import adam

from tideline.numerics.labels.softmax import project
from tideline.numerics.transport.dictionary import Dictionary, Fit, Loss, logits_of, loss, soft_labels

OPTIMISERS = ("adam", "rows", "sgd")


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
        adam_step_(self.z, self.dense[0], (m.z1, m.z2), m.row_steps, rate_z)
        adam_step_(self.logits, self.dense[1], (m.logits1, m.logits2), m.row_steps, rate_y)
        adam_step_(self.alpha, f.alpha, (m.alpha1, m.alpha2), m.alpha_steps, rate_alpha)
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
            adam_step_(parts[0], gradient, (parts[1], parts[2]), taken, rate)
            for whole, part in zip((x, *moments), parts, strict=True):
                whole.index_copy_(1, rows, part)
        adam_step_(self.alpha, f.alpha, (m.alpha1, m.alpha2), m.alpha_steps, rate_alpha)
        m.row_steps[rows] += 1
        m.alpha_steps.add_(1)


def adam_step_(x: Tensor, gradient: Tensor, moments: tuple[Tensor, Tensor], taken: Tensor, rate: float) -> None:
    """One step of Adam (Kingma and Ba, 2015) in place, in one pass over the memory; taken: steps before this one.

    Rows of one mini-batch have taken equally many steps as long as the mini-batches are the same; if not, the most counts.
    """
    step = taken.max().float()
    first, second = moments
    adam(
        *([x], [gradient], [first], [second]),
        max_exp_avg_sqs=[],
        state_steps=[step],
        fused=True,
        lr=rate,
        beta1=0.9,
        beta2=0.999,
        eps=1e-8,
        weight_decay=0.0,
        amsgrad=False,
        maximize=False,
    )
