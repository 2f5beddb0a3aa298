"""The optimiser of local training, as a method's settings name it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import torch
from torch import nn
from torch.optim import Optimizer

OPTIMISERS = ("sgd", "adam")


class Descent(Protocol):
    """Settings of local training's optimiser."""

    @property
    def optimiser(self) -> str: ...
    @property
    def rate(self) -> float: ...
    @property
    def momentum(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...


def optimiser(c: Descent, parameters: Iterable[nn.Parameter]) -> Optimizer:
    """SGD with momentum, or Adam (Kingma, Ba, ICLR 2015), fresh. c: settings with optimiser, rate, momentum, weight_decay.

    Weight decay is a term of the gradient in both. Adam has no use for `momentum`; its betas are 0.9 and 0.999.
    """
    if c.optimiser == "adam":
        return torch.optim.Adam(parameters, lr=c.rate, weight_decay=c.weight_decay)
    return torch.optim.SGD(parameters, lr=c.rate, momentum=c.momentum, weight_decay=c.weight_decay)
