"""Anybody's module becomes a network of features and classifier, or is refused by name with the way out."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from tests.nets import foreign as theirs
from tideline import nets
from tideline.core.asked.world import World, plain_world, world_in
from tideline.core.errors import ConfigRefused
from tideline.nets import registry

PLACE = "tests.nets.foreign"
IMAGE = (1, 8, 8)


@pytest.fixture(autouse=True)
def added_networks() -> Iterator[None]:
    """Add the networks to the process, for one test."""
    registry.use([f"{PLACE}:NETWORKS"])
    yield
    registry.use([])


def world(model: str, inputs: tuple[int, ...] = IMAGE, **options: Any) -> World:
    return world_in({"inputs": list(inputs), "classes": 3, "model": {"name": model, "options": options} if options else model})


WORKING = {"convolutions": 4, "sequence": 6, "named": 3, "unsaved": 5, "shaped": 5, "apart": 7}


@pytest.mark.parametrize("model", WORKING)
def test_a_module_becomes_features_and_a_classifier(model: str) -> None:
    """What it computes, its width, its copies and its names are its own."""
    its, drawn = world(model), torch.manual_seed(3).get_state()
    assert nets.width(its) == WORKING[model]
    assert torch.equal(torch.default_generator.get_state(), drawn), "looking at a network draws no numbers"
    net = nets.build(its)
    torch.manual_seed(3)
    module = theirs.NETWORKS[model](its)
    own = nets.own_names(its)
    assert {own[name]: w.shape for name, w in net.state_dict().items()} == {n: w.shape for n, w in module.state_dict().items()}
    assert all(torch.equal(w, module.state_dict()[own[name]]) for name, w in net.state_dict().items())
    assert all(each.training for each in net.modules())
    x = torch.rand(5, *IMAGE)
    copy = nets.loaded(its, nets.weights_of(net))
    assert torch.equal(net.eval()(x), copy.eval()(x))
    assert nets.features(copy, x).shape == (5, WORKING[model])
    assert list(nets.template(its)) == list(copy.state_dict())
    assert any(name.startswith("classifier.") for name in copy.state_dict())


def test_a_copy_shares_nothing_with_another() -> None:
    its = world("unsaved")
    weights = nets.weights_of(nets.build(its))
    one, other = nets.loaded(its, weights), nets.loaded(its, weights)
    with torch.no_grad():
        for each in (*one.parameters(), *one.buffers()):
            each.add_(1)
    assert all(torch.equal(w, weights[name]) for name, w in other.state_dict().items())
    assert dict(other.named_buffers())["features.scale"].item() == 3.0


def test_what_a_forward_has_computed_is_in_no_copy() -> None:
    """A module that keeps numbers of its weights in a plain attribute: a copy with other weights would predict by them."""
    registry.use([f"{PLACE}:caching"])
    its = world("caching")
    net = nets.build(its)
    with torch.no_grad():
        dict(net.named_parameters())["features.scale"].fill_(2)
    x = torch.rand(2, *IMAGE)
    assert torch.equal(net.eval()(x), nets.loaded(its, nets.weights_of(net)).eval()(x))


@pytest.mark.parametrize("made", [nets.build, lambda its: nets.build(its)], ids=["build", "another builder"])
def test_buffers_that_no_state_dict_has_are_in_every_copy(made: Any) -> None:
    """Random ones too: they are drawn once, and are the same for whoever builds the network."""
    its = world("unsaved")
    net = nets.build(its)
    copy = nets.loaded(its, nets.weights_of(net), made=made)
    assert net.state_dict().keys() == copy.state_dict().keys() == {"classifier.weight", "classifier.bias"}
    for name, buffer in net.named_buffers():
        assert torch.equal(buffer, dict(copy.named_buffers())[name])
    nets.foreign.known_foreign.cache_clear()
    torch.manual_seed(99)
    assert torch.equal(dict(nets.build(its).named_buffers())["features.mix"], dict(net.named_buffers())["features.mix"])


def test_options_reach_the_builder_and_the_caches() -> None:
    wide, narrow = world("convolutions", width=9), world("convolutions", width=2, deep=True)
    assert (nets.width(wide), nets.width(narrow)) == (9, 2)
    assert nets.template(wide).keys() < nets.template(narrow).keys()
    assert nets.width(world("sequence", hidden=[4, 5])) == 5
    assert world_in(plain_world(wide)) == wide
    assert plain_world(wide)["model"] == {"name": "convolutions", "options": {"width": 9}}


OPTIONS = {
    "convolutions": [
        ({"widht": 3}, "no option 'widht'", "widht", "did you mean width?"),
        ({"width": "3"}, "width is '3'; it should be a whole number", "width", ""),
        ({"width": True}, "width is True; it should be a whole number", "width", ""),
        ({"drop": "much"}, "drop is 'much'; it should be a number", "drop", ""),
        ({"deep": 1}, "deep is 1; it should be true or false", "deep", ""),
    ],
    "sequence": [
        ({"hidden": 4}, "hidden is 4; it should be a list", "hidden", ""),
        ({"hidden": [4, "x"]}, r"hidden\[1\] is 'x'", "hidden[1]", ""),
        ({"act": "sine"}, "should be one of relu, tanh", "act", ""),
    ],
    "needy": [
        ({"names": ["a"]}, "depth is missing", "depth", "options: {depth: ...}"),
        ({"depth": 1, "names": [1]}, r"names\[0\] is 1; it should be a text", "names[0]", ""),
    ],
    "odd_hint": [({"act": "relu"}, "which no file can say", "act", "")],
    "anything": [({"x": {"y": 1}}, "should be of whole numbers", "x", "")],
    "lenet": [({"width": 3}, "lenet has no option 'width'", "width", "this network has none")],
}


def test_options_that_do_not_fit_are_refused_at_their_place(subtests: pytest.Subtests) -> None:
    for model, options, reason, path, todo in [(model, *case) for model, cases in OPTIONS.items() for case in cases]:
        with subtests.test(f"{model} {options}"):
            with pytest.raises(ConfigRefused, match=reason) as refusal:
                nets.check(world(model, **options))
            assert refusal.value.context["path"] == f"world.model.options.{path}"
            assert todo in refusal.value.todo


def test_any_option_that_a_file_can_say_is_taken() -> None:
    nets.check(world("anything", a=[1, "x"], b=None, c=2.5))
    nets.check(world("needy", depth=2, names=["a"], rate=None))


REFUSED = {
    "softmaxed": ("does something after its head fc", "let forward end with the head"),
    "raising": ("raises KeyError in forward", "See the log"),
    "odd": (r"gives a tensor of \[2, 1\] for two rows, where \[2, 3\] is", "Return one tensor"),
    "pair": ("gives a tuple for two rows", "Return one tensor"),
    "auxiliary": ("gives a tuple when it is in training mode", "auxiliary"),
    "notfinite": ("numbers that are not finite", "Look at its first weights"),
    "lazy": ("is lazy: body.weight has no shape", "nn.LazyLinear"),
    "shared": ("one tensor under two names, body.weight and twin.weight", "Register it once"),
    "plainly": ("a plain tensor as its attribute mean", 'register_buffer("mean"'),
    "listed": ("modules as its attribute layers", "nn.ModuleList"),
    "headless": ("has no head that can be found", "classifier_name"),
    "misnamed": ("says that its head is 'nowhere'", "Use one of: body, fc"),
    "flattening": (r"gives its head fc \[2, 1, 8, 8\] for 2 rows, which is not \(n, d\)", "Flatten"),
    "breaking": ("its builder raises ValueError", "correct the builder"),
    "no_module": ("is an int", "nn.Module"),
    "picky": ("This one takes squares", "Write squares"),
    "nothing": ("does not take a world", "build.world"),
}


def test_what_cannot_work_is_refused_with_the_way_out(subtests: pytest.Subtests, caplog: pytest.LogCaptureFixture) -> None:
    """The words of an exception that a network raises are in the log, and in no refusal."""
    for model, (reason, todo) in REFUSED.items():
        with subtests.test(model), caplog.at_level(logging.WARNING):
            caplog.clear()
            with pytest.raises(ConfigRefused, match=reason) as refusal:
                nets.check(world(model))
            assert todo.replace("build.world", "build(world") in refusal.value.todo
            assert "a word of its own" not in str(refusal.value)
            assert ("a word of its own" in caplog.text) == (model in ("raising", "breaking"))


def test_a_network_that_is_another_one_each_time_is_refused() -> None:
    nets.check(world("changing"))
    with pytest.raises(ConfigRefused, match="another one each time"):
        nets.build(world("changing"))


PLACES = {
    "no.such.module:build": "No module named 'no'",
    f"{PLACE}:no_such": "no attribute 'no_such'",
    f"{PLACE}": "no attribute ''",
    f"{PLACE}:BUILT": "built already",
    f"{PLACE}:NOT_CALLABLE": "'x' is an int",
    f"{PLACE}:NO_NAME": "'' cannot name a network",
    f"{PLACE}:NONE_AT_ALL": "an empty mapping",
    f"{PLACE}:REPLACING": "networks are added, never replaced",
    f"{PLACE}:FAMILY": "networks are added, never replaced",
}


def test_a_place_without_networks_is_refused(subtests: pytest.Subtests) -> None:
    for place, reason in PLACES.items():
        with subtests.test(place):
            with pytest.raises(ConfigRefused, match=reason) as refusal:
                registry.use([place])
            assert "--networks" in str(refusal.value)
            assert registry.places() == (f"{PLACE}:NETWORKS",)


def test_two_networks_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigRefused, match="never replaced"):
        registry.use([f"{PLACE}:NETWORKS", f"{PLACE}:sequence"])


def test_an_unknown_network_says_how_one_is_added() -> None:
    registry.use([])
    with pytest.raises(ConfigRefused, match="there is no such network here") as seen:
        nets.check(world("sequenec"))
    assert "--networks MODULE:NAME" in seen.value.todo


def test_a_module_in_the_current_folder_is_found(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    (tmp_path / "their_net.py").write_text("from torch import nn\n\ndef small(world):\n    return nn.Linear(4, world.classes)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    assert registry.use(["their_net:small"]) == ("small",)
    assert nets.own_names(world("small", (4,))) == {"classifier.weight": "weight", "classifier.bias": "bias"}


def test_a_builder_of_another_process_is_not_remembered(tmp_path: Any) -> None:
    registry.use([f"{PLACE}:convolutions"])
    assert nets.width(world("convolutions")) == 4
    registry.HERE[:] = [registry.Added(("x:y",), (("convolutions", lambda its: nn.Sequential(nn.Flatten(), nn.Linear(64, 3))),))]
    assert nets.width(world("convolutions")) == 64


@pytest.mark.parametrize("width", [10**9, 10**12])
def test_a_network_that_no_site_could_hold_is_refused_before_it_is_built(width: int) -> None:
    rooms = list[torch.device]()

    def build(world: World, width: int = 4) -> nn.Module:
        rooms.append(torch.empty(0).device)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.Linear(width, world.classes))

    with registry.beside({"vast": build}):
        with pytest.raises(ConfigRefused, match=r"The network vast has .* numbers, which is beyond") as refused:
            nets.check(world("vast", width=width))
        assert refused.value.context["path"] == "world.model" and {each.type for each in rooms} == {"meta"}
        nets.check(world("vast", width=5))


def test_a_builder_that_needs_numbers_works_all_the_same() -> None:
    def build(world: World) -> nn.Module:
        hidden = int(torch.ones(4).sum())
        return nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.Linear(hidden, world.classes))

    with registry.beside({"numbers": build}):
        assert nets.width(world("numbers")) == 4
