"""Runs whose head alone trains: what travels, what they begin from, what they end in."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import save

from tests.frozen.played import FEATURES, HEAD, IMAGES, ROSTER, begun, drawn, encoder
from tests.synthetic import experiment, sites
from tideline.algorithms import METHODS
from tideline.algorithms.averaging.messages import State
from tideline.archive.errors import PartDamaged
from tideline.archive.folder import FolderParts
from tideline.archive.reader import decode
from tideline.client.answers import RunResult
from tideline.core.asked.world import HeadWorld, World, plain_world, world_in
from tideline.core.errors import ConfigRefused, Malformed
from tideline.core.run import ClientId, RunId
from tideline.engine.compute.step_runner import Base, StepRunner
from tideline.engine.coordinator.part_store import GRACE_SECONDS
from tideline.engine.model.runs import Status
from tideline.engine.simulation.federation import Federation
from tideline.engine.simulation.pools import ProcessPool
from tideline.experiments.simulation import models_of
from tideline.nets import build, own_names, played, template, width

NORMED: dict[str, Any] = {"inputs": [1, 8, 8], "classes": 3, "model": "lenet_bn"}
FILE = 121220  # bytes of the images' network as one file


def test_the_encoder_travels_once() -> None:
    """With the join; later orders bring the head, and replies send it alone."""
    federation, run = begun(drawn(IMAGES), world=IMAGES)
    assert federation.run(run)["status"] == "completed"
    first, *later = [o for o in federation.journal.orders(run) if o.client == "anna"]
    assert first.bytes_down == FILE and max(o.bytes_down for o in later) < 3000 and max(o.bytes_up for o in later) < 3000
    row = federation.run_service.find(run)
    assert all(o.files[-1] == (row.spec.initial_weights, FILE) for o in (first, *later))
    assert decode(State, row.state_digest, federation.parts).model.keys() == {"classifier.weight", "classifier.bias"}


@pytest.mark.parametrize("method", [name for name, _ in METHODS])
def test_every_method_trains_a_head_or_says_what_it_needs(method: str) -> None:
    """No method fails half-way."""
    try:
        federation, run = begun(drawn(), method)
    except ConfigRefused as refusal:
        sees = "With world.trains head a method sees the features and the head alone: "
        assert refusal.what.startswith(
            (f"{sees}world.model is mlp", f"{sees}world.inputs is [64], vectors (features); {method} takes")
        )
        assert refusal.todo.endswith("or write trains: all")
        return
    result = federation.run(run)
    assert result["status"] == "completed" or "policy forbids" in result["cause"], result["cause"]
    assert result["world"]["trains"] == "head"


def test_no_rounds_end_in_the_head_of_the_file() -> None:
    """A method that takes initial weights begins from the file's head, one that takes none from random numbers: notes say so."""
    weights = drawn()
    federation, run = begun(weights, config={"rounds": 0})
    result = federation.run(run)
    state = decode(State, result["state_digest"], federation.parts)
    assert all(torch.equal(w, weights[name]) for name, w in state.model.items())
    assert "The head begins from the head of the weights" in result["notes"][0] and "195 numbers" in result["notes"][0]
    other, own = begun(weights, "local")
    assert "from random numbers: the method takes no initial weights" in other.run(own)["notes"][0]


def test_a_file_without_a_head_that_fits() -> None:
    """One that lacks it, or has it of more classes, gives the encoder; the head is drawn from the seed."""
    weights, ends = drawn(), set()
    more = {**drawn({**FEATURES, "classes": 7}), **encoder(weights)}
    for given in (encoder(weights), more, more):
        federation, run = begun(given)
        result = federation.run(run)
        assert "the weights have no head of 3 classes" in result["notes"][0]
        ends.add(result["state_digest"])
    assert len(ends) == 1


def test_the_reference_is_over_the_same_encoder() -> None:
    """Whatever its method."""
    federation = Federation((*METHODS, ("plain", "tests.engine.test_initial_weights:plain_method")), sites())
    asked = {**experiment("plain", ROSTER, reference={"method": "local"}), "world": {**FEATURES, **HEAD}}
    run = federation.start({**asked, "weights": federation.bring([save(drawn())])})
    federation.run(run)
    row = federation.run_service.find(run)
    assert row.reference is not None
    sibling = federation.run_service.find(row.reference)
    assert sibling.status is Status.COMPLETED and sibling.spec.initial_weights == row.spec.initial_weights


@pytest.mark.parametrize("trains", ["head", ["*.bias"]])
def test_it_is_refused_without_weights(trains: Any) -> None:
    """With the way out."""
    with pytest.raises(ConfigRefused, match="and the run brings no weights for what is frozen") as refusal:
        Federation(METHODS, sites()).start({**experiment("fedavg", ROSTER), "world": {**FEATURES, "trains": trains}})
    assert refusal.value.context["path"] == "world.trains" and refusal.value.todo.startswith("Add weights: FILE")


