"""Hypernetworks: settings and rosters that cannot be, and replies that lie."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from safetensors.torch import save

from tests.algorithms.hypernetworks.played import ROSTER, WAITING, WORLD, federation, played
from tests.algorithms.lies import Change, filled, in_first_round, refused_alone, reported
from tests.algorithms.source_free.played import states
from tests.engine.toys import until
from tests.synthetic import FEATURES, NAMES, experiment, sites
from tideline import nets
from tideline.algorithms import METHODS
from tideline.algorithms.hypernetworks import Hyper, State, check, check_memory, generated, numbers
from tideline.algorithms.pfedhn import State as Queued
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, RosterRefused
from tideline.core.run import ClientId, Member, Role
from tideline.engine.simulation.federation import Federation

BERT = ClientId("bert")
LARGE = {"inputs": [3, 64, 64], "classes": 10, "model": "resnet18"}
BAD: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "an idle glob": ({"generate": ["clasifier.*"]}, FEATURES, "'clasifier.*', which no tensor of mlp fits", "config.generate"),
    "nothing": ({"generate": []}, FEATURES, "nothing would be generated", "config.generate"),
    "too large": (
        {"server_optimiser": "adam"},
        LARGE,
        "GB with its gradient and moments",
        "config.memory_limit",
    ),
    "too large for a limit": (
        {"memory_limit": 1e-4},
        FEATURES,
        "Generating 771 numbers of mlp takes",
        "config.memory_limit",
    ),
    "matched chunks": ({"heads": "chunked", "head_init": "matched"}, FEATURES, "which is of linear heads", "config.head_init"),
    "no such heads": ({"heads": "wide"}, FEATURES, "wide", "config.heads"),
}


@pytest.mark.parametrize("method", ["hfedf", "pfedhn"])
@pytest.mark.parametrize(("config", "world", "words", "path"), BAD.values(), ids=BAD)
def test_what_is_refused_at_the_start(method: str, config: Any, world: Any, words: str, path: str) -> None:
    """With the place and what to do; nothing was begun."""
    stage = federation()
    with pytest.raises(ConfigRefused) as refusal:
        stage.start(experiment(method, ROSTER, config=config, world=dict(world)))
    assert words in refusal.value.what and refusal.value.context["path"] == path and refusal.value.todo
    assert stage.journal.run_ids() == ()


@pytest.mark.parametrize("method", ["hfedf", "pfedhn"])
def test_somebody_has_to_teach(method: str) -> None:
    """A roster of targets alone is refused; and roles whose labels nobody may learn from."""
    for roles, words in ((["target"], "config.roles is target"), ([], "config.roles is empty")):
        with pytest.raises(ConfigRefused, match=words):
            federation().start(experiment(method, ROSTER, config={"roles": roles}))
    with pytest.raises(RosterRefused, match="at least one source or peer with labels"):
        federation().start(experiment(method, dict.fromkeys(ROSTER, "target")))


def test_a_large_network_in_part() -> None:
    """ResNet-18 is admitted with norms and the last layers generated, or in chunks. Linear heads have 51 numbers for each."""
    world = World(inputs=(3, 64, 64), classes=10, model="resnet18")
    roster = (Member(ClientId("anna"), Role.SOURCE, True),)
    part = Hyper(generate=("classifier.*", "*.bn?.*", "*.downsample.1.*"))
    check(part, world, roster)
    assert numbers(part, world) == 51 * sum(shape.numel() for shape in generated(part, world).values())
    assert not any("running" in name for name in generated(Hyper(generate=("*.bn?.*",)), world))
    check(Hyper(heads="chunked"), world, roster)


def test_the_limit_counts_what_is_held() -> None:
    """Chunked heads: every client's gradient; a chunk beyond the model is cut to it; embeddings, too."""
    world = World(inputs=(8,), classes=3, model="mlp")

    def needed(N: int, **config: Any) -> float:
        with pytest.raises(ConfigRefused) as refusal:
            check_memory(Hyper(memory_limit=1e-6, **config), world, N)
        return float(refusal.value.what.split(" GB with")[0].rpartition(" ")[2])

    large: dict[str, Any] = {"embedding_size": 10_000}
    assert needed(60, heads="chunked", **large) > 5 * needed(6, heads="chunked", **large) > 0
    assert needed(3, **large) > 5 * needed(3) > 0
    assert numbers(Hyper(heads="chunked", chunk=1 << 20), world) == numbers(Hyper(heads="chunked", chunk=771), world)


