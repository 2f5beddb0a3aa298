"""Self-training in whole runs: FedAvg without it, labels that stay for their rounds, who is left out, and that it gains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch

from tests.algorithms.lies import NIGHT
from tests.algorithms.remembered import run_player
from tests.algorithms.source_free.played import WAITING, away, sent, states
from tests.laws.stage import HoardingParts, Stage
from tests.laws.values import raw
from tests.synthetic import FEATURES, Rows, blobs
from tideline import nets
from tideline.algorithms import METHODS
from tideline.algorithms.averaging.messages import State
from tideline.algorithms.self_training import SelfTraining, fits_initial_weights, self_training
from tideline.core.algorithm import contract
from tideline.core.asked.world import world_in
from tideline.core.errors import RosterRefused
from tideline.core.privacy import Exposure
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId, Member, Role
from tideline.core.step import Data
from tideline.engine.simulation.federation import SimSite
from tideline.numerics.labels.confidence import surest

DOMAINS = {"anna": 0, "bert": 1, "carl": 2, "dora": 4}
ROSTER = {"anna": "source", "bert": "source", "carl": "target"}
BOTH = {**ROSTER, "dora": "target"}


def site(name: str, n: int = 41, domain: int = -1, change: Any = lambda data: data) -> SimSite:
    seed = 3 * sorted(DOMAINS).index(name)
    domain = DOMAINS[name] if domain < 0 else domain
    rows = Rows(change(blobs(n, domain, seed)), blobs(240, domain, seed + 1))
    return SimSite(lambda world, role: rows)


def federation(**changed: SimSite) -> Stage:
    return Stage(METHODS, {name: site(name) for name in DOMAINS} | changed, parts=HoardingParts())


play = run_player(federation, roster=ROSTER)
played = partial(play, "self_training")


def scored(stage: Stage, run: Any, name: str = "carl") -> tuple[float, float]:
    """What a site's model of the sources alone scores, and the last."""
    found = next(c for c in stage.result(run)["clients"] if c["name"] == name)
    return float(found["source_only"]), float(found["accuracy"])


def marks(stage: Stage, run: Any) -> list[Mapping[str, tuple[str, ...]]]:
    return [p["marks"] for p in stage.result(run)["phases"] if p["name"] == "train"]


@pytest.mark.parametrize(
    ("model", "seeds"), [("linear", 2), pytest.param("linear", 4, marks=NIGHT), pytest.param("mlp", 4, marks=NIGHT)]
)
def test_it_gains_where_the_shift_is_moderate(model: str, seeds: int) -> None:
    """A target turned by a radian, of which the sources' model is right in three rows of four or more: it always gains."""
    gains = []
    for seed in range(seeds):
        stage = federation(anna=site("anna", 82), bert=site("bert", 82), carl=site("carl", 240, 5))
        more = {"preset": "demo", "world": {**FEATURES, "model": model}, "seed": seed}
        before, after = scored(*played(stage, more=more, times=5, rounds_between=5))
        gains.append(after - before)
    assert min(gains) > 0.02 and sum(gains) / len(gains) > 0.1


def test_without_a_labelling_it_is_fedavg() -> None:
    """times: 0, bit for bit; and that is what source_only is of."""
    plain, run = play("fedavg", rounds=3)
    ours, same = played(times=0, rounds=3, evaluate_every=1)
    assert plain.row(run).state_digest == ours.row(same).state_digest
    assert scored(*played(rounds=3, evaluate_every=1))[0] == scored(ours, same)[1]


def test_a_target_trains_on_the_rows_that_the_first_model_of_a_labelling_is_sure_of() -> None:
    """In each of its rounds, though the common model has moved on; then the next labels."""
    stage, run = played(rounds=2, times=2, rounds_between=2)
    asked = {r: (order, reply) for (name, r), (order, reply) in sent(stage, run, "train").items() if name == "carl"}
    assert sorted(asked) == [3, 4, 5, 6]
    x, world = blobs(41, 2, 6).x.all(), world_in(FEATURES)
    counts = []
    for r in (3, 5):
        with torch.no_grad():
            top, label = nets.loaded(world, asked[r][0].model).eval()(x).softmax(1).max(1)
        counts.append(int(surest(top, label).sum()))
    assert [asked[r][1].samples for r in sorted(asked)] == [counts[0], counts[0], counts[1], counts[1]]
    for before, after in pairwise(asked[r][0].model for r in sorted(asked)):
        assert any(raw(before[name]) != raw(after[name]) for name in before)


