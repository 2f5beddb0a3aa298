"""Weights of a package's own model as the start of a run, and weights that are drawn."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.learning.test_weights import same, weights
from tests.nets.test_families import world
from tideline import nets
from tideline.core.asked.world import HEAD, World
from tideline.core.errors import ConfigRefused
from tideline.learning.backbones import Start, fresh, sentence, start
from tideline.learning.frozen import base_of
from tideline.learning.weights import differences
from tideline.nets import registry

PHOTOS = World(inputs=(3, 32, 32), classes=3, model="resnet18")


@pytest.fixture
def published() -> dict[str, Tensor]:
    """A state dict as torchvision publishes them."""
    return file_of("resnet18")


def test_a_published_backbone_is_taken(published: dict[str, Tensor]) -> None:
    """Every tensor but those of fc under its new name; bottleneck and classifier as the seed draws them."""
    got, first = start(PHOTOS, published, seed=0).weights, weights(PHOTOS)
    assert list(got) == list(first) and differences(PHOTOS, got) == ()
    for name, w in got.items():
        old = name.removeprefix("features.backbone.")
        assert torch.equal(w, published[old] if old != name else first[name]), name
    assert {n.removeprefix("features.backbone.") for n in got} & published.keys() == published.keys() - {"fc.weight", "fc.bias"}


def test_the_global_generator_stays_as_it_was(published: dict[str, Tensor]) -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    seeded = start(PHOTOS, published, seed=0).weights
    assert torch.equal(torch.get_rng_state(), state)
    assert same(start(PHOTOS, published).weights, seeded)
    assert not torch.equal(torch.get_rng_state(), state)


def test_an_old_published_file_has_no_counters(published: dict[str, Tensor]) -> None:
    """They start at zero; a file that was trained without fc is taken as well."""
    old = {n: w for n, w in published.items() if not n.endswith("num_batches_tracked") and not n.startswith("fc.")}
    got = start(PHOTOS, old, seed=0).weights
    assert int(got["features.backbone.bn1.num_batches_tracked"]) == 0
    assert torch.equal(got["features.backbone.bn1.running_var"], published["bn1.running_var"])


def test_a_backbone_of_another_network_is_refused(published: dict[str, Tensor]) -> None:
    """In torchvision's names; so is a network that has no such backbone."""
    with pytest.raises(ConfigRefused) as refusal:
        start(PHOTOS, {n: w for n, w in published.items() if not n.startswith("layer4.1")} | {"extra": torch.ones(1)})
    assert "do not fit resnet18: layer4.1.conv1.weight is missing, which is 512 x 512 x 3 x 3" in refusal.value.what
    assert refusal.value.what.endswith("; and 8 more")
    with pytest.raises(ConfigRefused, match=r"conv1\.weight is 64 x 1 x 7 x 7; the network has: 64 x 3 x 7 x 7"):
        start(PHOTOS, published | {"conv1.weight": torch.ones(64, 1, 7, 7)})
    with pytest.raises(ConfigRefused, match=r"do not fit lenet_bn"):
        start(World(inputs=(1, 8, 8), classes=3, model="lenet_bn"), published)


MOBILE = "torchvision/mobilenet_v3_small"
NARROW = {"bottleneck.linear", "bottleneck.norm", "classifier"}
at_night = pytest.mark.nightly(job="numbers")


@cache
def state_of(name: str, classes: int) -> dict[str, Tensor]:
    """Return a state dict of torchvision's with numbers of its own in every tensor."""
    from torchvision.models import get_model

    torch.manual_seed(5)
    net = get_model(name, weights=None, num_classes=classes, **({"init_weights": True} if name == "googlenet" else {}))
    return {n: torch.rand(w.shape).to(w.dtype) + 1 for n, w in net.state_dict().items()}


def file_of(name: str, classes: int = 1000, without: tuple[str, ...] = ()) -> dict[str, Tensor]:
    """Return the tensors of a state dict whose names have none of these beginnings."""
    return {n: w for n, w in state_of(name, classes).items() if not n.startswith(without or "-")}


def begun(its: World, given: dict[str, Tensor]) -> Start:
    """The start from a file: what it gives is in it, all else is as the seed draws it, and nothing is lost in silence."""
    got, own = start(its, given, seed=0), nets.own_names(its)
    first = weights(its)
    assert list(got.weights) == list(first) and differences(its, got.weights) == ()
    for name, w in got.weights.items():
        assert torch.equal(w, first[name] if own[name] in got.drawn else given[own[name]]), name
    assert given.keys() == {name for name in own.values() if name not in got.drawn} | got.unused.keys()
    return got


