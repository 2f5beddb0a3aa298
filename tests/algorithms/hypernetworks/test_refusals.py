"""Hypernetworks: settings and rosters that cannot be, and replies that lie."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from safetensors.torch import save

from tests.algorithms.hypernetworks.played import ROSTER, WAITING, WORLD, federation, played
from tests.algorithms.lies import filled, night_params, open_round, reported
from tests.algorithms.source_free.played import states
from tests.engine.toys import until
from tests.synthetic import NAMES, experiment, sites
from tideline import nets
from tideline.algorithms import METHODS
from tideline.algorithms.hypernetworks import Hyper, State, check, check_memory, generated, numbers
from tideline.algorithms.pfedhn import State as Queued
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.core.run import ClientId, Member, Role
from tideline.engine.simulation.federation import Federation

BERT = ClientId("bert")


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


def in_round(method: str, **config: Any) -> tuple[Any, Any, Any]:
    """A run whose first training round is open to bert, and his order."""
    return open_round(federation(), experiment(method, ROSTER, config=config), "train", BERT)


@pytest.mark.parametrize(
    ("heads", "optimiser"),
    [
        ("linear", "adam"),
        ("chunked", "sgd"),
        *night_params(("linear", "sgd"), ("chunked", "adam")),
    ],
)
def test_the_largest_delta_leaves_a_hypernetwork_of_numbers(heads: str, optimiser: str) -> None:
    """What is admitted can be folded: every number of the state is finite, and the run ends as it should."""
    stage, run, order = in_round("hfedf", rounds=3, heads=heads, server_optimiser=optimiser)
    assert reported(stage, run, order, BERT, filled("delta", 1e15)).verdict == "accepted"
    assert stage.play(run).status.value == "completed", stage.row(run).cause
    for state in states(stage, run, State):
        assert all(bool(torch.isfinite(w).all()) for part in (state.theta, state.m, state.v) for w in part.values())


@pytest.mark.parametrize("optimiser", ["adam", *night_params("sgd")])
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


def test_too_few_rows_for_an_autoencoder() -> None:
    """A mean of four rows would nearly be a row: the site declines, and the others go on."""
    from tests.algorithms.source_free.played import site
    from tests.laws.stage import HoardingParts, Stage

    few = Stage(METHODS, sites(NAMES[:4]) | {"bert": site("bert", n=4)}, parts=HoardingParts())
    stage, run = played("hfedf", few, more=WAITING, embeddings="autoencoder", rounds=1)
    (failed,) = [o for o in stage.journal.orders(run) if o.client == "bert" and o.failure]
    assert failed.failure is not None and "4 rows, whose mean would nearly be a row" in failed.failure.what
