"""Networks of source-free adaptation: f with a bottleneck, g one linear layer."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from tideline import nets
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.nets.bottleneck import KINDS, ResNet
from tideline.nets.layers import backbone_of, class_vectors, classifier_of

DIGITS = World(inputs=(1, 8, 12), classes=4, model="lenet_bn")
PHOTOS = World(inputs=(3, 32, 32), classes=5, model="resnet18_wn")
NAMES = ("lenet_bn", *KINDS)
NORM = "features.bottleneck.norm"


def drawn(world: World, seed: int) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    return nets.weights_of(nets.build(world))


def rows(world: World, n: int) -> Tensor:
    return torch.randn(n, *world.inputs, generator=torch.Generator().manual_seed(n))


@pytest.fixture(scope="module")
def resnet() -> nn.Module:
    """A ResNet-18 with a normed classifier."""
    torch.manual_seed(0)
    return nets.build(PHOTOS)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_described_without_storage(name: str) -> None:
    """Every tensor is f's or g's, f ends in the bottleneck, and g is linear from its features to the classes."""
    world = World(inputs=(3, 40, 33), classes=5, model=name)
    weights, q = nets.template(world), nets.width(world)
    assert all(w.is_meta for w in weights.values())
    assert q == (128 if name == "lenet_bn" else 256)
    assert weights["features.bottleneck.linear.weight"].shape[0] == weights[f"{NORM}.running_mean"].shape[0] == q
    f, g = backbone_of(weights), classifier_of(weights)
    assert list(f | g) == list(weights) and all(n.startswith("features.") for n in f)
    assert {tuple(w.shape) for w in g.values()} == {(5,), (5, q)} | ({(5, 1)} if name.endswith("_wn") else set())


@pytest.mark.parametrize(("name", "weighted"), [("resnet18", 18), ("resnet50", 50)])
def test_the_depth_is_in_the_name(name: str, weighted: int) -> None:
    """Convolutions on the way, the bottleneck in the place of torchvision's last layer, and no more of that."""
    f = backbone_of(nets.template(World(inputs=(3, 32, 32), model=name)))
    shortcuts = [n for n in f if n.endswith("downsample.0.weight")]
    assert len([n for n, w in f.items() if w.dim() > 1]) - len(shortcuts) == weighted
    assert not [n for n in f if ".fc." in n]


@pytest.mark.parametrize("model", ["resnet50", "lenet", "lenet_bn"])
def test_it_takes_images(model: str) -> None:
    """Other inputs are refused with the place, before anything is built; the words are the named network's."""
    large = [(1, 32, 32), (3, 31, 32), (3, 32, 31), (3, 32), (3072,), (3, 3, 32, 32)]
    for inputs in large if model == "resnet50" else [(1, 7, 8), (1, 8, 7), (8, 8), (64,)]:
        with pytest.raises(ConfigRefused, match=f"{model} takes images") as refusal:
            nets.check(World(inputs=inputs, model=model))
        assert refusal.value.context["path"] == "world.inputs" and refusal.value.todo
    nets.check(World(inputs=(3, 32, 32) if model == "resnet50" else (5, 8, 8), model=model))


def test_a_seed_gives_the_weights() -> None:
    first, again, other = drawn(DIGITS, 1), drawn(DIGITS, 1), drawn(DIGITS, 2)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["features.backbone.0.weight"], other["features.backbone.0.weight"])


def test_what_batch_norm_measures_travels() -> None:
    """Training moves the buffers, which are among the weights, and a network loaded with them computes the same bits."""
    net = nets.build(DIGITS)
    before = {name: w.clone() for name, w in nets.weights_of(net).items()}
    net.train()(rows(DIGITS, 16))
    after = nets.weights_of(net)
    moved = {name for name in after if not torch.equal(before[name], after[name])}
    assert moved == {f"{NORM}.running_mean", f"{NORM}.running_var", f"{NORM}.num_batches_tracked"}
    x = rows(DIGITS, 3)
    assert torch.equal(nets.features(nets.loaded(DIGITS, after), x), nets.features(net, x))


def test_dropout_is_for_training_alone() -> None:
    """In training half of the features are dropped, and the others doubled; in evaluation none."""
    net = nets.build(DIGITS)
    f = net.get_submodule("features").train()
    share = float((f(rows(DIGITS, 64)) == 0).double().mean())
    assert share == pytest.approx(0.5, abs=0.05)
    z = nets.features(net, rows(DIGITS, 64))
    assert not bool((z == 0).any()) and bool((z < 0).any()), "no ReLU either"


def test_g_after_f() -> None:
    net = nets.build(DIGITS).eval()
    x, bias = rows(DIGITS, 5), net.get_submodule("classifier").bias
    assert isinstance(bias, Tensor)
    torch.testing.assert_close(net(x), nets.features(net, x) @ class_vectors(net).T + bias)


def test_a_resnet_in_evaluation(resnet: nn.Module) -> None:
    """The smallest photographs it takes: finite logits, a class each, the same whatever else is in the batch."""
    resnet.eval()
    with torch.no_grad():
        logits = resnet(rows(PHOTOS, 2))
        alone = resnet(rows(PHOTOS, 2)[:1])
    assert logits.shape == (2, 5) and bool(torch.isfinite(logits).all())
    torch.testing.assert_close(logits[:1], alone)


def test_class_vectors_of_a_normed_classifier(resnet: nn.Module) -> None:
    """w_m = g_m v_m / |v_m|: what the layer uses, not what it keeps; a copy of its own, also after the lengths change."""
    g = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    head = nn.Module()
    head.classifier = g
    kept = g.state_dict()
    with torch.no_grad():
        kept["parametrizations.weight.original0"].copy_(torch.tensor([[2.0], [5.0]]))
    lengths, directions = (kept[f"parametrizations.weight.original{i}"] for i in (0, 1))
    w = class_vectors(head)
    torch.testing.assert_close(w, lengths * directions / directions.norm(dim=1, keepdim=True))
    torch.testing.assert_close(w.norm(dim=1), torch.tensor([2.0, 5.0]))
    assert torch.equal(w, g.weight) and not w.requires_grad
    assert class_vectors(resnet).shape == (5, 256)


def test_class_vectors_are_a_copy() -> None:
    net = nets.build(DIGITS)
    class_vectors(net).zero_()
    assert bool(class_vectors(net).any())


def test_a_normed_network_is_loaded(resnet: nn.Module) -> None:
    """Built without storage, filled by names: the same class vectors."""
    assert isinstance(resnet, ResNet)
    again = nets.loaded(PHOTOS, nets.weights_of(resnet))
    assert torch.equal(class_vectors(again), class_vectors(resnet))


@pytest.mark.nightly(job="numbers")
def test_others_do_not_wait_for_torchvision() -> None:
    """It is imported by the first ResNet that is built, and by nothing before."""
    probe = """
import sys
from tideline import nets
from tideline.core.asked.world import World
import tideline.learning.weights
nets.check(World(model='lenet_bn'))
assert 'torchvision' not in sys.modules, 'too early'
"""
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    nets.check(PHOTOS)
    assert "torchvision" in sys.modules
