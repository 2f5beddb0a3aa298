"""The network with inception modules against its table."""

from __future__ import annotations

import pytest
import torch

from tideline import nets
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.nets.small import Inception, InceptionNet


def test_it_has_the_papers_size() -> None:
    """799 847 parameters for 7 classes; modules of 176 and 288 channels; 2592 numbers before the linear layers."""
    net = InceptionNet.of(World(inputs=(3, 32, 32), classes=7, model="inception"))
    assert sum(p.numel() for p in net.parameters()) == 799_847
    seen = []
    for module in net.features:
        if isinstance(module, (Inception, torch.nn.Flatten)):
            module.register_forward_hook(lambda module, given, out: seen.append(tuple(out.shape[1:])))
    assert net(torch.zeros(2, 3, 32, 32)).shape == (2, 7)
    assert seen == [(176, 8, 8), (288, 8, 8), (2592,)]


@pytest.mark.parametrize("inputs", [(1, 8, 8), (1, 28, 28), (3, 33, 47)])
def test_it_takes_images_of_any_size(inputs: tuple[int, ...]) -> None:
    """From 8 pixels on, with any channels; its features are 256 wide and may be negative."""
    world = World(inputs=inputs, classes=4, model="inception")
    net = nets.build(world)
    made = nets.features(net, torch.randn(3, *inputs))
    assert made.shape == (3, 256) == (3, nets.width(world)) and float(made.min()) < 0


@pytest.mark.parametrize("inputs", [(8,), (1, 7, 8)])
def test_other_inputs_are_refused(inputs: tuple[int, ...]) -> None:
    """With what to write."""
    with pytest.raises(ConfigRefused, match="inputs"):
        nets.check(World(inputs=inputs, classes=4, model="inception"))
