"""Small networks of features, tables and images: perceptrons, LeNet, ST-LF's convolutional network, one of inception modules.

LeNet: after LeCun et al., Proc. IEEE 1998. ConvNet: Wang, Hosseinalipour, Brinton, "Multi-Source to Multi-Target Decentralized
Federated Domain Adaptation", IEEE TCCN 2024 (arXiv 2304.12422), section V; 21 840 numbers for digits of 1 x 28 x 28, 22 340 in
colour; the authors' network ends in a softmax and takes the cross-entropy of that, this one gives logits. InceptionNet: table 7
of Bartholet et al., "Non-linear Fusion in Federated Learning: A Hypernetwork Approach to Federated Domain Generalization"
(2024), for 3 x 32 x 32; the table gives no widths of the modules' branches, those below are our reading, and give the sizes
that it prints between the modules.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor, nn

from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.core.tables.columns import Columns, code_places, starts_of

LENET_LEAST = 8
LENET_INPUTS = "Write inputs: [1, 28, 28], or use model: mlp for features"
CONVNET_LEAST = 16
DROPOUT = 0.5
CONVNET_INPUTS = "Write inputs: [1, 28, 28], or use model: lenet for smaller images, mlp for features"
DIGITS_LEAST = 16
DIGITS_INPUTS = "Write inputs: [3, 32, 32], or use model: lenet for smaller images, mlp for features"
INCEPTION_LEAST = 8
INCEPTION_INPUTS = "Write inputs: [3, 32, 32]"
ADDED = 32 + 64 + 16  # channels that a module puts beside its input's
POOLED = 3  # pixels of a side before the linear layers
WIDTH = 256
INCEPTION_DROPOUT = 0.2


def image_shape(world: World, least: int, todo: str, channels: int | None = None) -> tuple[int, int, int]:
    """Channels, height and width of a world of images, of `least` pixels each way or more. Raises ConfigRefused for others."""
    inputs = world.inputs
    if world.tokens or len(inputs) != 3 or min(inputs[1:]) < least or channels not in (None, inputs[0]):
        takes = f"images: {f'{channels} channels' if channels else 'channels'}, height, width, of {least} pixels or more"
        raise ConfigRefused(f"world.inputs is {list(inputs)}; {world.model} takes {takes}", todo, path="world.inputs")
    return inputs[0], inputs[1], inputs[2]


class Net(nn.Module):
    """A network h = g o f: features f, then the classifier g. x: (n, *inputs) -> logits (n, classes).

    own: where names in the state dict are not those that the network itself has: beginnings of names, and what stands for them.
    left_out: what names begin with that weights of a package's own model have, and this network, which is made of it, has not.
    """

    own: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()

    def __init__(self, features: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.classifier = classifier

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(x))
        return logits


class MLP(Net):
    """Hidden layers with ReLU, then a linear classifier. x: (n, ...) -> logits (n, classes)."""

    def __init__(self, inputs: int, hidden: tuple[int, ...], classes: int) -> None:
        sizes = (inputs, *hidden)
        layers: list[nn.Module] = [nn.Flatten()]
        for a, b in pairwise(sizes):
            layers += [nn.Linear(a, b), nn.ReLU()]
        super().__init__(nn.Sequential(*layers), nn.Linear(sizes[-1], classes))

    @classmethod
    def of(cls, world: World) -> Self:
        return cls(math.prod(world.inputs), (64,), world.classes)

    @classmethod
    def linear(cls, world: World) -> Self:
        return cls(math.prod(world.inputs), (), world.classes)


def embedding_width(categories: int, most: int) -> int:
    """Numbers that stand for a category: half as many as there are categories, and not more than `most`."""
    return min(most, (categories + 1) // 2)


class Embedded(nn.Module):
    """Codes as embeddings, behind all other inputs: x (n, *inputs) -> (n, width)."""

    def __init__(self, inputs: int, columns: Columns, most: int) -> None:
        super().__init__()
        self.codes = code_places(columns)
        self.others = sorted(set(range(inputs)) - set(self.codes))
        sizes = [column.places for column, _ in starts_of(columns) if column.coded]
        self.embed = nn.ModuleList(nn.Embedding(size, embedding_width(size, most)) for size in sizes)
        self.width = len(self.others) + sum(embedding_width(size, most) for size in sizes)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(1)
        if not self.codes:
            return rows
        # Methods make rows of their own, between those of sites: such a number is the nearest category.
        tables = [each for each in self.embed if isinstance(each, nn.Embedding)]
        codes = [
            rows[:, at].round().clamp(0, each.num_embeddings - 1).long() for at, each in zip(self.codes, tables, strict=True)
        ]
        return torch.cat([rows[:, self.others], *(each(code) for each, code in zip(tables, codes, strict=True))], 1)


class Tabular(Net):
    """Embeddings, a hidden layer with ReLU, a linear classifier. x: (n, *inputs) -> logits (n, classes).

    After Guo, Berkhahn, "Entity Embeddings of Categorical Variables" (arXiv 1604.06737).
    """

    def __init__(self, embedded: Embedded, hidden: int, classes: int) -> None:
        super().__init__(nn.Sequential(embedded, nn.Linear(embedded.width, hidden), nn.ReLU()), nn.Linear(hidden, classes))

    @classmethod
    def of(cls, world: World, hidden: int = 64, embedding: int = 8) -> Self:
        """hidden: width of the hidden layer. embedding: the most numbers that stand for a category."""
        return cls(Embedded(math.prod(world.inputs), world.columns, embedding), hidden, world.classes)


class LeNet(Net):
    """Two 5x5 convolutions with pooling, a hidden layer, a linear classifier. x: (n, c, h, w) -> logits (n, classes)."""

    def __init__(self, channels: int, height: int, width: int, classes: int) -> None:
        hidden = (nn.Linear(lenet_width(height, width), 128), nn.ReLU())
        super().__init__(nn.Sequential(*lenet_layers(channels), *hidden), nn.Linear(128, classes))

    @classmethod
    def of(cls, world: World) -> Self:
        """For a world of images. Raises ConfigRefused for others."""
        return cls(*image_shape(world, LENET_LEAST, LENET_INPUTS), world.classes)


def lenet_layers(channels: int) -> tuple[nn.Module, ...]:
    """LeNet up to its hidden layer: (n, c, h, w) -> (n, lenet_width(h, w))."""
    return (
        *(nn.Conv2d(channels, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Flatten(),
    )


def lenet_width(height: int, width: int) -> int:
    return 32 * (height // 4) * (width // 4)


class ConvNet(Net):
    """Two 5x5 convolutions of 10 and 20 maps with pooling, a hidden layer of 50. x: (n, c, h, w) -> logits (n, classes)."""

    def __init__(self, channels: int, height: int, width: int, classes: int) -> None:
        first = (nn.Conv2d(channels, 10, 5), nn.MaxPool2d(2), nn.ReLU())
        second = (nn.Conv2d(10, 20, 5), nn.Dropout2d(DROPOUT), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten())
        hidden = (nn.Linear(20 * pooled(height) * pooled(width), 50), nn.ReLU(), nn.Dropout(DROPOUT))
        super().__init__(nn.Sequential(*first, *second, *hidden), nn.Linear(50, classes))

    @classmethod
    def of(cls, world: World) -> Self:
        """For a world of images. Raises ConfigRefused for others."""
        return cls(*image_shape(world, CONVNET_LEAST, CONVNET_INPUTS), world.classes)


def pooled(pixels: int) -> int:
    """What two convolutions without padding, each pooled by two, leave of a side: 4 of 28."""
    return ((pixels - 4) // 2 - 4) // 2


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


class InceptionNet(Net):
    """x: (n, c, h, w) -> logits (n, classes). No activation is between the two linear layers, as in the table."""

    def __init__(self, channels: int, classes: int) -> None:
        features = nn.Sequential(
            *(nn.Conv2d(channels, 32, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
            *(nn.Conv2d(32, 32, 1), nn.Conv2d(32, 64, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()),
            *(Inception(64), Inception(64 + ADDED), nn.AdaptiveAvgPool2d(POOLED), nn.Flatten()),
            *(nn.Dropout(INCEPTION_DROPOUT), nn.Linear(POOLED * POOLED * (64 + 2 * ADDED), WIDTH)),
        )
        super().__init__(features, nn.Linear(WIDTH, classes))

    @classmethod
    def of(cls, world: World) -> Self:
        """For a world of images. Raises ConfigRefused for others."""
        channels, _, _ = image_shape(world, INCEPTION_LEAST, INCEPTION_INPUTS)
        return cls(channels, world.classes)


class Digits(Net):
    """x: (n, c, h, w) -> logits (n, classes), by way of f_conv (n, q) and f (n, d).

    Peng, Huang, Zhu, Saenko, "Federated Adversarial Domain Adaptation", ICLR 2020 (arXiv 1911.02054). `features` is made of
    `body`, whose output f_conv all domains' own features are split off from, and of `head`, whose output f is what domains share.
    `small` is that of Wang et al. (IEEE TCCN 2024). Numbers of G: 31 785 408 of 3 x 32 x 32, and 800 590.
    """

    def __init__(self, body: nn.Sequential, head: nn.Sequential, d: int, classes: int) -> None:
        super().__init__(nn.Sequential(OrderedDict(body=body, head=head)), nn.Linear(d, classes))

    @classmethod
    def whole(cls, world: World) -> Self:
        """Three convolutions of 64, 64 and 128 maps, layers of 3072 and 2048. Raises ConfigRefused for a world of no images."""
        channels, height, width = image_shape(world, DIGITS_LEAST, DIGITS_INPUTS)
        blocks = (*convolved(channels, 64), pool(), *convolved(64, 64), pool(), *convolved(64, 128), nn.Flatten())
        q = 128 * halved(halved(height)) * halved(halved(width))
        return cls(nn.Sequential(*blocks), narrowing(q, 3072, 2048), 2048, world.classes)

    @classmethod
    def small(cls, world: World) -> Self:
        """Two convolutions of 10 and 20 maps, layers of 200 and 50. Raises ConfigRefused for a world of no images."""
        channels, height, width = image_shape(world, DIGITS_LEAST, DIGITS_INPUTS)
        blocks = (*convolved(channels, 10), pool(), *convolved(10, 20), nn.Flatten())
        q = 20 * halved(height) * halved(width)
        return cls(nn.Sequential(*blocks), narrowing(q, 200, 50), 50, world.classes)


def convolved(channels: int, maps: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(channels, maps, 5, padding=2), nn.BatchNorm2d(maps), nn.ReLU()


def pool() -> nn.Module:
    return nn.MaxPool2d(3, stride=2, padding=1)


def halved(pixels: int) -> int:
    """What that leaves of a side: 16 of 32."""
    return (pixels + 1) // 2


def narrowing(q: int, h: int, d: int) -> nn.Sequential:
    first = (nn.Linear(q, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Dropout(DROPOUT))
    return nn.Sequential(*first, nn.Linear(h, d), nn.BatchNorm1d(d), nn.ReLU())
