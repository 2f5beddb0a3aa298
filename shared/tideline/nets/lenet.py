"""A small convolutional network for images of 8 pixels and more (after LeCun et al., Proc. IEEE 1998)."""

from __future__ import annotations

from typing import Self

from torch import Tensor, nn

from tideline.core.run import World
from tideline.nets.images import image_shape

LEAST = 8
WRITE_SO = "Write inputs: [1, 28, 28], or use model: mlp for features"


class LeNet(nn.Module):
    """Two 5x5 convolutions with pooling, a hidden layer, a linear classifier. x: (n, c, h, w) -> logits (n, classes)."""

    def __init__(self, channels: int, height: int, width: int, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(*convolutions(channels), nn.Linear(convolved(height, width), 128), nn.ReLU())
        self.classifier = nn.Linear(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(x))
        return logits

    @classmethod
    def of(cls, world: World) -> Self:
        """For a world of images. Raises ConfigRefused for others."""
        return cls(*image_shape(world, LEAST, WRITE_SO), world.classes)


def convolutions(channels: int) -> tuple[nn.Module, ...]:
    """LeNet up to its hidden layer: (n, c, h, w) -> (n, convolved(h, w))."""
    return (
        *(nn.Conv2d(channels, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Flatten(),
    )


def convolved(height: int, width: int) -> int:
    """How many numbers the convolutions make of an image."""
    return 32 * (height // 4) * (width // 4)
