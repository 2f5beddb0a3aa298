"""Scoring as a phase like any other: held-out rows, nothing sent but declared metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tideline.core.data import View
from tideline.core.phase import Phase, Turn, unchanged
from tideline.core.record import Nothing
from tideline.core.run import ClientId
from tideline.core.step import Outcome, Site, Step
from tideline.nets import rows_of

Offer = Callable[[Any, Turn], Mapping[ClientId, Any]]
Predict = Callable[[Any, Any, Site, Tensor], Tensor]
ROWS = 512  # rows scored at once


def evaluate(
    offer: Offer,
    predict: Predict,
    *,
    takes: type[Any] = Nothing,
    keeps: type[Any] = Nothing,
    name: str = "score",
    metrics: tuple[str, ...] = ("accuracy",),
) -> Phase:
    """A phase that scores each asked client's held-out rows.

    offer(state, turn) -> {client: what it needs to predict with}; predict(message, memory, site, x (b, *inputs)) ->
    probabilities or logits (b, classes). The accuracy in [0, 1] is told under each of `metrics`; where a site has no labels
    to score with, nothing is told.
    """

    def score(order: Any, memory: Any, site: Site) -> Outcome[Nothing, Any]:
        value = accuracy(predict, order, memory, site)
        return Outcome(Nothing(), memory, {} if value is None else dict.fromkeys(metrics, value))

    step = Step(name, score, takes, keeps, Nothing, metrics, View.HELD_OUT)
    return Phase(name, step, ask=offer, tell=unchanged)


def accuracy(predict: Predict, order: Any, memory: Any, site: Site) -> float | None:
    """The share of held-out rows whose largest output is their label; None without labels."""
    data = site.data
    if data.y is None or len(data) == 0:
        return None
    right = 0
    with torch.no_grad():
        for at in range(0, len(data), ROWS):
            guess = predict(order, memory, site, data.x[at : at + ROWS]).argmax(1).cpu()
            right += int((guess == data.y[at : at + ROWS]).sum())
            site.tick(min(at + ROWS, len(data)) / len(data))
    return right / len(data)


def outputs(net: nn.Module, x: Tensor, device: str) -> Tensor:
    """A network's outputs in evaluation mode: x (b, *inputs) -> (b, classes), on the CPU."""
    net.eval()
    with torch.no_grad():
        return torch.cat([net(rows.to(device)).cpu() for rows in torch.split(x, rows_of(x))])