@pytest.mark.parametrize(
    ("options", "without", "drawn", "unused"),
    [
        ({}, (), {"classifier.3"}, {"classifier.3"}),
        pytest.param({}, ("classifier.3",), {"classifier.3"}, set(), marks=at_night),
        ({}, ("classifier.",), {"classifier.0", "classifier.3"}, set()),
        ({"bottleneck": 16}, (), NARROW, {"classifier.3"}),
        pytest.param({"bottleneck": 16}, ("classifier.3",), NARROW, set(), marks=at_night),
        ({"bottleneck": 16}, ("classifier.",), {*NARROW, "classifier.0"}, set()),
    ],
)
def test_a_file_with_another_head_or_none(
    options: dict[str, Any], without: tuple[str, ...], drawn: set[str], unused: set[str]
) -> None:
    got = begun(world(MOBILE, **options), file_of("mobilenet_v3_small", without=without))
    assert {name.rpartition(".")[0] for name in got.drawn} == drawn
    assert {name.rpartition(".")[0] for name in got.unused} == unused
    assert "drawn from the seed, for the run to train: " in sentence(got)
    assert ("not loaded: classifier.3.weight (1000 x 1024), classifier.3.bias (1000)" in sentence(got)) == bool(unused)


def test_a_file_that_fits_is_taken_whole() -> None:
    """With the world's classes; that of a whole network over a bottleneck, too, in its own names."""
    assert not sentence(begun(world(MOBILE), file_of("mobilenet_v3_small", classes=3)))
    narrow = world(MOBILE, bottleneck=16)
    own = nets.own_names(narrow)
    assert not sentence(begun(narrow, {own[name]: w + 1 for name, w in weights(narrow).items()}))
    with pytest.raises(ConfigRefused, match=f"do not fit {MOBILE}: features.0.0.weight is missing"):
        start(world(MOBILE), file_of("shufflenet_v2_x0_5"))


@at_night
def test_a_head_whose_name_the_bottlenecks_classifier_has_too() -> None:
    got = begun(world("torchvision/densenet121", bottleneck=16), file_of("densenet121"))
    assert got.unused.keys() == {"classifier.weight", "classifier.bias"}


@at_night
def test_auxiliary_outputs_are_left_out() -> None:
    """Files that torchvision publishes have them, and no network here."""
    got = begun(world("torchvision/googlenet"), file_of("googlenet", classes=3))
    assert not got.drawn and sentence(got).startswith("not loaded: aux1.conv.conv.weight") and "more" in sentence(got)


def test_a_frozen_encoder_takes_a_file_with_another_head() -> None:
    given = file_of("mobilenet_v3_small")
    base = base_of(replace(world(MOBILE), trains=HEAD), given)
    assert torch.equal(base["features.classifier.0.weight"], given["classifier.0.weight"])
    assert not any(name.startswith("classifier.") for name in base)
    for its, todo in ((world(MOBILE, bottleneck=16), "Leave the option"), (PHOTOS, "Use model: torchvision/resnet18")):
        with pytest.raises(ConfigRefused, match="the bottleneck would stay as it was drawn") as refusal:
            base_of(replace(its, trains=HEAD), given if its is not PHOTOS else file_of("resnet18"))
        assert todo in refusal.value.todo


def held_elsewhere() -> bool:
    """Whether another thread would have to wait before it draws."""
    free = list[bool]()

    def look() -> None:
        free.append(nets.DRAWING.acquire(blocking=False))
        if free[0]:
            nets.DRAWING.release()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return not free[0]


@pytest.mark.parametrize("seed", [None, 3])
def test_nobody_else_draws_meanwhile(seed: int | None) -> None:
    """Two simulations in two threads of a program have the numbers of their own seeds."""
    held = list[bool]()

    def build(world: World) -> nn.Module:
        held.append(held_elsewhere())
        return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, world.classes))

    with registry.beside({"mine": build}):
        made: dict[str, Any] = fresh(World(inputs=(4,), classes=2, model="mine"), seed)
    assert len(made) == 4 and all(isinstance(w, torch.Tensor) for w in made.values())
    assert len(held) > 1 and all(held)
