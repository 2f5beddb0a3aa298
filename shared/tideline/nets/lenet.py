"""A small convolutional network for images of 8 pixels and more (after LeCun et al., Proc. IEEE 1998)."""

from __future__ import annotations

from typing import Self

from torch import Tensor, nn

from tideline.core.errors import ConfigRefused
from tideline.core.run import World


class LeNet(nn.Module):
    """Two 5x5 convolutions with pooling, a hidden layer, a linear classifier. x: (n, c, h, w) -> logits (n, classes)."""

    def __init__(self, channels: int, height: int, width: int, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(channels, 16, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * (height // 4) * (width // 4), 128),
            nn.ReLU(),
        )
        self.classifier = nn.Linear(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(x))
        return logits

    @classmethod
    def of(cls, world: World) -> Self:
        """For a world of images. Raises ConfigRefused for others."""
        if len(world.inputs) != 3 or min(world.inputs[1:]) < 8:
            raise ConfigRefused(
                f"world.inputs is {list(world.inputs)}; lenet takes images: channels, height, width, of 8 pixels or more",
                "Write inputs: [1, 28, 28], or use model: mlp for features",
                path="world.inputs",
            )
        channels, height, width = world.inputs
        return cls(channels, height, width, world.classes)
