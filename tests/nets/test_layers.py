"""Parts of weights, parameters of layers as vectors, and copies of networks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.nets.test_shapes import WORLDS
from tests.numerics.examples import for_all
from tideline import nets
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.nets.layers import backbone_of, classifier_of, first_layer, known_layers, last_layer, layer, norms
from tideline.nets.prototypes import Prototype

WORLD = World(inputs=(3, 32, 32), classes=5, model="lenet_bn")
SMALL = World(inputs=(1, 8, 8), classes=3, model="lenet_bn")
WITH_F = sorted(set(nets.NETS) - {"linear"})
LAYERS = nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear | nn.Embedding
NORMS = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d


def world_of(name: str) -> World:
    """A world whose rows a network takes."""
    return WORLDS.get(name, World(inputs=(32,) if name == "tabular" else WORLD.inputs, model=name))


def weights(world: World = SMALL) -> dict[str, Tensor]:
    """A network's weights, its batch norm no longer at its start."""
    torch.manual_seed(0)
    net = nets.build(world)
    net.train()(torch.randn(4, *world.inputs))
    return nets.weights_of(net)


def modules(name: str) -> Iterator[tuple[str, nn.Module]]:
    """The convolutions, embeddings and linear layers of f, in the order in which it was put together."""
    with torch.device("meta"):
        net = nets.build(world_of(name))
    for path, module in net.named_modules():
        if isinstance(module, LAYERS) and path.startswith("features."):
            yield path, module


def test_f_and_g_are_the_whole() -> None:
    whole = weights()
    f, g = backbone_of(whole), classifier_of(whole)
    assert list(g) == ["classifier.weight", "classifier.bias"]
    assert not f.keys() & g.keys() and all((f | g)[name] is w for name, w in whole.items())
    assert "features.bottleneck.norm.running_mean" in f


@pytest.mark.parametrize("name", WITH_F)
def test_first_and_last(name: str) -> None:
    """Of the weights as a network has them, and as a message has them: sorted, and of f alone."""
    f = [path for path, _ in modules(name)]
    whole = nets.template(world_of(name))
    for each in (whole, dict(sorted(whole.items())), dict(reversed(backbone_of(whole).items()))):
        assert (first_layer(each), last_layer(each)) == (f[0], f[-1])


@pytest.mark.parametrize("name", sorted(nets.NETS))
def test_norms(name: str) -> None:
    world = world_of(name)
    with torch.device("meta"):
        net = nets.build(world)
    expected = {path for path, module in net.named_modules() if isinstance(module, NORMS)}
    found = norms(nets.template(world))
    assert set(found) == expected and len(found) == len(expected)


def test_numbers_in_names_count_as_numbers() -> None:
    many = {f"features.{i}.weight": torch.zeros(2, 2) for i in (10, 2, 9)}
    assert (first_layer(many), last_layer(many)) == ("features.2", "features.10")
    assert known_layers(many) == ["features.2", "features.9", "features.10"]


def test_without_f() -> None:
    """The linear classifier's first layer is its only one, and it has no last."""
    whole = nets.template(World(inputs=(4,), model="linear"))
    assert first_layer(whole) == "classifier"
    with pytest.raises(ConfigRefused, match="no last layer"):
        last_layer(whole)


def test_a_layer_is_its_parameters() -> None:
    w = weights()
    got = layer(w, "features.backbone.0")
    assert got.dtype is torch.float64
    parts = [w["features.backbone.0.bias"], w["features.backbone.0.weight"].flatten()]
    assert torch.equal(got, torch.cat(parts).double())
    assert torch.equal(layer(w, "first"), got)
    assert torch.equal(layer(w, "last"), layer(w, "features.bottleneck.linear"))


def test_buffers_are_no_parameters() -> None:
    """Of a norm its weight and bias; of f all that is trained, and nothing of g."""
    w = weights()
    norm = layer(w, "features.bottleneck.norm")
    assert torch.equal(norm, torch.cat([torch.zeros(128), torch.ones(128)]).double())
    trained = [p.numel() for n, p in nets.build(SMALL).named_parameters() if not n.startswith("classifier.")]
    assert len(layer(w, "all")) == sum(trained)
    assert torch.equal(layer(w, "all"), layer(backbone_of(w), "all"))


@for_all(25, st.permutations(list(weights())), st.sampled_from(["all", "first", "last", "features.bottleneck", "classifier"]))
def test_the_order_of_a_mapping_does_not_matter(names: list[str], which: str) -> None:
    """Weights that came in a message are compared with weights that did not."""
    w = weights()
    assert torch.equal(layer({name: w[name] for name in names}, which), layer(w, which))


