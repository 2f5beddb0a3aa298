"""A small convolutional network with two inception modules, for images of 8 pixels and more.

Table 7 of Bartholet et al., "Non-linear Fusion in Federated Learning: A Hypernetwork Approach to Federated Domain
Generalization" (2024), for 3 x 32 x 32. The table gives no widths of the modules' branches; those below are our reading, and give
the sizes that it prints between the modules.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from tideline.core.run import World
from tideline.nets.images import image_shape

LEAST = 8
WRITE_SO = "Write inputs: [3, 32, 32]"
ADDED = 32 + 64 + 16  # channels that a module puts beside its input's
POOLED = 3  # pixels of a side before the linear layers
WIDTH = 256
DROPOUT = 0.2


class Inception(nn.Module):
    """x: (n, c, h, w) -> (n, c + 112, h, w): 1x1, 3x3, 5x5 convolutions and a maximum, side by side (Szegedy et al., 2014)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, 32, 1)
        self.three = nn.Sequential(nn.Conv2d(channels, 64, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1))
        self.five = nn.Sequential(nn.Conv2d(channels, 16, 1), nn.ReLU(), nn.Conv2d(16, 16, 5, padding=2))
        self.pool = nn.MaxPool2d(3, stride=1, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1).relu()


class InceptionNet(nn.Module):
    """x: (n, c, h, w) -> logits (n, classes). No activation lies between the two linear layers, as the table has it."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(channels, 32, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
            *(nn.Conv2d(32, 32, 1), nn.Conv2d(32, 64, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
            *(Inception(64), Inception(64 + ADDED), nn.AdaptiveAvgPool2d(POOLED), nn.Flatten()),
            *(nn.Dropout(DROPOUT), nn.Linear(POOLED * POOLED * (64 + 2 * ADDED), WIDTH)),
        )
        self.classifier = nn.Linear(WIDTH, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(x))
        return logits

    @classmethod
    def of(cls, world: World) -> Self:
        """For a world of images. Raises ConfigRefused for others."""
        channels, _, _ = image_shape(world, LEAST, WRITE_SO)
        return cls(channels, world.classes)
