"""What batch norm measured, measured anew on other rows.

Li et al., "Revisiting Batch Normalization For Practical Domain Adaptation", 2016 (arXiv 1603.04779).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tideline.core.step import no_tick
from tideline.learning.fit import uncounted


def normed(net: nn.Module) -> list[_BatchNorm]:
    """The layers of batch norm that keep running statistics."""
    return [each for each in net.modules() if isinstance(each, _BatchNorm) and each.track_running_stats]


def remeasure(
    net: nn.Module,
    x: Tensor,
    batch: int,
    rng: Generator,
    device: str = "cpu",
    tick: Callable[[float], None] = no_tick,
) -> None:
    """Running means and variances become averages over one pass of the rows x (n, *inputs), in place; nothing else changes.

    Rows pass in random order, `batch` of them or somewhat more at once, in parts of equal size up to a row, so that each counts
    alike. While they do, batch norm works with the part's own statistics, and dropout is off. n and batch are at least 2.
    """
    layers = normed(net.eval())
    parts = torch.randperm(len(x), generator=rng).tensor_split(max(1, len(x) // batch))
    kept = [layer.momentum for layer in layers]
    with uncounted(net), torch.no_grad():
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # a cumulative average
            layer.train()
        for done, rows in enumerate(parts if layers else (), 1):
            net(x[rows].to(device))
            tick(done / len(parts))
    for layer, momentum in zip(layers, kept, strict=True):
        layer.momentum = momentum
    net.eval()
