"""Runs whose clip follows a quantile: it goes with the state from round to round, it is told and priced, and refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.test_budgets import AMPLE, WHOLE, Budgeted
from tests.engine.test_private_runs import NOISE, ROSTER, asked
from tests.laws.stage import Cuts, HoardingParts, Stage
from tests.synthetic import blobs, sites
from tideline.algorithms import METHODS
from tideline.algorithms.averaging import fedavg
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.asked.private import Meter, Privacy
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, StepFailed
from tideline.core.phase import Replies
from tideline.core.run import ClientId, Role
from tideline.core.settings import parse
from tideline.core.step import Site
from tideline.engine.compute.configured import Configured
from tideline.engine.compute.private.metering import charges, cost
from tideline.engine.epsilon.budget import charges_of
from tideline.experiments.results import Ended
from tideline.learning.around.clipping import CLIP, adapting, together

FOLLOWS = {**NOISE, "quantile": 0.5, "clip": 0.05}


def played(privacy: dict[str, Any] = FOLLOWS, cuts: Cuts | None = None) -> tuple[Stage, Any]:
    stage = Stage(METHODS, sites(), cuts, parts=HoardingParts())
    run = stage.start(asked(privacy=privacy))
    assert stage.play(run).status == "completed", stage.row(run).cause
    return stage, run


def clips(stage: Stage) -> dict[tuple[str, int], set[float]]:
    """What each site told of it at each place in the plan, however often it did."""
    found: dict[tuple[str, int], set[float]] = {}
    for client, cursor, words in stage.wire.words:
        if (clip := json.loads(words)[0].get("clip")) is not None:
            found.setdefault((str(client), cursor), set()).add(clip)
    return found


def test_the_clip_moves_and_goes_on_where_it_was() -> None:
    """Far too small at first, it grows; the second round begins where the mean of the first ended."""
    stage, run = played()
    told = clips(stage)
    places = sorted({cursor for _, cursor in told})
    first, second = ([clip for (_, at), (clip,) in told.items() if at == place] for place in places)
    assert len(first) == len(second) == 2 and all(clip != 0.05 for clip in (*first, *second))
    states = [decode(adapted().state, each.state[0][0], stage.parts, LAX) for each in stage.journal.rounds(run) if each.state]
    mean = math.sqrt(first[0] * first[1])
    assert any(state.clip == pytest.approx(mean) for state in states)
    assert states[-1].clip == pytest.approx(math.sqrt(second[0] * second[1]))
    assert max(abs(math.log(clip / mean)) for clip in second) <= 0.2 * 2 * 0.5 + 1e-9, "two steps of half the speed at most"


def adapted() -> Any:
    return adapting(fedavg, True)


def test_it_is_in_the_contract_and_in_what_the_method_keeps() -> None:
    stage, run = played()
    clauses = {each.field: each for each in stage.row(run).contract}
    assert "with noise" in clauses["metrics.clip"].sentence() and "metrics.loss" not in clauses
    plain = Stage(METHODS, sites())
    names = {each.field for each in plain.row(plain.start(asked())).contract}
    assert "metrics.clip" not in names


def test_it_costs_what_a_clip_that_stays_costs(tmp_path: Path) -> None:
    """By the coordinator's accountant, and at a site's budget: one vector, whose noise is the run's."""
    of = [parse(Privacy, each, "privacy") for each in (NOISE, FOLLOWS)]
    method = Configured(fedavg, fedavg.configure({"rounds": 3}))
    follows = Configured(adapted(), fedavg.configure({"rounds": 3}))
    assert charges(method.plan, method.config, of[0], Role.SOURCE) == charges(follows.plan, follows.config, of[1], Role.SOURCE)
    assert cost(method, of[0]) == cost(follows, of[1])
    stage = Budgeted(tmp_path, AMPLE)
    assert stage.play(stage.start(asked(privacy=FOLLOWS))).status == "completed"
    assert charges_of(stage.ledger.budgets().charged("rows")) == WHOLE


def test_it_is_the_same_after_any_restart() -> None:
    """Wherever a process ends: sites' keys are the stage's, so the same clips are told again."""
    stage, _ = played(cuts=Cuts(every=True))
    told = clips(stage)
    assert len(told) == 4, "two rounds of two sites"
    assert all(len(each) == 1 for each in told.values()), "each told alike, however often"


def test_what_the_run_ends_in_is_read_back() -> None:
    """The model of such a run is found by what its result says."""
    stage, run = played()
    ended = Ended(stage.result(run), METHODS, parts=stage.parts)
    state = decode(ended.method.state, stage.journal.rounds(run)[-1].state[0][0], stage.parts, LAX)
    assert CLIP.found(state) and ended.of_run(state) is not None


@pytest.mark.parametrize(
    ("privacy", "path", "said"),
    [
        ({**NOISE, "quantile": 0.0}, "privacy.quantile", "at least 0.01"),
        ({**NOISE, "quantile": 1.0}, "privacy.quantile", "at most 0.99"),
        ({**FOLLOWS, "quantile_noise": 1.0}, "privacy.quantile_noise", "at least 1.01"),
        ({**NOISE, "quantile_noise": 5.0}, "privacy.quantile", "no quantile"),
    ],
)
def test_quantiles_that_are_none(privacy: dict[str, Any], path: str, said: str) -> None:
    with pytest.raises(ConfigRefused, match=said) as refused:
        Stage(METHODS, sites()).start(asked(privacy=privacy))
    assert refused.value.context["path"] == path


def test_a_method_that_trains_nothing_has_no_clip_to_follow() -> None:
    world = {"inputs": [8], "classes": 3, "model": "linear", "normalise": "none"}
    with pytest.raises(ConfigRefused, match="no training whose clip could follow") as refused:
        Stage(METHODS, sites()).start(asked("gaussian_heads", FOLLOWS, world=world))
    assert refused.value.context["path"] == "privacy.quantile" and refused.value.todo


@pytest.mark.parametrize("clip", [float("nan"), float("inf"), 0.0, -1.0, 1e9])
def test_an_order_whose_clip_is_none_is_refused(clip: float) -> None:
    """Whoever sends it."""
    step = next(phase.step for phase in adapted().around(fedavg.plan(fedavg.configure({}))) if phase.step and phase.step.adapts)
    meter = Meter(parse(Privacy, FOLLOWS, "privacy"), b"k" * 32)
    data = blobs(9, 0, 0)
    site: Site[Any] = Site(fedavg.configure({}), World(), ClientId("a"), Role.SOURCE, data, 1, torch.Generator(), private=meter)
    with pytest.raises(StepFailed, match="clip of gradients"):
        step.run(CLIP.joined(fedavg_order(), clip), None, site)


def fedavg_order() -> Any:
    from tideline.algorithms.averaging.messages import Model

    return Model({})


def test_sites_may_tell_any_clip() -> None:
    """What is none is left out; of no sound one the clip stays."""

    def of(*told: float | None) -> Replies[Any]:
        load = {ClientId(str(i)): (lambda: None) for i in range(len(told))}
        return Replies(load, {ClientId(str(i)): {} if each is None else {"clip": each} for i, each in enumerate(told)})

    assert together(of(1.0, 4.0), 9.0) == pytest.approx(2.0)
    assert together(of(1.0, 4.0, float("nan"), -3.0, 0.0, None), 9.0) == pytest.approx(2.0)
    assert together(of(float("inf"), None), 9.0) == 9.0 and together(of(), None) is None
    assert together(of(1e300, 1e300), None) == pytest.approx(1e6)
    assert replace(parse(Privacy, FOLLOWS, "privacy"), quantile=None).quantile is None and ROSTER
