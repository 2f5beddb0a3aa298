"""Networks h = g o f of source-free adaptation: f a backbone with a narrow bottleneck, g one linear layer.

After Liang, Hu, Feng: *Do We Really Need to Access the Source Data?* (ICML 2020). The bottleneck is linear, batch-normed, with
dropout. No ReLU follows it, so that the cosine of f(x) and a weight vector w_m of g takes either sign. What batch norm measures
travels with f. Backbones are LeNet's convolutions, and torchvision's residual networks for photographs (He et al., CVPR 2016);
nothing is downloaded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Self

from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from tideline.core.asked.world import World
from tideline.nets import small
from tideline.nets.small import Net, image_shape

DROPOUT = 0.5
Q_LENET = 128
Q = 256
LEAST = 32
BACKBONE = "features.backbone."  # before torchvision's names
NECK = "features.bottleneck."
# Each name with torchvision's, and whether the classifier's weight is normed.
KINDS: Mapping[str, tuple[str, bool]] = {
    "resnet18": ("resnet18", False),
    "resnet50": ("resnet50", False),
    "resnet18_wn": ("resnet18", True),
    "resnet50_wn": ("resnet50", True),
}


class Bottlenecked(Net):
    """x: (n, *inputs) -> logits (n, classes), by way of features f(x) (n, q).

    backbone: (n, *inputs) -> (n, d). With `normed` the classifier's weight is g_m v_m / |v_m| (Salimans, Kingma, NeurIPS 2016).
    """

    def __init__(self, backbone: nn.Module, d: int, q: int, classes: int, *, normed: bool = False) -> None:
        bottleneck = OrderedDict(linear=nn.Linear(d, q), norm=nn.BatchNorm1d(q), dropout=nn.Dropout(DROPOUT))
        features = nn.Sequential(OrderedDict(backbone=backbone, bottleneck=nn.Sequential(bottleneck)))
        g = nn.Linear(q, classes)
        super().__init__(features, weight_norm(g) if normed else g)


class LeNetBN(Bottlenecked):
    """LeNet's two convolutions before a bottleneck of 128."""

    @classmethod
    def of(cls, world: World) -> Self:
        """For a world of images of 8 pixels or more. Raises ConfigRefused for others."""
        channels, height, width = image_shape(world, small.LENET_LEAST, small.LENET_INPUTS)
        backbone = nn.Sequential(*small.lenet_layers(channels))
        return cls(backbone, small.lenet_width(height, width), Q_LENET, world.classes)


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
