"""The networks of federated adversarial adaptation's experiments on digits, whole and small, for images of 16 pixels and more.

Peng, Huang, Zhu, Saenko, "Federated Adversarial Domain Adaptation", ICLR 2020 (arXiv 1911.02054). `features` is made of `body`,
whose output f_conv all domains' own features are split off from, and of `head`, whose output f is what domains share. The small
one is that of Wang et al. (IEEE TCCN 2024), who compare with the method. Numbers of G: 31 785 408 of 3 x 32 x 32, and 800 590.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Self

from torch import nn

from tideline.core.run import World
from tideline.nets.small import Net, image_shape

LEAST = 16
DROPOUT = 0.5
WRITE_SO = "Write inputs: [3, 32, 32], or use model: lenet for smaller images, mlp for features"


class Digits(Net):
    """x: (n, c, h, w) -> logits (n, classes), by way of f_conv (n, q) and f (n, d)."""

    def __init__(self, body: nn.Sequential, head: nn.Sequential, d: int, classes: int) -> None:
        super().__init__(nn.Sequential(OrderedDict(body=body, head=head)), nn.Linear(d, classes))

    @classmethod
    def whole(cls, world: World) -> Self:
        """Three convolutions of 64, 64 and 128 maps, layers of 3072 and 2048. Raises ConfigRefused for a world of no images."""
        channels, height, width = image_shape(world, LEAST, WRITE_SO)
        blocks = (*convolved(channels, 64), pool(), *convolved(64, 64), pool(), *convolved(64, 128), nn.Flatten())
        q = 128 * pooled(pooled(height)) * pooled(pooled(width))
        return cls(nn.Sequential(*blocks), narrowing(q, 3072, 2048), 2048, world.classes)

    @classmethod
    def small(cls, world: World) -> Self:
        """Two convolutions of 10 and 20 maps, layers of 200 and 50. Raises ConfigRefused for a world of no images."""
        channels, height, width = image_shape(world, LEAST, WRITE_SO)
        blocks = (*convolved(channels, 10), pool(), *convolved(10, 20), nn.Flatten())
        q = 20 * pooled(height) * pooled(width)
        return cls(nn.Sequential(*blocks), narrowing(q, 200, 50), 50, world.classes)


def convolved(channels: int, maps: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(channels, maps, 5, padding=2), nn.BatchNorm2d(maps), nn.ReLU()


def pool() -> nn.Module:
    return nn.MaxPool2d(3, stride=2, padding=1)


def pooled(pixels: int) -> int:
    """What that leaves of a side: 16 of 32."""
    return (pixels + 1) // 2


def narrowing(q: int, h: int, d: int) -> nn.Sequential:
    first = (nn.Linear(q, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Dropout(DROPOUT))
    return nn.Sequential(*first, nn.Linear(h, d), nn.BatchNorm1d(d), nn.ReLU())
