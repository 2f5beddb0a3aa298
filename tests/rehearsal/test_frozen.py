"""Rehearsals over a frozen encoder: its features are the rows, it travels once a run, and candidates differ behind it."""

from __future__ import annotations

from typing import Any

import pytest
from safetensors.torch import save

from tests.frozen.played import IMAGES, drawn
from tests.synthetic import NAMES, sites
from tideline.algorithms import METHODS
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.asked.world import world_in
from tideline.core.run import ClientId, RunId
from tideline.engine.simulation.federation import Federation
from tideline.experiments.simulation import chosen_models
from tideline.learning.rehearsal.messages import Compared
from tideline.nets import width

ROSTER = dict(zip(NAMES, ("source", "source", "source", "target"), strict=False))


def played(**rehearse: Any) -> tuple[Federation, dict[str, Any]]:
    on = Federation(METHODS, sites(NAMES[:4]))
    weights = on.bring([save(drawn(IMAGES))])
    given = {
        "world": {**IMAGES, "trains": "head"},
        "weights": weights,
        "roster": ROSTER,
        "config": {"rounds": 1},
        "seed": 7,
        "rehearse": rehearse,
    }
    return on, on.run(on.start({**given, "then": "run"}))


@pytest.mark.nightly(job="numbers")
def test_the_usual_candidates_of_an_encoder() -> None:
    """All of them play, sites on their own scale of its features among them; what was chosen is one whole network or a vote."""
    on, result = played(on=2, mode="heads")
    assert result["status"] == "completed", result["cause"]
    verdict = result["verdict"]
    names = ["no adaptation", "site", "gauss", "site + gauss", "self-training", "site + self-training"]
    assert verdict["candidates"] == names and not verdict["candidates_left_out"]
    worlds = [on.run_service.find(f"{result['run']}-t{i}").spec.world for i in range(2)]
    assert [world.scaling.kind.value for world in worlds] == ["none", "site"] and worlds[1].scaling.at.value == "features"
    model = dict(chosen_models(on, RunId(result["run"]), result, METHODS))["model"]  # type: ignore[arg-type]
    assert model.world.inputs == tuple(IMAGES["inputs"]) and model.world.trains == ("all",)


def test_what_is_compared_is_of_its_features() -> None:
    """The run that compares has the encoder, too: shifts are of features, as many as it gives."""
    on, result = played(candidates=[{"label": "again", "method": "fedavg"}])
    shifts = [clause for clause in result["contract"] if clause["field"] == "mean"]
    assert shifts and on.run_service.find(result["run"]).spec.initial_weights is not None
    memory = on.agents[ClientId("dora")].vault.head(RunId(result["run"])).memory  # type: ignore[union-attr]
    kept = decode(Compared, memory[0][0], on.agents[ClientId("dora")].vault.parts(RunId(result["run"])), LAX)
    assert len(kept.own.mean) == width(world_in(IMAGES))
