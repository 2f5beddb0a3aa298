"""Families of networks of installed packages: torchvision's classification models, and timm's.

Nothing is downloaded: weights are as first drawn. Each has the option `bottleneck`: 0, the package's own network; or the width of
a bottleneck between its encoder and a new linear classifier, as source-free adaptation has it (tideline.nets.bottleneck).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from torch import nn

from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.core.settings import nearest
from tideline.nets.apart import again, taken_apart
from tideline.nets.bottleneck import BACKBONE, LEAST, NECK, Bottlenecked
from tideline.nets.small import image_shape

COLOUR = "Write inputs: [3, 224, 224]"
NO_AUXILIARY = ("googlenet", "inception_v3")  # whose second outputs no method here trains
AUXILIARY = ("AuxLogits.", "aux1.", "aux2.")  # what names of those begin with in files that torchvision publishes
WIDEST = 1 << 16  # a coordinator asks sites for it, who make room for twice a thousand times as many numbers
OWN = ((BACKBONE, ""), (NECK, "bottleneck."))


@cache
def torchvision_network(name: str) -> Callable[..., nn.Module]:
    """The builder of one of torchvision's classification models. Raises ConfigRefused for a name that it has not."""
    # Imported here: it takes a second, which no other network is to cost.
    from torchvision import models

    check_name("torchvision", name, models.list_models(module=models))

    def build(world: World, bottleneck: int = 0) -> nn.Module:
        _, height, width = image_shape(world, LEAST, COLOUR, channels=3)
        net: nn.Module = models.get_model(name, weights=None, num_classes=world.classes, **special(name, height, width))
        return narrowed(net, world, bottleneck)

    return build


def special(name: str, height: int, width: int) -> dict[str, Any]:
    """What some of torchvision's models must be told beside the number of classes. Raises ConfigRefused for inputs they lack."""
    if name in NO_AUXILIARY:
        return {"aux_logits": False, "init_weights": True}
    if not name.startswith("vit_"):
        return {}
    patch = int(re.sub(r"\D", "", name.rpartition("_")[2]) or 1)
    if height != width or height % patch:
        what = f"world.inputs has images of {height} x {width}; {name} takes squares whose side is a multiple of {patch}"
        raise ConfigRefused(what, COLOUR, path="world.inputs")
    return {"image_size": height}


@cache
def timm_network(name: str) -> Callable[..., nn.Module]:
    """The builder of one of timm's models. Raises ConfigRefused without timm, and for a name that it has not."""
    try:
        import timm
    except ImportError:
        what = f"world.model is 'timm/{name}', and timm is not installed here"
        raise ConfigRefused(what, 'Install it: pip install "tideline[timm]"', path="world.model") from None
    check_name("timm", name, timm.list_models())

    def build(world: World, bottleneck: int = 0) -> nn.Module:
        channels, height, width = image_shape(world, LEAST, COLOUR)
        given: dict[str, Any] = {"num_classes": world.classes, "in_chans": channels}
        try:
            net: nn.Module = timm.create_model(name, pretrained=False, img_size=(height, width), **given)
        except TypeError:  # most take images of any size, and no word of it
            net = timm.create_model(name, pretrained=False, **given)
        return narrowed(net, world, bottleneck)

    return build


def check_name(family: str, name: str, known: list[str]) -> None:
    """Raises ConfigRefused for a name that a family has not."""
    if name not in known:
        what = f"world.model is {family}/{name}; {family} has no classification model of that name"
        guess = nearest(name, known).replace("did you mean ", f"did you mean {family}/")
        todo = f"Use one of its {len(known)} names, such as {family}/resnet18{guess}"
        raise ConfigRefused(what, todo, path="world.model")


def narrowed(net: nn.Module, world: World, bottleneck: int) -> nn.Module:
    """The network, with a bottleneck of that width if there is to be one. Raises ConfigRefused."""
    if not 0 <= bottleneck <= WIDEST:
        path = "world.model.options.bottleneck"
        raise ConfigRefused(
            f"{path} is {bottleneck}", f"Give a width, such as 256 and at most {WIDEST}, or 0 for none", path=path
        )
    if not bottleneck:
        return net
    untouched = copy.deepcopy(net)  # a forward may leave what it computed in plain attributes
    found = taken_apart(net, world)
    made = Bottlenecked(again(untouched, found.path).features, found.width, bottleneck, world.classes)
    made.own, made.left_out = OWN, (f"{found.path}.",)
    return made
