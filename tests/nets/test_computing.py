"""Networks that run as the step at hand computes."""

from __future__ import annotations

import copy
import os

import pytest
import torch
from torch import Tensor, nn

from tideline import nets
from tideline.core.asked.computing import Computing, Deterministic, Precision
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, DeviceMissing
from tideline.core.settings import parse
from tideline.nets import registry
from tideline.nets.computing import NOT_COMPILED, arranging, computing_at, devices, here
from tideline.nets.layers import class_vectors

IMAGES = World(inputs=(1, 8, 8), classes=3)
HALF = Computing(precision=Precision.BFLOAT16)
LOW = pytest.mark.parametrize("precision", [Precision.BFLOAT16, Precision.FLOAT16])


def images(n: int = 5) -> Tensor:
    return torch.randn(n, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def start() -> dict[str, Tensor]:
    torch.manual_seed(0)
    return nets.weights_of(nets.build(IMAGES))


class Spy(nn.Module):
    """Remembers in which dtype it is."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.seen = nn.Linear(64, 7), list[torch.dtype]()

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.layer(x.flatten(1))
        self.seen.append(made.dtype)
        return made


@LOW
def test_layers_multiply_in_the_precision_and_give_float32(precision: Precision) -> None:
    """The whole, its features and its classifier, each called from outside; weights stay float32, and gradients are."""
    weights = start()
    with computing_at(Computing(precision=precision), "cpu"):
        net = nets.loaded(IMAGES, weights)
        f = net.get_submodule("features")(images())
        out, apart = net(images()), net.get_submodule("classifier")(f)
        out.square().mean().backward()
    plain = nets.loaded(IMAGES, weights)(images())
    assert {each.dtype for each in (f, out, apart)} == {torch.float32}
    assert not torch.equal(out, plain) and torch.allclose(out, plain, atol=0.05)
    assert all(p.dtype == torch.float32 and p.grad is not None and p.grad.dtype == torch.float32 for p in net.parameters())
    assert list(net.state_dict()) == list(weights)


def test_layers_inside_are_not_cast_back() -> None:
    """Between features and classifier numbers stay in the precision: what comes in is what the layer before gave."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features, self.classifier = Spy(), Spy()
            self.classifier.layer = nn.Linear(7, 3)

        def forward(self, x: Tensor) -> Tensor:
            f = self.features(x)
            self.between = f.dtype
            return self.classifier(f)

    with computing_at(HALF, "cpu"):
        net = arranging.arranged(Two())
        assert net(images()).dtype == torch.float32
    assert net.between == torch.bfloat16 and net.features.seen == [torch.bfloat16]


def test_outside_of_a_step_nothing_is_arranged() -> None:
    net = nets.build(IMAGES)
    with computing_at(Computing(), "cpu"):
        other = nets.build(IMAGES)
    assert not any("forward" in vars(each) for module in (net, other) for each in module.modules())
    assert here().plain


def test_an_arranged_network_can_be_copied() -> None:
    """The copy runs its own layers, and outside of the step as it is."""
    weights = start()
    with computing_at(HALF, "cpu"):
        net = nets.loaded(IMAGES, weights)
        other = copy.deepcopy(net)
        nn.init.zeros_(other.get_submodule("classifier").weight)
        low = net(images())
        assert not torch.equal(other(images()), low)
    fresh = nets.loaded(IMAGES, weights)(images())  # its kernels lie otherwise, which some processors round otherwise
    assert torch.allclose(net(images()), fresh, rtol=0.0, atol=1e-6) and not torch.allclose(low, fresh, rtol=0.0, atol=1e-6)


def test_prototypes_of_networks_stay_as_they_are() -> None:
    """A network that was first asked for within such a step is plain when it is asked for again."""
    world, weights = World(inputs=(1, 9, 9), classes=3), None
    with computing_at(HALF, "cpu"):
        nets.check(world)
        weights = nets.weights_of(nets.build(world))
        nets.loaded(world, weights)
    assert "forward" not in vars(nets.loaded(world, weights)) and nets.width(world) == 128


def test_class_vectors_of_a_normed_classifier() -> None:
    world = World(inputs=(3, 32, 32), classes=3, model="resnet18_wn")
    with computing_at(HALF, "cpu"):
        net = nets.build(world)
        assert class_vectors(net).dtype == torch.float32 and net(torch.randn(2, 3, 32, 32)).dtype == torch.float32


@pytest.mark.nightly(job="numbers")
def test_a_compiled_network_has_its_names_and_its_outputs() -> None:
    weights = start()
    arranging.UNCOMPILED.clear()
    with computing_at(Computing(compile=True), "cpu") as now:
        net = nets.loaded(IMAGES, weights)
        out = net(images())
    assert list(nets.weights_of(net)) == list(weights)
    assert torch.allclose(out, nets.loaded(IMAGES, weights)(images()), atol=1e-4) and not now.events


def test_what_cannot_be_compiled_runs_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[object] = []

    def broken(run: object) -> object:
        tries.append(run)
        raise RuntimeError("no compiler")

    arranging.UNCOMPILED.clear()
    monkeypatch.setattr(arranging, "compiled", broken)
    weights = start()
    for _ in range(2):
        with computing_at(Computing(compile=True), "cpu") as now:
            assert torch.equal(nets.loaded(IMAGES, weights)(images()), nets.loaded(IMAGES, weights)(images()))
        assert now.events == [NOT_COMPILED]
    assert len(tries) == 1
    arranging.UNCOMPILED.clear()


def test_a_network_of_the_owners_own() -> None:
    def flat(world: World) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.ReLU(), nn.Linear(9, world.classes))

    with registry.beside({"flat": flat}), computing_at(HALF, "cpu"):
        assert nets.build(World(inputs=(1, 8, 8), classes=3, model="flat"))(images()).dtype == torch.float32


