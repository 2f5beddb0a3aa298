"""Runs of whose network a part trains: over all methods, what stays as it was, what travels, and what they begin from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor
from torchvision.models import get_model

from tests.frozen.played import FEATURES, IMAGES, ROSTER, begun, drawn, encoder
from tests.laws.case import ALLOWED
from tests.synthetic import experiment
from tideline import nets
from tideline.algorithms import METHODS
from tideline.algorithms.averaging.messages import State
from tideline.archive.reader import decode
from tideline.core.asked.world import world_in
from tideline.core.errors import ConfigRefused
from tideline.core.privacy import DEFAULT_POLICY
from tideline.core.run import ClientId, RunId
from tideline.engine.simulation.federation import Federation
from tideline.experiments.simulation import models_of
from tideline.learning.frozen import base_of
from tideline.nets.forms import INSIDE

BN: dict[str, Any] = {"inputs": [1, 8, 8], "classes": 3, "model": "lenet_bn"}
UPPER = ("*.bottleneck.*", "classifier.*")
LINEAR = ("*.linear.*",)  # under batch norm and a head that are frozen
UNDER = ("fedprox", "central", "hfedf", "fada", "stlf", "shot")  # in which LINEAR is tried, too


@pytest.mark.parametrize(("method", "trains"), [*((name, UPPER) for name, _ in METHODS), *((name, LINEAR) for name in UNDER)])
def test_what_is_frozen_stays_and_does_not_travel(method: str, trains: tuple[str, ...]) -> None:
    """Or a method says what it needs. The models are whole, and have the frozen tensors bit by bit."""
    weights, policy = drawn(BN), DEFAULT_POLICY | ALLOWED.get(method, frozenset())
    try:
        federation, run = begun(weights, method, BN, trains, policy)
    except ConfigRefused as refusal:
        assert refusal.what.startswith(f"With world.trains {' '.join(trains)} a method sees the tensors that train alone: ")
        assert refusal.todo.endswith("or write trains: all") and (method == "fedsr" or trains == LINEAR)
        return
    result = federation.run(run)
    assert result["status"] == "completed" and result["world"]["trains"] == list(trains), result["cause"]
    moving = nets.trained_names(world_in({**BN, "trains": list(trains)}))
    frozen = {name: w for name, w in weights.items() if name not in moving}
    base = federation.run_service.find(run).spec.initial_weights
    for name, w in tensors(federation, run, base):
        alike = {each: other for each, other in frozen.items() if w.shape == other.shape}
        assert not any(name.endswith(each) for each in alike), name
        assert w.numel() <= 3 or not any(torch.equal(w, each) for each in alike.values()), name
    models = dict(models_of(federation, run, result, METHODS))  # type: ignore[arg-type]
    for model in models.values():
        assert not model.world.frozen
        inside = INSIDE if any(name.startswith(INSIDE) for name in model.weights) else ""
        assert all(torch.equal(model.weights[inside + name], w) for name, w in frozen.items())


def tensors(federation: Federation, run: str, base: object) -> Iterator[tuple[str, Tensor]]:
    """All that the coordinator and the sites hold of a run, but the file that has what is frozen, and what is sealed."""
    vaults = [federation.agents[ClientId(name)].vault for name in ROSTER]
    for store in (federation.parts, *(vault.parts(RunId(run)) for vault in vaults)):
        for digest in sorted(store.inventory().keys() - {base}):
            with contextlib.suppress(SafetensorError):
                yield from load(bytes(store.view(digest))).items()


def test_the_frozen_part_travels_once() -> None:
    """With the join; after that orders and replies have what trains alone, and it has moved."""
    weights = drawn(BN)
    federation, run = begun(weights, world=BN, trains=LINEAR)
    result = federation.run(run)
    first, *later = [o for o in federation.journal.orders(run) if o.client == "anna"]
    whole, part = len(save(weights)), 4 * sum(w.numel() for name, w in weights.items() if ".linear." in name)
    assert whole <= first.bytes_down < whole + 2000
    assert max(max(o.bytes_down, o.bytes_up) for o in later) < part + 2000
    state = decode(State, result["state_digest"], federation.parts)
    assert not torch.equal(state.model["features.bottleneck.linear.weight"], weights["features.bottleneck.linear.weight"])


def test_patterns_that_match_the_head_are_the_head() -> None:
    """To the byte; the result says so. Those that match all of it need no weights."""
    ends = set()
    for trains in ("head", ["classifier.*"], ["classifier.weight", "class*bias"]):
        federation, run = begun(drawn(), trains=trains)
        result = federation.run(run)
        ends.add(result["state_digest"])
        assert result["world"]["trains"] == "head"
    assert len(ends) == 1
    federation, _ = begun(drawn())
    asked = experiment("local", ROSTER, reference={"method": "fedavg"})
    run = federation.start({**asked, "world": {**FEATURES, "trains": ["*"]}})
    result = federation.run(run)
    assert "trains" not in result["world"] and result["reference"]


def test_of_a_frozen_encoder_sites_compute_features_once() -> None:
    """Also where only some of the head trains. It is as if the whole network was asked, but for rounding."""
    weights = drawn(IMAGES)
    federation, run = begun(weights, world=IMAGES, trains=["classifier.weight"])
    result = federation.run(run)
    assert result["status"] == "completed"
    assert decode(State, result["state_digest"], federation.parts).model.keys() == {"classifier.weight"}
    assert dict(models_of(federation, run, result, METHODS))["model"].weights.keys() == weights.keys()  # type: ignore[arg-type]


def start_of(weights: Mapping[str, Tensor], trains: tuple[str, ...]) -> tuple[str, Mapping[str, Tensor]]:
    """What a run's first note says, and the model that no rounds end in."""
    federation, run = begun(weights, world=BN, trains=trains, config={"rounds": 0})
    result = federation.run(run)
    return result["notes"][0], decode(State, result["state_digest"], federation.parts).model


