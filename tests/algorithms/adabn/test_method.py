"""AdaBN in whole runs: what changes at a target and what does not, brought models, networks and sites that it has no use for."""

from __future__ import annotations

from typing import Any

import torch

from tests.algorithms.source_free.played import ROSTER, away, federation, mine, played, sent, site, states
from tests.algorithms.targeted import NORMED
from tests.laws.values import raw
from tests.synthetic import TRAIN, experiment
from tideline import nets
from tideline.algorithms.adabn import AdaBN, adabn
from tideline.algorithms.source_free.family import Model
from tideline.core.algorithm import contract
from tideline.core.asked.world import World
from tideline.core.privacy import Exposure
from tideline.core.run import Role
from tideline.learning.fit import remeasure

WORLD = World(inputs=(1, 8, 8), classes=3, model="lenet_bn")
IMAGES = {"world": dict(NORMED)}
TARGETS = {name: role for name, role in ROSTER.items() if role == "target"}
NORM = "features.bottleneck.norm."


def end(stage: Any, run: Any, name: str) -> dict[str, torch.Tensor]:
    """A target's own model, as its owner takes it out."""
    return dict(adabn.keepsakes(None, mine(stage, run, name))["model"])


def test_statistics_are_the_targets_and_weights_the_sources() -> None:
    """One pass over its own rows, from the source model; what is trained stays to the bit."""
    stage, run = played("adabn", more=IMAGES)
    h = states(stage, run, Model)[-1]
    source = {**h.f, **h.g}
    for name in TARGETS:
        own = end(stage, run, name)
        changed = {key for key in own if raw(own[key]) != raw(source[key])}
        assert changed == {NORM + "running_mean", NORM + "running_var"}
        net = nets.loaded(WORLD, source)
        x = site(name).open_site_data(WORLD, Role.TARGET).train.x.all()  # type: ignore[attr-defined]
        remeasure(net, x, TRAIN, torch.Generator())  # in one part, as 64 rows pass at once
        torch.testing.assert_close(own[NORM + "running_mean"], net.state_dict()[NORM + "running_mean"])
        torch.testing.assert_close(own[NORM + "running_var"], net.state_dict()[NORM + "running_var"])


def test_of_no_pass_it_is_the_source_model() -> None:
    """rounds: 0 tells the accuracy of source_model, and keeps its model."""
    stage, run = played("adabn", more=IMAGES, rounds=0)
    plain, other = played("source_model", more=IMAGES)
    scores = [{c["name"]: c["accuracy"] for c in s.result(r)["clients"]} for s, r in ((stage, run), (plain, other))]
    assert scores[0] == scores[1]
    h = states(stage, run, Model)[-1]
    assert {k: raw(w) for k, w in end(stage, run, "dora").items()} == {k: raw(w) for k, w in {**h.f, **h.g}.items()}


def test_targets_send_nothing() -> None:
    """Every clause beyond metrics is of the source's phase, and the source model is scored before and after."""
    assert {c.phase for c in contract(adabn, AdaBN()) if c.exposure is not Exposure.METRIC} == {"source"}
    stage, run = played("adabn", more=IMAGES)
    clients = {c["name"]: c for c in stage.result(run)["clients"]}
    assert all(clients[k]["source_only"] is not None and clients[k]["accuracy"] is not None for k in TARGETS)


def test_a_target_that_is_away_is_scored_with_the_source_model() -> None:
    """It has measured nothing."""
    stage = federation()
    waiting = {"waiting": {"min_replies": 1, "deadline": 60.0}}
    stage, run = played("adabn", stage, away(stage, "emil", ("measure", 1)), {**IMAGES, **waiting})
    h = states(stage, run, Model)[-1]
    assert raw(end(stage, run, "emil")[NORM + "running_mean"]) == raw(h.f[NORM + "running_mean"])
    assert sent(stage, run, "measure").keys() == {(k, 1) for k in TARGETS}


def test_a_target_with_a_single_row_says_so() -> None:
    """A row has no variance."""
    stage = federation(dora=site("dora", 1))
    run = stage.start(experiment("adabn", ROSTER, **IMAGES))
    row = stage.play(run)
    assert row.status.value == "stalled" and "dora" in row.cause and "single training row" in row.cause