def test_a_group_of_layers() -> None:
    """The beginning of a name, whole steps of it: `layer1` is not `layer10`, nor half a word."""
    w = {f"features.{name}.weight": torch.full((1, 2), float(i)) for i, name in enumerate(("layer1.0", "layer1.1", "layer10.0"))}
    assert layer(w, "features.layer1").tolist() == [0, 0, 1, 1]
    with pytest.raises(ConfigRefused):
        layer(w, "features.lay")


def test_a_normed_weight_belongs_to_its_layer() -> None:
    """Length and direction are kept apart; both are the classifier's."""
    w = nets.template(World(inputs=WORLD.inputs, classes=5, model="resnet18_wn"))
    assert known_layers(w)[-1] == "classifier"
    assert known_layers(w)[:2] == ["features.backbone.bn1", "features.backbone.conv1"]


def test_a_layer_that_is_none_is_refused() -> None:
    """With what was meant, some that exist, and how many more there are."""
    with pytest.raises(ConfigRefused) as refusal:
        layer(weights(), "features.bottleneck.linaer", path="config.cluster_on")
    said = str(refusal.value)
    assert said.startswith("config.cluster_on is 'features.bottleneck.linaer'; the network has no such layer")
    assert "all, first, last, features.backbone.0" in said and "and 2 more" in said
    assert "did you mean features.bottleneck.linear?" in said
    assert refusal.value.context["path"] == "config.cluster_on"
    with pytest.raises(ConfigRefused, match="no such layer"):
        layer(weights(), "")


def test_few_large_images_pass_at_once() -> None:
    """A photograph's first layer takes hundreds of megabytes for every few rows; digits go by the half thousand."""
    assert nets.rows_of(torch.empty(9, 1, 28, 28)) == 512
    assert nets.rows_of(torch.empty(9, 3, 224, 224)) == 27
    assert nets.rows_of(torch.empty(0, 8)) == 512
    assert nets.rows_of(torch.empty(2, 1 << 23, device="meta")) == 1


FAMILIES = {
    "mlp": World(inputs=(6,), model="mlp"),
    "lenet_bn": World(inputs=(1, 28, 28), model="lenet_bn"),
    "resnet18": World(inputs=(3, 32, 32), model="resnet18"),
}


def empty(net: type[nn.Module]) -> nn.Module:
    with torch.device("meta"):
        return net()


@pytest.mark.parametrize("model", FAMILIES)
def test_a_copy_computes_what_the_network_does(model: str) -> None:
    world = FAMILIES[model]
    net = nets.build(world).eval()
    copy = nets.loaded(world, nets.weights_of(net)).eval()
    x = torch.rand(2, *world.inputs)
    assert torch.equal(net(x), copy(x))
    assert copy.state_dict().keys() == net.state_dict().keys()


def test_a_copy_shares_nothing() -> None:
    """Training one changes neither the weights that it was made of nor another copy; nor do hooks."""
    world = FAMILIES["mlp"]
    weights = nets.weights_of(nets.build(world))
    before = {name: each.clone() for name, each in weights.items()}
    one, other = nets.loaded(world, weights), nets.loaded(world, weights)
    one.register_forward_hook(lambda *given: None)
    with torch.no_grad():
        for each in one.parameters():
            each.add_(1.0)
    assert all(torch.equal(weights[name], before[name]) for name in before)
    assert all(torch.equal(each, before[name]) for name, each in other.state_dict().items())
    assert not other._forward_hooks
    assert one.training


class Tied(nn.Module):
    """Two names for one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(2, 2), nn.Linear(2, 2)
        self.other.weight = self.one.weight


def test_tied_weights_stay_tied() -> None:
    made = Prototype(empty(Tied)).filled(nets.weights_of(Tied()), "cpu")
    assert made is not None
    assert made.one.weight is made.other.weight


class Listed(nn.Module):
    """A list refers to a layer, too."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.order = [self.layer]


class Unsaved(nn.Module):
    """A buffer that no state_dict names."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(1), persistent=False)


@pytest.mark.parametrize("net", [Listed, Unsaved])
def test_what_a_copy_would_lose_is_not_copied(net: type[nn.Module]) -> None:
    assert Prototype(empty(net)).filled(nets.weights_of(net()), "cpu") is None


@pytest.mark.parametrize("odd", [{}, {"weight": torch.zeros(3, 2), "bias": torch.zeros(2)}, {"weight": torch.zeros(2, 2)}])
def test_weights_of_another_network_are_refused_as_ever(odd: dict[str, Tensor]) -> None:
    with torch.device("meta"):
        prototype = Prototype(nn.Linear(2, 2))
    assert prototype.filled(odd, "cpu") is None
    with pytest.raises(RuntimeError):
        nets.loaded(FAMILIES["mlp"], odd)


def test_numbers_of_another_dtype_are_converted_as_ever() -> None:
    world = FAMILIES["mlp"]
    weights = {name: each.double() for name, each in nets.weights_of(nets.build(world)).items()}
    assert {each.dtype for each in nets.loaded(world, weights).parameters()} == {torch.float32}