def test_it_begins_from_the_weights() -> None:
    """What of the tensors that train is there; what is not is drawn from the seed, which a note says."""
    weights, other = drawn(BN), drawn({**BN, "classes": 7}, 8)
    note, model = start_of(weights, UPPER)
    assert "9 of 13 tensors of lenet_bn train, 17,412 numbers" in note, note
    assert note.endswith("begins from the weights, too") and all(torch.equal(w, weights[n]) for n, w in model.items())
    for lacking in (encoder(weights), encoder(weights) | {n: w for n, w in other.items() if n.startswith("classifier.")}):
        note, model = start_of(lacking, UPPER)
        assert note.endswith("but for classifier.weight, classifier.bias, which are drawn from the seed")
        assert all(torch.equal(w, weights[n]) for n, w in model.items() if n.startswith("features."))
        assert not torch.equal(model["classifier.weight"], weights["classifier.weight"])
    bare = {name: w for name, w in weights.items() if name.startswith("features.backbone.")}
    note, model = start_of(bare, UPPER)
    assert note.endswith("begins from random numbers: the weights have none of it") and len(model) == 9
    federation, run = begun(weights, "local", BN, UPPER)
    assert federation.run(run)["notes"][0].endswith("random numbers: the method takes no initial weights")


@pytest.mark.parametrize(
    ("change", "trains", "said"),
    [
        (lambda w: encoder(w), LINEAR, "classifier.weight is missing"),
        (lambda w: {**w, **{n: o for n, o in drawn({**BN, "classes": 7}).items() if "classifier" in n}}, LINEAR, "is 7 x 128"),
        (lambda w: {n: x for n, x in w.items() if ".backbone.3." not in n}, UPPER, "features.backbone.3.weight is missing"),
        (lambda w: {**w, "features.bottleneck.linear.bias": torch.ones(5)}, UPPER, "features.bottleneck.linear.bias is 5"),
        (lambda w: {**w, "more": torch.ones(5)}, UPPER, "more is not in the network"),
    ],
)
def test_weights_that_do_not_fit_are_refused(change: Any, trains: tuple[str, ...], said: str) -> None:
    """What is frozen has to be there; only a head that trains may be another one."""
    with pytest.raises(ConfigRefused) as refusal:
        begun(change(drawn(BN)), world=BN, trains=trains)
    assert said in refusal.value.what and refusal.value.context["path"] == "weights"


def test_a_backbone_alone_under_a_bottleneck_that_trains() -> None:
    """Torchvision's names are known; where the bottleneck would not train it is refused, as for a head."""
    backbone, given = get_model("resnet18", weights=None).state_dict(), {"inputs": [3, 32, 32], "classes": 3, "model": "resnet18"}
    base = base_of(world_in({**given, "trains": list(UPPER)}), backbone)
    assert torch.equal(base["features.backbone.conv1.weight"], backbone["conv1.weight"])
    assert not any(name.startswith(("features.bottleneck", "classifier")) for name in base)
    with pytest.raises(ConfigRefused, match="the bottleneck would stay as it was drawn"):
        base_of(world_in({**given, "trains": ["classifier.*", "*.layer4.*"]}), backbone)


def test_a_private_run_takes_batch_norm_that_is_frozen() -> None:
    """Under a bottleneck whose norm stays as it came, a linear layer trains; where the norm trains, it mixes rows."""
    privacy = {"rows": 20, "noise": 2.0, "delta": 1e-3, "rate": 0.5}
    weights = drawn(BN)
    federation, run = begun(weights, world=BN, trains=LINEAR, privacy=privacy)
    found = federation.run(run)
    assert found["status"] == "completed", found["cause"]
    with pytest.raises(ConfigRefused, match="norm: group"):
        begun(weights, world=BN, trains=UPPER, privacy=privacy)
    grouped = {**BN, "model": {"name": "lenet_bn", "options": {"norm": "group"}}}
    federation, run = begun(drawn(grouped), world=grouped, trains=UPPER, privacy=privacy)
    assert federation.run(run)["status"] == "completed"
