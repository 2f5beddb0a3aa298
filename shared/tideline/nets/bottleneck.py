"""Networks h = g o f of source-free adaptation: f a backbone with a narrow bottleneck, g one linear layer.

After Liang, Hu, Feng: *Do We Really Need to Access the Source Data?* (ICML 2020). The bottleneck is linear, batch-normed, with
dropout. No ReLU follows it, so that the cosine of f(x) and a weight vector w_m of g takes either sign. What batch norm measures
travels with f.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Self

from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from tideline.core.run import World
from tideline.nets import lenet
from tideline.nets.images import image_shape

DROPOUT = 0.5
Q_LENET = 128


class Bottlenecked(nn.Module):
    """x: (n, *inputs) -> logits (n, classes), by way of features f(x) (n, q).

    backbone: (n, *inputs) -> (n, d). With `normed` the classifier's weight is g_m v_m / |v_m| (Salimans, Kingma, NeurIPS 2016).
    """

    def __init__(self, backbone: nn.Module, d: int, q: int, classes: int, *, normed: bool = False) -> None:
        super().__init__()
        self.features = nn.Sequential(OrderedDict(backbone=backbone, bottleneck=bottleneck(d, q)))
        g = nn.Linear(q, classes)
        self.classifier = weight_norm(g) if normed else g

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(x))
        return logits


def bottleneck(d: int, q: int) -> nn.Sequential:
    """(n, d) -> (n, q)."""
    return nn.Sequential(OrderedDict(linear=nn.Linear(d, q), norm=nn.BatchNorm1d(q), dropout=nn.Dropout(DROPOUT)))


class LeNetBN(Bottlenecked):
    """LeNet's two convolutions before a bottleneck of 128."""

    @classmethod
    def of(cls, world: World) -> Self:
        """For a world of images of 8 pixels or more. Raises ConfigRefused for others."""
        channels, height, width = image_shape(world, lenet.LEAST, lenet.WRITE_SO)
        backbone = nn.Sequential(*lenet.convolutions(channels))
        return cls(backbone, lenet.convolved(height, width), Q_LENET, world.classes)
