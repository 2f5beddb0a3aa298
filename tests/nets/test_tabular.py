"""The network of tables: codes are embedded, all else stands beside."""

from __future__ import annotations

import pytest
import torch

from tideline import nets
from tideline.core.asked.world import World, world_in
from tideline.nets.small import embedding_width

COLUMNS = {"a": "number", "kind": {"categories": ["x", "y", "z"], "as": "codes"}, "sex": ["f", "m"]}
WORLD = world_in({"columns": COLUMNS, "classes": 3, "model": {"name": "tabular", "options": {"hidden": 7, "embedding": 2}}})


def test_codes_are_embedded() -> None:
    """A category is told by its place alone; numbers pass as they are."""
    torch.manual_seed(0)
    net = nets.build(WORLD).eval()
    embedded = net.get_submodule("features.0")
    x = torch.tensor([[0.5, 0, 1, 0], [0.5, 2, 1, 0], [-1.0, 2, 0, 1]])
    z = embedded(x)
    assert z.shape == (3, 3 + 2) and torch.equal(z[:, :3], x[:, [0, 2, 3]])
    assert torch.equal(z[1, 3:], z[2, 3:]) and not torch.equal(z[0, 3:], z[1, 3:])
    assert net(x).shape == (3, 3) and nets.width(WORLD) == 7


def test_rows_that_methods_make_are_near_a_category() -> None:
    embedded = nets.build(WORLD).get_submodule("features.0")
    x = torch.tensor([[0.0, code, 0, 0] for code in (1.4, 1.0, -3.0, 0.0, 99.0, 2.0)])
    z = embedded(x)
    assert torch.equal(z[0::2], z[1::2])


def test_without_columns_it_is_a_perceptron() -> None:
    world = World(inputs=(4,), classes=2, model="tabular")
    assert {name: w.shape for name, w in nets.template(world).items()} == {
        "features.1.weight": (64, 4),
        "features.1.bias": (64,),
        "classifier.weight": (2, 64),
        "classifier.bias": (2,),
    }


def test_worlds_with_other_columns_have_other_networks() -> None:
    """Though their inputs are as many: no cache takes one for the other."""
    columns = {**COLUMNS, "kind": {"categories": ["x", "y", "z", "u", "v"], "as": "codes"}}
    other = world_in({"columns": columns, "classes": 3, "model": {"name": "tabular", "options": {"hidden": 7, "embedding": 2}}})
    assert other.inputs == WORLD.inputs and nets.template(other)["features.0.embed.0.weight"].shape == (5, 2)
    assert nets.template(WORLD)["features.0.embed.0.weight"].shape == (3, 2)
    torch.manual_seed(0)
    weights = nets.weights_of(nets.build(other))
    assert nets.loaded(other, weights)(torch.zeros(1, 4)).shape == (1, 3)


@pytest.mark.parametrize(("categories", "width"), [(2, 1), (3, 2), (8, 4), (1000, 8)])
def test_widths(categories: int, width: int) -> None:
    assert embedding_width(categories, 8) == width
