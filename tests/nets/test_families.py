"""Networks of torchvision by name: they build, with or without a bottleneck, and what they lack is said."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from tideline import nets
from tideline.core.asked.world import World, world_in
from tideline.core.errors import ConfigRefused
from tideline.nets.families import timm_network

WIDTHS = {"mobilenet_v3_small": 1024, "resnet18": 512}
LARGE = {"efficientnet_b0": 1280, "convnext_tiny": 768, "vit_b_16": 768, "swin_t": 768}  # a second each to build


def world(name: str, side: int = 32, channels: int = 3, **options: Any) -> World:
    given = {"inputs": [channels, side, side], "classes": 3, "model": {"name": name, "options": options}}
    return world_in(given)


@pytest.mark.parametrize(
    ("name", "width"), [*WIDTHS.items(), *(pytest.param(*x, marks=pytest.mark.nightly(job="numbers")) for x in LARGE.items())]
)
def test_they_build_and_are_copied(name: str, width: int) -> None:
    its = world(f"torchvision/{name}")
    net = nets.build(its)
    copy, x = nets.loaded(its, nets.weights_of(net)), torch.rand(2, *its.inputs)
    assert nets.width(its) == width
    assert torch.equal(net.eval()(x), copy.eval()(x))


def test_names_are_torchvisions() -> None:
    from torchvision.models import get_model

    theirs = get_model("mobilenet_v3_small", weights=None, num_classes=3).state_dict()
    own = nets.own_names(world("torchvision/mobilenet_v3_small"))
    assert set(own.values()) == set(theirs)
    narrow = nets.own_names(world("torchvision/mobilenet_v3_small", bottleneck=16))
    assert narrow["features.backbone.features.0.0.weight"] == "features.0.0.weight"
    assert narrow["features.bottleneck.linear.weight"] == "bottleneck.linear.weight"


def test_a_bottleneck_is_as_wide_as_it_should() -> None:
    its = world("torchvision/mobilenet_v3_small", bottleneck=16)
    assert nets.width(its) == 16
    assert nets.build(its).get_submodule("classifier").weight.shape == (3, 16)


@pytest.mark.parametrize(
    ("its", "said", "todo"),
    [
        (world("torchvision/resnet81"), "no classification model of that name", "did you mean torchvision/resnet"),
        (world("torchvision/resnet18", bottleneck=-1), "bottleneck is -1", "or 0 for none"),
        (world("torchvision/resnet18", bottleneck=1 << 20), "bottleneck is 1048576", "at most 65536"),
        (world("torchvision/resnet18", bottelneck=1), "no option 'bottelneck'", "did you mean bottleneck?"),
        (world("torchvision/resnet18", channels=1), "3 channels", "Write inputs"),
        (world("torchvision/vit_b_16", side=40), "multiple of 16", "Write inputs"),
        (world("torchvision/squeezenet1_0", side=64), "between its features and its head", "let forward end with the head"),
    ],
)
def test_what_they_lack_is_said(its: World, said: str, todo: str) -> None:
    with pytest.raises(ConfigRefused, match=said) as seen:
        nets.check(its)
    assert todo in seen.value.todo


def test_without_timm_it_is_said_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    timm_network.cache_clear()
    with pytest.raises(ConfigRefused, match="timm is not installed here") as seen:
        nets.check(world("timm/resnet18"))
    assert 'pip install "tideline[timm]"' in seen.value.todo