def test_chunked_heads_take_no_weights_that_are_brought() -> None:
    """They could not generate them."""
    federated = Federation(METHODS, sites(NAMES[:4]))
    digest = federated.bring([save(nets.weights_of(nets.build(WORLD)))])
    with pytest.raises(ConfigRefused, match="chunked heads cannot generate weights that are brought"):
        federated.start(experiment("hfedf", ROSTER, config={"heads": "chunked"}) | {"weights": digest})


REFUSED: dict[str, tuple[Change, str]] = {
    "a foreign tensor": (lambda given: {"delta": {**given["delta"], "more": torch.zeros(2)}}, "WrongDims"),
    "a tensor less": (lambda given: {"delta": dict(list(given["delta"].items())[1:])}, "WrongDims"),
    "another shape": (lambda given: {"delta": {n: w[:1] for n, w in given["delta"].items()}}, "WrongDims"),
    "not a number": (filled("delta", torch.nan), "NotFinite"),
    "infinity": (filled("delta", torch.inf), "NotFinite"),
    "beyond all measure": (filled("delta", 1e16), "OutOfRange"),
}


def in_round(method: str, **config: Any) -> tuple[Any, Any, Any]:
    """A run whose first training round is open to bert, and his order."""
    return in_first_round(federation(), experiment(method, ROSTER, config=config, **WAITING), BERT, "train")


@pytest.mark.parametrize(("change", "kind"), REFUSED.values(), ids=REFUSED)
def test_a_delta_that_is_none_is_refused(change: Change, kind: str) -> None:
    """With the reason; the round goes on without it."""
    refused_alone(*in_round("hfedf"), BERT, change, kind)


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
@pytest.mark.parametrize("heads", ["linear", "chunked"])
def test_the_largest_delta_leaves_a_hypernetwork_of_numbers(heads: str, optimiser: str) -> None:
    """What is admitted can be folded: every number of the state is finite, and the run ends as it should."""
    stage, run, order = in_round("hfedf", rounds=3, heads=heads, server_optimiser=optimiser)
    assert reported(stage, run, order, BERT, filled("delta", 1e15)).verdict == "accepted"
    assert stage.play(run).status.value == "completed", stage.row(run).cause
    for state in states(stage, run, State):
        assert all(bool(torch.isfinite(w).all()) for part in (state.theta, state.m, state.v) for w in part.values())


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_the_largest_delta_is_clipped(optimiser: str) -> None:
    """pFedHN shortens the gradient to its largest norm."""
    stage = federation()
    run = stage.start(experiment("pfedhn", ROSTER, config={"rounds": 3, "server_optimiser": optimiser}))
    until(stage, run, 0)
    ((who, order),) = [(k, o) for k in map(ClientId, ROSTER) for o in stage.agent_service.orders(k)]
    assert reported(stage, run, order, who, filled("delta", 1e15)).verdict == "accepted"
    assert stage.play(run).status.value == "completed", stage.row(run).cause
    first = states(stage, run, Queued)[1].hyper
    assert all(bool(torch.isfinite(w).all()) for w in first.theta.values())


def test_counts_below_zero_are_refused() -> None:
    """Of confidences: they would be drawn."""
    stage = federation()
    run = stage.start(experiment("hfedf", ROSTER, config={"confidence": True, "rounds": 0}, **WAITING))
    until(stage, run, 0)
    (order,) = stage.agent_service.orders(BERT)
    refused_alone(stage, run, order, BERT, lambda given: {"right": given["right"] - 120}, "OutOfRange")


def test_an_embedding_of_another_size_is_refused() -> None:
    """The order says how many numbers it has."""
    stage = federation()
    run = stage.start(experiment("hfedf", ROSTER, config={"embeddings": "autoencoder"}, **WAITING))
    until(stage, run, 0)
    (order,) = stage.agent_service.orders(BERT)
    refused_alone(stage, run, order, BERT, lambda given: {"nu": torch.zeros(2)}, "WrongDims")


def test_too_few_rows_for_an_autoencoder() -> None:
    """A mean of four rows would nearly be a row: the site declines, and the others go on."""
    from tests.algorithms.source_free.played import site
    from tests.laws.stage import HoardingParts, Stage

    few = Stage(METHODS, sites(NAMES[:4]) | {"bert": site("bert", n=4)}, parts=HoardingParts())
    stage, run = played("hfedf", few, more=WAITING, embeddings="autoencoder", rounds=1)
    (failed,) = [o for o in stage.journal.orders(run) if o.client == "bert" and o.failure]
    assert failed.failure is not None and "4 rows, whose mean would nearly be a row" in failed.failure.what
