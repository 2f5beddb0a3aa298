"""ST-LF's network of digits."""

from __future__ import annotations

import pytest
import torch

from tideline import nets
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused

DIGITS = World(inputs=(1, 28, 28), classes=10, model="convnet")


@pytest.mark.parametrize(("channels", "outputs", "numbers"), [(1, 10, 21_840), (3, 10, 22_340), (1, 2, 21_432)])
def test_it_has_as_many_numbers_as_published(channels: int, outputs: int, numbers: int) -> None:
    """Of the classifier of digits, grey and in colour, and of that which tells two devices apart."""
    weights = nets.template(World(inputs=(channels, 28, 28), classes=outputs, model="convnet"))
    assert sum(w.numel() for w in weights.values()) == numbers
    assert {name.partition(".")[0] for name in weights} == {"features", "classifier"}


@pytest.mark.parametrize("size", [(16, 16), (28, 28), (32, 41)])
def test_it_takes_images_of_other_sizes(size: tuple[int, int]) -> None:
    """Logits of each class, from 50 features."""
    world = World(inputs=(3, *size), classes=7, model="convnet")
    assert nets.width(world) == 50
    assert nets.build(world)(torch.zeros(4, *world.inputs)).shape == (4, 7)


@pytest.mark.parametrize("inputs", [(1, 15, 28), (1, 28, 15)])
def test_what_is_too_small_is_refused(inputs: tuple[int, ...]) -> None:
    """With the least size, and what to use instead."""
    with pytest.raises(ConfigRefused, match="of 16 pixels or more") as refusal:
        nets.check(World(inputs=inputs, classes=10, model="convnet"))
    assert refusal.value.context["path"] == "world.inputs" and "lenet" in refusal.value.todo


def test_dropout_is_of_training_alone() -> None:
    """Maps and hidden numbers are dropped while it trains; its features in evaluation are the same each time."""
    torch.manual_seed(0)
    net, x = nets.build(DIGITS), torch.randn(5, 1, 28, 28)
    net.train()
    assert not torch.equal(net(x), net(x))
    once = nets.features(net, x)
    assert torch.equal(once, nets.features(net, x)) and once.shape == (5, 50)
    assert torch.allclose(net.get_submodule("classifier")(once), net(x))