def test_an_encoder_of_another_network_is_refused() -> None:
    """Its names and shapes, at the place of the weights."""
    with pytest.raises(ConfigRefused, match=r"features.1.weight is 64 x 5; the network has: 64 x 8") as refusal:
        begun(drawn({**FEATURES, "inputs": [5]}))
    assert refusal.value.context["path"] == "weights"


def test_what_methods_see() -> None:
    """Features and the head, of built-in networks by the head's own names; a world of which all trains is itself."""
    whole = world_in({**IMAGES, "trains": "head"})
    seen = played(whole)
    assert isinstance(seen, HeadWorld) and seen.inputs == (128,) == (width(whole),) and width(seen) == 128
    assert set(template(seen)) == {"classifier.weight", "classifier.bias"} == set(own_names(seen))
    x = torch.rand(4, 128, generator=torch.Generator().manual_seed(0))
    assert build(seen)(x).shape == (4, 3)
    assert played(World()) == World() and "trains" not in plain_world(World())
    assert world_in(plain_world(whole)) == whole


def test_the_frozen_weights_are_kept_with_the_final_state() -> None:
    """Whoever exports the model needs them, however late."""
    federation, run = begun(drawn())
    federation.run(run)
    digest = federation.run_service.find(run).spec.initial_weights
    federation.clock.advance(3 * GRACE_SECONDS)
    federation.part_store.collect()
    assert digest is not None and federation.parts.has(digest)
    assert digest in dict(federation.journal.rounds(run)[-1].state)


def test_an_order_without_the_frozen_weights_is_refused() -> None:
    """Whoever says that they are to be frozen brings them; nothing is looked for."""
    federation, run = begun(drawn())
    federation.scheduler.turn(run)
    order = next(federation.waiting())
    with pytest.raises(Malformed, match="does not bring the frozen weights"):
        next(federation.agents[ClientId("anna")].ready(replace(order, files=())))
    bare = {name: value for name, value in order.brief.items() if name != "base"}
    with pytest.raises(Malformed, match=r"brings no frozen weights, and world\.trains is head"):
        next(federation.agents[ClientId("anna")].ready(replace(order, brief=bare, files=())))


@pytest.mark.nightly(job="numbers")
@pytest.mark.parametrize(("world", "trains"), [(FEATURES, "head"), (NORMED, ["*.linear.*"])], ids=["head", "part"])
def test_a_pool_of_processes_gives_the_same_bytes(world: dict[str, Any], trains: Any) -> None:
    """The frozen weights reach the processes with each step."""
    federation, run = begun(drawn(world), world=world, trains=trains)
    end, brought = federation.run(run)["state_digest"], save(drawn(world))
    with contextlib.closing(Federation(METHODS, sites(), open_pool=partial(ProcessPool, jobs=1))) as other:
        asked = {**experiment("fedavg", ROSTER), "world": {**world, "trains": trains}, "weights": other.bring([brought])}
        assert other.run(other.start(asked))["state_digest"] == end


def test_a_folder_of_parts_does_as_memory(tmp_path: Path) -> None:
    """The same state where files pass in chunks."""
    federation, run = begun(drawn())
    end = federation.run(run)["state_digest"]
    other = Federation(METHODS, sites(), tmp_path)
    world = {**FEATURES, "trains": "head"}
    digest = other.bring([bytes(federation.parts.view(federation.run_service.find(run).spec.initial_weights))])  # type: ignore[arg-type]
    again = other.start({**experiment("fedavg", ROSTER), "world": world, "weights": digest})
    assert other.run(again)["state_digest"] == end


def test_frozen_weights_that_were_changed_at_a_site_are_not_used(tmp_path: Path) -> None:
    """By a disk, a power cut or a hand: nothing is computed with them, and the next order brings them again."""
    parts, world = FolderParts(tmp_path), world_in({**FEATURES, "trains": "head"})
    digest = parts.put([save(drawn())])
    runner = StepRunner(METHODS, lambda run: parts, sites()["anna"].open_site_data)
    base = Base(digest, 1, RunId("r"))
    assert runner.encoder(world, base).weights
    content = bytearray(parts.path(digest).read_bytes())
    content[-1] ^= 1
    parts.path(digest).write_bytes(content)
    with pytest.raises(PartDamaged) as seen:
        runner.encoder(world, base)
    assert seen.value.context["digest"] == digest and not parts.has(digest)


def test_weights_of_an_exported_state_make_models_whole() -> None:
    """As they begin runs: such a file has the state's field before each name."""
    federation, run = begun({f"model/{name}": w for name, w in drawn().items()})
    result = federation.run(run)
    made = dict(models_of(federation, RunId(run), cast("RunResult", result), METHODS))["model"]
    assert all(torch.equal(made.weights[name], w) for name, w in encoder(drawn()).items())
