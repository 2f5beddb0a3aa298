"""Networks of sequences, volumes, token ids and tables: what they give, what they take, and what they are refused for."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tideline import nets
from tideline.core.asked.world import HEAD, World, world_in
from tideline.core.errors import ConfigRefused
from tideline.learning.model_file import Model, packed, read_model
from tideline.learning.onnx_file import save_onnx
from tideline.nets import registry
from tideline.nets.fingerprint import print_of
from tideline.nets.shapes.rows import blank, drawn
from tideline.nets.small import embedding_width

WORLDS = {
    "conv1d": world_in({"inputs": [3, 20], "classes": 4, "model": "conv1d"}),
    "conv3d": world_in({"inputs": [2, 5, 6, 7], "classes": 4, "model": "conv3d"}),
    "tokens": world_in({"inputs": [9], "classes": 4, "model": "tokens", "dtype": "int64", "vocabulary": 30}),
}


@pytest.mark.parametrize("name", WORLDS)
def test_a_network_is_features_and_a_classifier(name: str) -> None:
    world = WORLDS[name]
    net, x = nets.build(world), drawn(world, 5, 1)
    assert net.get_submodule("features")(x).shape == (5, nets.width(world)) == (5, 64)
    net(x).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in net.parameters())
    nets.check(world)


@pytest.mark.nightly(job="numbers")
@pytest.mark.parametrize("name", WORLDS)
def test_files_of_models(name: str, tmp_path: Path) -> None:
    """A model file says the type of its rows; ONNX predicts the same."""
    world = WORLDS[name]
    (tmp_path / "m.safetensors").write_bytes(packed(Model(world, nets.weights_of(nets.build(world)))))
    assert read_model(tmp_path / "m.safetensors").world == world
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    model = Model(world, nets.weights_of(nets.build(world)))
    save_onnx(model, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    assert session.get_inputs()[0].type == ("tensor(int64)" if world.tokens else "tensor(float)")


def test_padding_counts_for_nothing() -> None:
    """Whatever stands where the padding is, and however much of it: the same; a row of nothing else is no NaN."""
    world = world_in({**PADDED, "inputs": [9]})
    net = nets.build(world).eval()
    ids = torch.tensor([[5, 6, 7, 0, 0, 0, 0, 0, 0]])
    with torch.no_grad():
        whole, short = net(ids), nets.loaded(world_in({**PADDED, "inputs": [3]}), cut(net, 3)).eval()(ids[:, :3])
        assert torch.allclose(whole, short, atol=1e-6)
        assert torch.isfinite(net(torch.zeros_like(ids))).all()


PADDED: dict[str, Any] = {
    "classes": 4,
    "dtype": "int64",
    "vocabulary": 30,
    "model": {"name": "tokens", "options": {"padding": 0}},
}


def cut(net: nn.Module, steps: int) -> dict[str, Tensor]:
    """The weights of a network of fewer steps."""
    weights = nets.weights_of(net)
    name = next(name for name in weights if name.endswith("positions"))
    return {**weights, name: weights[name][:steps]}


def test_what_a_network_takes_is_declared(subtests: pytest.Subtests) -> None:
    """Each network is built for what it takes, and refused for all else with the names of those that take that."""
    shapes = [[8], [3, 32], [3, 32, 32], [3, 32, 32, 32], [2, 4, 4, 4, 4]]
    for name, inputs, tokens in product(registry.NETS, shapes, ({}, {"dtype": "int64", "vocabulary": 9})):
        world = world_in({"inputs": inputs, "model": name, **tokens})
        fitting = [x for x in registry.NETS if registry.TAKES.get(x, registry.IMAGES).fits(world)]
        with subtests.test(f"{name} {inputs} {'token ids' if tokens else 'numbers'}"):
            if name in fitting:
                nets.check(world)
                continue
            with pytest.raises(ConfigRefused, match=f"{name} takes ") as refusal:
                nets.check(world)
            assert refusal.value.context["path"] == "world.inputs"
            assert all(x in refusal.value.todo for x in fitting or ["a network of your own"])


def test_what_cannot_be_built() -> None:
    cases = [
        ("conv1d", {"inputs": (3, 3)}, "takes 4 steps or more"),
        ("conv3d", {"inputs": (1, 8, 3, 8)}, "takes 4 voxels each way or more"),
        *(("conv1d", {"options": {"kernel": 4}}, "kernel is 4"), ("conv1d", {"options": {"width": 0}}, "width is 0")),
        *(("conv3d", {"options": {"width": -1}}, "width is -1"), ("tokens", {"options": {"width": 30}}, "width is 30")),
        *(("tokens", {"options": {"heads": 0}}, "heads is 0"), ("tokens", {"options": {"padding": 30}}, "padding is 30")),
    ]
    for name, changes, reason in cases:
        with pytest.raises(ConfigRefused, match=reason) as refusal:
            nets.check(replace(WORLDS[name], **changes))
        assert refusal.value.todo


class Bag(nn.Module):
    """A network of one's own: the mean of embeddings."""

    def __init__(self, vocabulary: int, classes: int) -> None:
        super().__init__()
        self.embedding, self.classifier = nn.Embedding(vocabulary, 6), nn.Linear(6, classes)

    def forward(self, ids: Tensor) -> Tensor:
        return self.classifier(self.embedding(ids).mean(1))


def test_a_network_of_ones_own_takes_token_ids() -> None:
    """It is tried with them, and taken apart; for numbers it is refused."""
    with registry.beside({"bag": lambda world: Bag(max(world.vocabulary, 1), world.classes)}):
        world = world_in({"inputs": [9], "classes": 4, "model": "bag", "dtype": "int64", "vocabulary": 30})
        nets.check(world)
        assert nets.width(world) == 6 and print_of(world) is not None
        with pytest.raises(ConfigRefused, match="in forward"):
            nets.check(world_in({"inputs": [9], "classes": 4, "model": "bag"}))


@pytest.mark.parametrize("name", WORLDS)
def test_a_frozen_encoder_gives_numbers(name: str) -> None:
    """A method sees features: vectors of numbers, whatever the rows were."""
    seen = nets.played(replace(WORLDS[name], trains=HEAD))
    assert seen.inputs == (64,) and not seen.tokens
    assert nets.build(seen)(torch.zeros(2, 64)).shape == (2, 4)


@pytest.mark.parametrize("name", WORLDS)
def test_rows_to_try_with(name: str) -> None:
    """The same everywhere; of token ids no other than the vocabulary's."""
    world = WORLDS[name]
    assert torch.equal(drawn(world, 3, 0), drawn(world, 3, 0)) and drawn(world, 3, 0).dtype is blank(world).dtype
    if world.tokens:
        assert np.isin(drawn(world, 50, 0).numpy(), np.arange(30)).all()


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