class Viewed(nn.Module):
    """A network that flattens by `view`, which wants numbers in the order of their dims."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(2, 4, 3), nn.Linear(4 * 36, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.relu(self.conv(x)).view(len(x), -1))


def test_images_lie_with_their_channels_last_where_that_is_faster() -> None:
    """In 16 bits on a CPU, and on CUDA; in float32 on a CPU as they lay. A layer that wants them otherwise gets them so."""
    x = torch.randn(5, 2, 8, 8)
    with computing_at(HALF, "cpu") as now:
        net = arranging.arranged(Viewed())
        assert now.channels_last and net.conv.weight.is_contiguous(memory_format=torch.channels_last)
        for _ in range(2):
            net(x).sum().backward()
        assert net.conv.weight.is_contiguous() and net.conv.weight.grad is not None
        other = nets.build(World(inputs=(2, 8, 8), classes=3))
        other(x)
        assert all(w.is_contiguous() for w in nets.weights_of(other).values())
        assert not all(p.is_contiguous() for p in other.parameters())
    with computing_at(None, "cpu") as now:
        assert not now.channels_last
    with computing_at(None, "cuda:0") as now:
        assert now.channels_last


def test_deterministic_kernels_within_the_block_alone() -> None:
    with computing_at(Computing(deterministic=Deterministic.YES), "cpu") as now:
        assert torch.are_deterministic_algorithms_enabled() and now.computed.deterministic
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"]
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(("value", "same"), [("auto", True), ("yes", True), ("no", False), (True, True), (False, False)])
def test_what_a_place_says_of_itself(value: object, same: bool) -> None:
    with computing_at(parse(Computing, {"deterministic": value}), "cpu") as now:
        assert now.computed.deterministic is same and now.computed.device == "cpu"
    if value == "auto":
        with computing_at(parse(Computing, {"deterministic": value}), "cuda:1") as now:
            assert not now.computed.deterministic and now.computed.device == "cuda"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"precision": "float61"}, "computing.precision is 'float61'; it should be one of float32, bfloat16, float16.*float16"),
        ({"accumulate": 0}, "computing.accumulate is 0; it should be at least 1"),
        ({"deterministic": "perhaps"}, "computing.deterministic is 'perhaps'; it should be one of auto, yes, no"),
        ({"compiled": True}, "computing.compiled is not a known setting.*compile"),
    ],
)
def test_mistakes_name_their_place(given: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigRefused, match=words):
        parse(Computing, given, "computing")


def test_the_best_device_that_there_is() -> None:
    assert devices.chosen("cpu") == "cpu"
    assert devices.chosen("auto") == ("cuda" if torch.cuda.is_available() else "cpu")
    assert devices.computes_rightly("cpu") and not devices.computes_rightly("meta")
    with pytest.raises(DeviceMissing, match="--device quantum"):
        devices.present("quantum")


def test_shares_of_memory() -> None:
    assert devices.share_in("0.25") == 0.25 and devices.share_in(None) == devices.share_in("") == 1.0
    for text in ("0", "1.5", "half", "-1", "nan"):
        with pytest.raises(ConfigRefused, match="gpu-memory"):
            devices.share_in(text)
