"""Networks of digits: FADA's, those beside them, ST-LF's, and the one with inception modules."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tideline import nets
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.nets.disentangling import Beside, beside, identifier, logits, numbers, parted, sizes
from tideline.nets.layers import parameters
from tideline.nets.small import Inception, InceptionNet

WHOLE = World(inputs=(3, 32, 32), classes=10, model="fada_digits")
SMALL = World(inputs=(3, 28, 28), classes=10, model="fada_small")


def counted(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def of_features(world: World) -> int:
    """Parameters of G, without storage."""
    weights = nets.template(world)
    return sum(weights[name].numel() for name in parameters(weights) if name.startswith("features."))


def test_parameters_of_the_whole_networks() -> None:
    """Those of the authors' networks on 3 x 32 x 32. DI has one logit here and two there: 257 numbers fewer."""
    assert sizes(WHOLE) == (8192, 2048)
    assert of_features(WHOLE) == 31_785_408
    with torch.device("meta"):
        made = Beside(8192, 2048, 10)
        assert [counted(module) for module in (made.D, made.CI, made.R, made.M)] == [31_472_640, 20_490, 33_562_624, 2_098_689]
        assert counted(nets.build(WHOLE).get_submodule("classifier")) == 20_490
    assert numbers(2048) == 525_058 - 257


def test_parameters_of_the_small_networks() -> None:
    assert sizes(SMALL) == (3920, 50)
    assert of_features(SMALL) == 800_590
    made = beside(SMALL)
    assert [counted(module) for module in (made.D, made.CI, made.R, made.M)] == [794_750, 510, 395_920, 1_031]
    assert numbers(50) == 532 - 11


@pytest.mark.parametrize(("model", "d"), [("fada_digits", 2048), ("fada_small", 50)])
@pytest.mark.parametrize("inputs", [(1, 16, 16), (3, 28, 33)])
def test_they_take_images_of_other_sizes(model: str, d: int, inputs: tuple[int, int, int]) -> None:
    world = World(inputs=inputs, classes=7, model=model)
    assert sizes(world)[1] == d == nets.width(world)
    if model == "fada_small":
        net, x = nets.build(world).eval(), torch.randn(4, *inputs)
        body, head = parted(net)
        assert torch.equal(head(body(x)), net.get_submodule("features")(x)) and net(x).shape == (4, 7)


@pytest.mark.parametrize("model", ["fada_digits", "fada_small"])
@pytest.mark.parametrize("inputs", [(1, 15, 28), (64,)])
def test_what_is_too_small_or_no_image_is_refused(model: str, inputs: tuple[int, ...]) -> None:
    with pytest.raises(ConfigRefused, match=r"of 16 pixels or more|takes images \(channels, height, width\)") as refusal:
        nets.check(World(inputs=inputs, classes=10, model=model))
    assert refusal.value.context["path"] == "world.inputs" and "mlp" in refusal.value.todo


@pytest.mark.parametrize(("model", "d"), [("mlp", 64), ("linear", 8)])
def test_other_networks_have_one_part(model: str, d: int) -> None:
    """f_conv is f, whatever the network; also where the features are the rows."""
    world = World(inputs=(8,), classes=3, model=model)
    assert sizes(world) == (d, d)
    made = beside(world)
    assert made.D(torch.randn(4, d)).shape == (4, d) and made.R(torch.randn(4, 2 * d)).shape == (4, d)


def test_an_identifier_as_a_vector() -> None:
    """The same logits as the network of these parameters; no batch norm, no activation behind the last layer."""
    net, f = identifier(50), torch.randn(6, 50)
    vector = torch.nn.utils.parameters_to_vector(net.parameters())
    torch.testing.assert_close(logits(vector, f), net(f).squeeze(1))
    assert [type(layer) for layer in net] == [nn.Linear, nn.LeakyReLU, nn.Linear]
    assert bool((logits(vector, 100 * f) < 0).any())


DIGITS = World(inputs=(1, 28, 28), classes=10, model="convnet")


@pytest.mark.parametrize(("channels", "outputs", "numbers"), [(1, 10, 21_840), (3, 10, 22_340), (1, 2, 21_432)])
def test_it_has_as_many_numbers_as_published(channels: int, outputs: int, numbers: int) -> None:
    """Of the classifier of digits, grey and in colour, and of that which tells two devices apart."""
    weights = nets.template(World(inputs=(channels, 28, 28), classes=outputs, model="convnet"))
    assert sum(w.numel() for w in weights.values()) == numbers
    assert {name.partition(".")[0] for name in weights} == {"features", "classifier"}


@pytest.mark.parametrize("size", [(16, 16), (28, 28), (32, 41)])
def test_it_takes_images_of_other_sizes(size: tuple[int, int]) -> None:
    world = World(inputs=(3, *size), classes=7, model="convnet")
    assert nets.width(world) == 50
    assert nets.build(world)(torch.zeros(4, *world.inputs)).shape == (4, 7)


@pytest.mark.parametrize("inputs", [(1, 15, 28), (1, 28, 15)])
def test_what_is_too_small_is_refused(inputs: tuple[int, ...]) -> None:
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
    with pytest.raises(ConfigRefused, match="inputs"):
        nets.check(World(inputs=inputs, classes=4, model="inception"))