def test_its_labels_are_those_of_its_memory() -> None:
    """A target that missed the first round of a labelling labels by the model of the next."""
    stage = federation()
    for vault in stage.vaults.values():
        vault.hoard()
    more = {**WAITING, "roster": ROSTER}
    stage, run = played(stage, away(stage, "carl", ("train", 3)), more=more, rounds=2, times=1, rounds_between=3)
    found = sent(stage, run, "train")
    assert found["carl", 3][1] is None and found["carl", 4][1].samples == found["carl", 5][1].samples > 0
    assert marks(stage, run)[-1] == {}


def test_a_site_counts_by_the_rows_that_it_trained_on() -> None:
    stage, run = played(rounds=1, times=1, rounds_between=1)
    replies = [reply for (_, r), (_, reply) in sent(stage, run, "train").items() if r == 2]
    n = sum(reply.samples for reply in replies)
    made = states(stage, run, State)[-1].model
    for name, w in made.items():
        torch.testing.assert_close(w, sum(reply.samples / n * reply.model[name] for reply in replies))
    uniform, other = played(rounds=1, times=1, rounds_between=1, weighting="uniform")
    assert uniform.row(other).state_digest != stage.row(run).state_digest


@pytest.mark.parametrize("n", [1, 2, 3])
def test_targets_with_hardly_a_row(n: int) -> None:
    """One row is left out, and sends the model that it got; what of two or three is sure may be one row."""
    stage, run = played(federation(carl=site("carl", n)), rounds=1, times=1, rounds_between=2)
    order, reply = sent(stage, run, "train")["carl", 2]
    if reply.samples == 0:
        assert all(raw(order.model[name]) == raw(reply.model[name]) for name in order.model)
    assert (marks(stage, run)[-1] == {"left out": ["carl"]}) is (reply.samples == 0)
    assert reply.samples == 0 or n > 1


def test_a_class_that_nobody_predicts() -> None:
    """Sources that know two of the three classes; the target's rows of the third get labels of these."""

    def two(data: Data) -> Data:
        assert data.y is not None
        kept = (data.y < 2).nonzero().flatten()
        return replace(data, x=MemoryRows(data.x.all()[kept]), y=data.y[kept], domain=data.domain[kept])

    stage = federation(anna=site("anna", change=two), bert=site("bert", change=two))
    stage, run = played(stage, rounds=6, times=2, rounds_between=2, rate=0.03)
    assert 0.5 < scored(stage, run)[1] < 0.7


def test_several_targets_and_one_that_is_lost() -> None:
    """Each trains on its own labels; rounds go on without the one that never answers a training."""
    stage, run = played(more={"roster": BOTH})
    assert {name for name, r in sent(stage, run, "train") if r > 2} == set(BOTH)
    stage = federation()
    lost = away(stage, "dora", *(("train", r) for r in range(1, 9)))
    stage, run = played(stage, lost, more={"roster": BOTH, **WAITING})
    assert scored(stage, run)[1] > 0.8 and scored(stage, run, "dora")[1] > 0


def test_the_labels_of_a_target_do_not_matter() -> None:
    def other(data: Data) -> Data:
        assert data.y is not None
        return replace(data, y=data.y.flip(0))

    stage, run = played()
    changed, same = played(federation(carl=site("carl", change=other)))
    assert stage.row(run).state_digest == changed.row(same).state_digest


def test_a_target_sends_what_a_source_sends() -> None:
    found = {(clause.field, clause.exposure) for clause in contract(self_training, SelfTraining()) if clause.phase == "train"}
    sent_too = {("metrics.loss", Exposure.METRIC), ("metrics.samples", Exposure.METRIC)}
    assert found == {("model", Exposure.WEIGHTS), ("samples", Exposure.COUNT)} | sent_too


def test_with_a_model_that_somebody_brings_targets_are_enough() -> None:
    """In no rounds before; not in any."""
    members = (Member(ClientId("carl"), Role.TARGET, False),)
    fits_initial_weights(SelfTraining(rounds=0), world_in(FEATURES), members)
    with pytest.raises(RosterRefused):
        fits_initial_weights(SelfTraining(rounds=1), world_in(FEATURES), members)
