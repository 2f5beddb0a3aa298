"""Early stopping: an order's epochs end when the loss on the site's validation rows gets no better (Prechelt, 1998).

Which epoch was best is decided by rows that are not trained on. What is trained is held twice at most: as it is, and as it was
after the best epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tideline.core.step import Data
from tideline.learning.loading.ahead import in_parts

ROWS = 512  # rows looked at together
Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


class BestEpoch:
    """Remembers the weights of the best epoch. `patience`: so many epochs without a better one, and the training is over.

    data  labelled rows that are not trained on
    loss  the mean loss of a batch, as in training; it is asked in evaluation mode
    """

    def __init__(self, net: nn.Module, loss: Loss, optimiser: Optimizer, data: Data, patience: int, device: str = "cpu") -> None:
        self.net, self.loss, self.data, self.patience, self.device = net, loss, data, patience, device
        moving = (p for group in optimiser.param_groups for p in group["params"])
        every = {id(w): w for w in chain(net.parameters(), net.buffers(), moving) if w.is_floating_point()}
        self._live: tuple[Tensor, ...] = tuple(every.values())
        self._kept: tuple[Tensor, ...] = ()
        self._least, self._since = float("inf"), 0

    def over(self) -> bool:
        """Call it after each epoch. Whether the training is over."""
        value = self.measured()
        if value < self._least:
            self._least, self._since = value, 0
            self._kept = tuple(w.detach().clone() for w in self._live)
        else:
            self._since += 1
        return self._since >= self.patience

    def measured(self) -> float:
        """The mean loss over the rows; the network is in training mode afterwards, as before."""
        assert self.data.y is not None, "rows for validation have labels here"
        total, done = 0.0, 0
        self.net.eval()
        with torch.no_grad():
            for x in in_parts(self.data.x, ROWS):
                y = self.data.y[done : done + len(x)]
                total += float(self.loss(self.net, x.to(self.device), y.to(self.device)).detach()) * len(x)
                done += len(x)
        self.net.train()
        return total / done

    def restore(self) -> None:
        """Bring the weights of the best epoch back; where no epoch had a loss that is a number, the last ones stay."""
        with torch.no_grad():
            for live, kept in zip(self._live, self._kept, strict=False):
                live.copy_(kept)
