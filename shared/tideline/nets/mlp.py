"""A multilayer perceptron, and the linear classifier, for features or flattened images."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Self

from torch import Tensor, nn

from tideline.core.run import World


class MLP(nn.Module):
    """Hidden layers with ReLU, then a linear classifier. x: (n, ...) -> logits (n, classes)."""

    def __init__(self, inputs: int, hidden: tuple[int, ...], classes: int) -> None:
        super().__init__()
        sizes = (inputs, *hidden)
        layers: list[nn.Module] = [nn.Flatten()]
        for a, b in pairwise(sizes):
            layers += [nn.Linear(a, b), nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(sizes[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(x))
        return logits

    @classmethod
    def of(cls, world: World) -> Self:
        """One hidden layer of 64."""
        return cls(math.prod(world.inputs), (64,), world.classes)

    @classmethod
    def linear(cls, world: World) -> Self:
        """No hidden layer."""
        return cls(math.prod(world.inputs), (), world.classes)
