"""Scoring as a phase like any other: held-out rows, nothing sent but declared metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from tideline.core.phase import MOST_VALUES, RIGHT, WRONG, Folded, Phase, Replies, Table, Turn, unchanged
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, field, record
from tideline.core.run import ClientId
from tideline.core.step import Outcome, Site, Step, View
from tideline.nets import rows_of
from tideline.numerics.labels.calibration import BINS, Tally, calibration_error, nothing, tally

C = TypeVar("C")  # settings
S = TypeVar("S")  # the coordinator's state
T = TypeVar("T")  # what a site is sent
M = TypeVar("M")  # its memory
Q = TypeVar("Q")  # what it predicts with: what is sent, or one of several things in that

Offer: TypeAlias = Callable[[S, Turn[C]], Mapping[ClientId, T]]
Predict: TypeAlias = Callable[[Q, M, Site[C], Tensor], Tensor]
Several: TypeAlias = Callable[[T], Sequence[Q]]
ROWS = 512  # rows scored at once
BIN_NAMES = tuple(f"{b / BINS:.2f} to {(b + 1) / BINS:.2f}" for b in range(BINS))


@record
class Histogram:
    """What a scoring tells of confidences: how many held-out rows of each bin were predicted right, and wrong."""

    right: Tensor = field(f"{BINS}", Exposure.COUNT, low=0, doc="held-out rows predicted right, by confidence")
    wrong: Tensor = field(f"{BINS}", Exposure.COUNT, low=0, doc="held-out rows predicted wrong, by confidence")


def alone(order: T) -> Sequence[T]:
    """An order that holds one thing to predict with, itself."""
    return (order,)


def evaluate(
    offer: Offer[S, C, T],
    predict: Predict[Q, M, C],
    *,
    takes: type[T] = Nothing,  # type: ignore[assignment]
    keeps: type[M] = Nothing,  # type: ignore[assignment]
    name: str = "score",
    metrics: tuple[str, ...] = ("accuracy",),
    confidence: bool = False,
    each: Several[T, Q] = alone,  # type: ignore[assignment]
) -> Phase[C, S]:
    """A phase that scores each asked client's held-out rows.

    offer(state, turn) -> {client: what it needs to predict with}; predict(message, memory, site, x (b, *inputs)) ->
    probabilities or logits (b, classes). The accuracy in [0, 1] is told under each of `metrics`; where a site has no labels
    to score with, nothing is told. With `confidence` the calibration error `ece` and the histogram of confidences are told too,
    of what must then be logits, or logarithms of probabilities. Where an order holds several things to predict with, `each`
    gives them: they predict one after the other, and what is told is their mean, as if each row were there once for each.
    """
    if confidence:
        return with_confidence(offer, predict, takes, keeps, name, metrics, each)

    def score(order: T, memory: M, site: Site[C]) -> Outcome[Nothing, M]:
        values = [value for one in each(order) if (value := accuracy(predict, one, memory, site)) is not None]
        value = sum(values) / len(values) if values else None
        return Outcome(Nothing(), memory, {} if value is None else dict.fromkeys(metrics, value))

    step = Step(name, score, takes, keeps, Nothing, metrics, View.HELD_OUT)
    return Phase(name, step, ask=offer, fold=unchanged)


def with_confidence(
    offer: Offer[S, C, T],
    predict: Predict[Q, M, C],
    takes: type[T],
    keeps: type[M],
    name: str,
    metrics: tuple[str, ...],
    each: Several[T, Q],
) -> Phase[C, S]:
    """The phase that tells confidences too."""

    def score(order: T, memory: M, site: Site[C]) -> Outcome[Histogram, M]:
        found = sum((tallied(predict, one, memory, site) for one in each(order)), nothing())
        return Outcome(Histogram(found.right, found.wrong), memory, told_of(found, metrics))

    step = Step(name, score, takes, keeps, Histogram, (*metrics, "ece"), View.HELD_OUT)
    return Phase(name, step, ask=offer, fold=histograms)


def told_of(found: Tally, metrics: tuple[str, ...]) -> dict[str, float]:
    """The accuracy under each name, and the calibration error; nothing of no row."""
    n = int((found.right + found.wrong).sum())
    share = int(found.right.sum()) / n if n else 0.0
    return {**dict.fromkeys(metrics, share), "ece": calibration_error(found)} if n else {}


def tallied(predict: Predict[Q, M, C], order: Q, memory: M, site: Site[C]) -> Tally:
    """The confidences of a site's held-out rows; none without labels."""
    return sum((tally(out, y) for out, y in predicted(predict, order, memory, site)), nothing())


def histograms(state: S, replies: Replies[Histogram], turn: Turn[C]) -> S | Folded[S]:
    """The state as it is, and for people the histogram of each site that had rows to score."""
    read = dict(replies.items())
    rows = tuple(k for k, each in read.items() if int(each.right.sum() + each.wrong.sum()))
    if not rows or 2 * len(rows) * BINS > MOST_VALUES:
        return state
    tables = {
        name: Table(rows, BIN_NAMES, tuple(tuple(map(float, getattr(read[k], side).tolist())) for k in rows))
        for name, side in ((RIGHT, "right"), (WRONG, "wrong"))
    }
    return Folded(state, tables=tables)


def accuracy(predict: Predict[Q, M, C], order: Q, memory: M, site: Site[C]) -> float | None:
    """The share of held-out rows whose largest output is their label; None without labels."""
    right = [int((out.argmax(1) == y).sum()) for out, y in predicted(predict, order, memory, site)]
    return sum(right) / len(site.data) if right else None


def predicted(predict: Predict[Q, M, C], order: Q, memory: M, site: Site[C]) -> Iterator[tuple[Tensor, Tensor]]:
    """Outputs (b, classes) on the CPU and labels (b,) of held-out rows, ROWS at a time; none without labels."""
    data = site.data
    for at in range(0, len(data) if data.y is not None else 0, ROWS):
        assert data.y is not None
        with torch.no_grad():
            out = predict(order, memory, site, data.x[at : at + ROWS]).cpu()
        site.tick(min(at + ROWS, len(data)) / len(data))
        yield out, data.y[at : at + ROWS]


def outputs(net: nn.Module, x: Tensor, device: str) -> Tensor:
    """A network's outputs in evaluation mode: x (b, *inputs) -> (b, classes), on the CPU."""
    net.eval()
    with torch.no_grad():
        return torch.cat([net(rows.to(device)).cpu() for rows in torch.split(x, rows_of(x))])
