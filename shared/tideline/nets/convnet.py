"""The small convolutional network of ST-LF's experiments, for images of 16 pixels and more.

Wang, Hosseinalipour, Brinton, "Multi-Source to Multi-Target Decentralized Federated Domain Adaptation", IEEE TCCN 2024
(arXiv 2304.12422), section V. 21 840 numbers for digits of 1 x 28 x 28, 22 340 in colour. The authors' network ends in a softmax
and takes the cross-entropy of that; this one gives logits.
"""

from __future__ import annotations

from typing import Self

from torch import Tensor, nn

from tideline.core.run import World
from tideline.nets.images import image_shape

LEAST = 16
DROPOUT = 0.5
WRITE_SO = "Write inputs: [1, 28, 28], or use model: lenet for smaller images, mlp for features"


class ConvNet(nn.Module):
    """Two 5x5 convolutions of 10 and 20 maps with pooling, a hidden layer of 50. x: (n, c, h, w) -> logits (n, classes)."""

    def __init__(self, channels: int, height: int, width: int, classes: int) -> None:
        super().__init__()
        first = (nn.Conv2d(channels, 10, 5), nn.MaxPool2d(2), nn.ReLU())
        second = (nn.Conv2d(10, 20, 5), nn.Dropout2d(DROPOUT), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten())
        hidden = (nn.Linear(20 * pooled(height) * pooled(width), 50), nn.ReLU(), nn.Dropout(DROPOUT))
        self.features = nn.Sequential(*first, *second, *hidden)
        self.classifier = nn.Linear(50, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(x))
        return logits

    @classmethod
    def of(cls, world: World) -> Self:
        """For a world of images. Raises ConfigRefused for others."""
        return cls(*image_shape(world, LEAST, WRITE_SO), world.classes)


def pooled(pixels: int) -> int:
    """What two convolutions without padding, each pooled by two, leave of a side: 4 of 28."""
    return ((pixels - 4) // 2 - 4) // 2
