"""Residual networks for photographs (He et al., CVPR 2016), torchvision's, before a bottleneck of 256. Nothing is downloaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from torch import nn

from tideline.core.run import World
from tideline.nets.bottleneck import Bottlenecked
from tideline.nets.images import image_shape

Q = 256
LEAST = 32
BACKBONE = "features.backbone."  # before torchvision's names
# Each name with torchvision's, and whether the classifier's weight is normed.
KINDS: Mapping[str, tuple[str, bool]] = {
    "resnet18": ("resnet18", False),
    "resnet50": ("resnet50", False),
    "resnet18_wn": ("resnet18", True),
    "resnet50_wn": ("resnet50", True),
}


class ResNet(Bottlenecked):
    """x: (n, 3, h, w) -> logits (n, classes). `features.backbone` has torchvision's names, without its `fc`."""

    @classmethod
    def of(cls, world: World) -> Self:
        """The one of KINDS that the world names. Raises ConfigRefused for inputs that are no images in colour of 32 pixels."""
        image_shape(world, LEAST, "Write inputs: [3, 224, 224], or use model: lenet_bn for small or grey images", channels=3)
        name, normed = KINDS[world.model]
        backbone, d = backbone_of(name)
        return cls(backbone, d, Q, world.classes, normed=normed)


def backbone_of(name: str) -> tuple[nn.Module, int]:
    """A network of torchvision without its last layer: (n, 3, h, w) -> (n, d); and d. Parameters are as first drawn."""
    # Imported here: it takes a second, which no other network is to cost.
    from torchvision.models import get_model

    net: nn.Module = get_model(name, weights=None, num_classes=1)
    d = int(net.get_submodule("fc").in_features)  # type: ignore[arg-type]
    net.add_module("fc", nn.Identity())
    return net, d
