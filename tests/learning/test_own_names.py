"""Initial weights of somebody else's network, in its own names or ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.nets.foreign import Convolutions
from tideline import nets
from tideline.core.asked.world import World, world_in
from tideline.core.errors import ConfigRefused
from tideline.learning.weights import differences, fitted
from tideline.nets import registry


@pytest.fixture
def world() -> Iterator[World]:
    """A world of a network that the process adds."""
    registry.use(["tests.nets.foreign:convolutions"])
    yield world_in({"inputs": [1, 8, 8], "classes": 3, "model": "convolutions"})
    registry.use([])


def test_its_own_state_dict_is_taken(world: World) -> None:
    module = Convolutions(world)
    net = nets.loaded(world, fitted(world, module.state_dict())).eval()
    x = torch.rand(2, 1, 8, 8)
    assert torch.equal(net(x), module.eval()(x))


def test_so_are_the_names_that_a_run_has(world: World) -> None:
    weights = nets.weights_of(nets.build(world))
    assert all(torch.equal(each, weights[name]) for name, each in fitted(world, weights).items())


def test_differences_are_named_as_the_file_names_them(world: World) -> None:
    weights = dict(Convolutions(World(inputs=(1, 8, 8), classes=5), width=4).state_dict())
    del weights["norm.bias"]
    assert differences(world, weights) == (
        "norm.bias is missing, which is 4",
        "fc.weight is 5 x 4; this world has 3 classes: 3 x 4",
        "fc.bias is 5; this world has 3 classes: 3",
    )
    with pytest.raises(ConfigRefused, match=r"fc\.weight is 5 x 4"):
        fitted(world, weights)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.net."])
def test_a_prefix_of_all_names_is_named(world: World, prefix: str) -> None:
    """As DataParallel, torch.compile and Lightning put one before them."""
    state = {prefix + name: w for name, w in Convolutions(world).state_dict().items()}
    with pytest.raises(ConfigRefused, match=f"all names in the file begin with '{prefix}', which has to be taken off"):
        fitted(world, state)


def test_where_no_name_is_known_its_own_are_missing(world: World) -> None:
    """Those that its author knows."""
    with pytest.raises(ConfigRefused, match=r"fit convolutions: conv\.weight is missing"):
        fitted(world, {"hidden.weight": torch.ones(2, 2)})
