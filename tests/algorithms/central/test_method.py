"""Central training in whole runs: what it computes, what it is sent, how long rows stay, what people are told, and lies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.algorithms.lies import Change, open_round, reported, tier_params
from tests.algorithms.remembered import run_player
from tests.algorithms.source_free.played import sent, states
from tests.algorithms.test_averaging import ROSTER, SIZES
from tests.laws.stage import HoardingParts, Stage
from tests.laws.values import raw
from tests.synthetic import FEATURES, Rows, blobs, experiment
from tideline import nets
from tideline.algorithms import METHODS
from tideline.algorithms.averaging.messages import State as AveragingState
from tideline.algorithms.central import LOST, Held, State, central, pooled
from tideline.archive.reader import decode
from tideline.core.asked.world import World
from tideline.core.privacy import DEFAULT_POLICY, Audience, Exposure
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId
from tideline.core.settings import parse
from tideline.core.step import Data
from tideline.engine.compute.turns.reproducible import reproducible
from tideline.engine.coordinator.part_store import GRACE_SECONDS
from tideline.engine.model.orders import Purpose, seed_for
from tideline.engine.model.runs import JOIN
from tideline.engine.simulation.federation import SimSite
from tideline.learning.fit import cross_entropy, fit

ALLOWED = DEFAULT_POLICY | {(Exposure.SAMPLES, Audience.COORDINATOR)}
IMAGES: dict[str, Any] = {"inputs": [1, 8, 8], "classes": 3, "model": "lenet_bn"}
WAITING: dict[str, Any] = {"waiting": {"min_replies": 1, "deadline": 60.0}}
WORLD = parse(World, FEATURES)
BERT = ClientId("bert")


def site(name: str, n: int | None = None, change: Any = lambda data: data) -> SimSite:
    """A site with as many rows as it has in `SIZES`, or n, whose owner lets rows go."""
    i, count = list(SIZES).index(name), SIZES[name] if n is None else n

    def opened(world: World, role: Any) -> Rows:
        return Rows(change(blobs(count, i, 5, world.inputs)), blobs(9, i, 6, world.inputs))

    return SimSite(opened, ALLOWED)


def federation(**changed: SimSite) -> Stage:
    """Three sites. No part is forgotten."""
    return Stage(METHODS, {name: site(name) for name in ROSTER} | changed, parts=HoardingParts())


played = partial(run_player(federation, roster=ROSTER), "central")


def ours() -> Data:
    """The pooled rows of the two labelled sites."""
    found = [blobs(SIZES[name], i, 5) for i, name in enumerate(("anna", "bert"))]
    y = torch.cat([d.y for d in found if d.y is not None])
    return Data(MemoryRows(torch.cat([d.x.all() for d in found])), y, torch.zeros(42, dtype=torch.int64), ("all",))


def last(stage: Stage, run: Any) -> State:
    """The state in the end."""
    return states(stage, run, State)[-1]


def test_one_full_batch_epoch_is_the_gradient_on_all_rows() -> None:
    """One plain step on the mean loss of the pooled rows; which is what a round of federated averaging computes, too."""
    plain = {"rounds": 1, "epochs": 1, "batch": 100, "momentum": 0.0, "weight_decay": 0.0, "rate": 0.1}
    stage, run = played(**plain)
    net = nets.loaded(WORLD, states(stage, run, State)[0].model).double()
    rows = ours()
    cross_entropy(net, rows.x.all().double(), rows.y).backward()  # type: ignore[arg-type, no-untyped-call]
    for name, p in net.named_parameters():
        assert p.grad is not None
        torch.testing.assert_close(last(stage, run).model[name].double(), (p - 0.1 * p.grad).detach(), rtol=0, atol=1e-6)
    other = Stage(METHODS, {name: site(name) for name in ROSTER}, parts=HoardingParts())
    averaged = other.start(experiment("fedavg", ROSTER, config=plain))
    other.play(averaged)
    for name, w in decode(AveragingState, other.row(averaged).state_digest, other.parts).model.items():  # type: ignore[arg-type]
        torch.testing.assert_close(last(stage, run).model[name], w, rtol=0, atol=1e-5)


def test_rounds_are_epochs_on_all_rows() -> None:
    """R x E epochs by the family's own training, from the run's generators, bit for bit."""
    stage, run = played(rounds=3, epochs=2, batch=8, optimiser="adam", rate=0.01)
    net = nets.loaded(WORLD, states(stage, run, State)[0].model)
    plan = [p.name for p in central.plan(central.configure({"rounds": 3}))]
    for cursor in (i for i, name in enumerate(plan) if name == "learn"):
        with reproducible(seed_for(7, Purpose.FOLD, cursor), 1) as rng:
            by = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-4)
            fit(net, ours(), cross_entropy, by, epochs=2, batch=8, rng=rng)
    assert all(torch.equal(w, last(stage, run).model[name]) for name, w in nets.weights_of(net).items())


def test_what_is_sent_is_the_training_rows_of_labelled_sites() -> None:
    """All of them with their labels, once; no held-out row and nothing of the target."""
    stage, run = played(rounds=2)
    replies = {k: reply for (k, _), (_, reply) in sent(stage, run, "pool").items()}
    assert sorted(replies) == ["anna", "bert"]
    for i, (k, reply) in enumerate(sorted(replies.items())):
        data = blobs(SIZES[k], i, 5)
        assert torch.equal(reply.x, data.x.all().flatten(1)) and torch.equal(reply.y, data.y)
        assert raw(blobs(9, i, 6).x.all()[0]) not in stage.wire.all()
    assert raw(blobs(20, 2, 5).x.all()[0]) not in stage.wire.all()
    assert [p["name"] for p in stage.result(run)["phases"]] == ["join", "pool", "score", "score"]
    assert [c["samples"] for c in stage.result(run)["clients"]] == [12, 30, None]


def test_images_come_back_in_their_shape() -> None:
    """Rows travel flat and are trained on as the world's samples; with batch norm, whatever the batches."""
    stage, run = played(more={"world": IMAGES}, rounds=1, batch=41)
    assert last(stage, run).lost == 0 and not torch.equal(*models(stage, run))
    reply = sent(stage, run, "pool")["bert", 1][1]
    assert reply.x.shape == (30, 64)
    given = State({}, {"bert": Held(reply.x, reply.y)}, 0)
    assert torch.equal(pooled(given, parse(World, IMAGES)).x.all(), blobs(30, 1, 5, (1, 8, 8)).x.all())


def models(stage: Stage, run: Any) -> tuple[Tensor, Tensor]:
    """The classifier's weight in the beginning and in the end."""
    found = states(stage, run, State)
    return found[0].model["classifier.weight"], found[-1].model["classifier.weight"]


def test_many_rows_are_drawn_from() -> None:
    """Of more than `most_rows`, as many different ones with their labels, others in another run; the notes say how many."""
    drawn = []
    for seed in (7, 8):
        stage, run = played(more={"seed": seed}, most_rows=20)
        reply = sent(stage, run, "pool")["bert", 1][1]
        whole = blobs(30, 1, 5)
        places = [int((whole.x.all() == row).all(1).nonzero()) for row in reply.x]
        assert len(set(places)) == 20 and whole.y is not None and torch.equal(reply.y, whole.y[places])
        assert len(sent(stage, run, "pool")["anna", 1][1].y) == 12
        drawn.append(places)
    assert drawn[0] != drawn[1]
    (note,) = stage.result(run)["notes"]
    assert "data leave the sites" in note and "more than 20 sends as many" in note


def test_the_default_policy_does_not_let_it_work() -> None:
    """Without the owner's word the run stalls before anything leaves, with both clauses."""
    stage = federation(bert=replace(site("bert"), policy=DEFAULT_POLICY))
    row = stage.play(stage.start(experiment("central", ROSTER)))
    assert row.status.value == "stalled" and {cursor for _, cursor in stage.jobs} == {JOIN}
    assert "bert" in row.cause and "anna: " not in row.cause
    for field in ("x (n inputs)", "y (n)"):
        assert f"pool/pool sends {field} as SAMPLES to coordinator" in row.cause


def test_rows_are_gone_when_the_run_has_ended() -> None:
    """They lie in the state while it learns, in none from the last round on, and in no file an hour later."""
    stage = Stage(METHODS, {name: site(name, 3000) for name in ROSTER})
    run = stage.start(experiment("central", ROSTER, config={"rounds": 2, "batch": 500}))
    seen, row = [], raw(blobs(3000, 0, 5).x.all()[1])
    for action in stage.actions(run):
        action()
        seen.append(any(row in part for part in stored(stage)))
    assert any(seen)
    stage.clock.advance(GRACE_SECONDS + 1)
    stage.part_store.collect()
    assert stage.row(run).status.value == "completed"
    state = decode(State, stage.row(run).state_digest, stage.parts)  # type: ignore[arg-type]
    assert not state.rows and state.model
    assert not any(row in part for part in stored(stage))


def stored(stage: Stage) -> Iterator[bytes]:
    """Every part that the coordinator has."""
    for digest in stage.parts.digests():
        yield bytes(stage.parts.view(digest))


def test_rounds_between_scorings_are_computed_at_once() -> None:
    """A scoring every third round: the state is kept where sites are asked, and a restart in between ends alike."""
    stage, run = played(rounds=6, evaluate_every=3)
    assert [p["name"] for p in stage.result(run)["phases"]] == ["join", "pool", "score", "score"]
    again = federation()
    cut = again.start(experiment("central", ROSTER, config={"rounds": 6, "evaluate_every": 3}))
    for action in again.actions(cut):
        again.rebuild()
        action()
    assert again.row(cut).state_digest == stage.row(run).state_digest
    often, other = played(rounds=6)
    assert [p["name"] for p in often.result(other)["phases"]].count("score") == 6


def test_no_rounds_score_the_first_model() -> None:
    """Nothing leaves, then."""
    stage, run = played(rounds=0)
    assert [p["name"] for p in stage.result(run)["phases"]] == ["join", "score"]
    assert stage.wire.up and not sent(stage, run, "pool")


def test_rounds_that_are_no_longer_finite_are_not_taken() -> None:
    """The model stays as it was, the run ends, and people are told how often, beside the confidences if they asked for them."""
    for confidence in (False, True):
        stage, run = played(rounds=2, rate=1e30, confidence=confidence)
        assert last(stage, run).lost == 2
        assert torch.equal(*models(stage, run))
        tables = [p["tables"] for p in stage.result(run)["phases"] if p["name"] == "score"]
        assert [t[LOST]["values"] for t in tables] == [[[1.0]], [[2.0]]]
        assert len(tables[0]) == (3 if confidence else 1)


def test_a_run_that_learns_tells_of_no_lost_rounds() -> None:
    """Nothing is told where all went well."""
    stage, run = played(more={"scores": "accuracy"})
    assert not any(p["tables"] for p in stage.result(run)["phases"])


def in_pool(world: dict[str, Any] | None = None, **config: Any) -> tuple[Any, Any, Any]:
    """A run that gathers rows, and bert's order."""
    return open_round(federation(), experiment("central", ROSTER, config=config, world=dict(world or FEATURES)), "pool", BERT)


LEFT_OUT: dict[str, Change] = {
    "a class more": lambda given: {"y": given["y"] + 1},
    "broken labels": lambda given: {"y": given["y"] + 0.5},
    "the largest labels": lambda given: {"y": torch.full((30,), 10**15)},
    "no rows": lambda given: {"x": given["x"][:0], "y": given["y"][:0]},
    "more rows than were asked for": lambda given: {"x": given["x"].repeat(2, 1), "y": given["y"].repeat(2)},
}
TAKEN: dict[str, Change] = {
    "the largest rows": lambda given: {"x": torch.full_like(given["x"], 1e15)},
    "rows in half": lambda given: {"x": given["x"].half()},
    "rows in double": lambda given: {"x": given["x"].double()},
    "truth values": lambda given: {"x": given["x"] > 0, "y": given["y"] > 0},
    "labels as fractions": lambda given: {"y": given["y"].double()},
    "a single row": lambda given: {"x": given["x"][:1], "y": given["y"][:1]},
}


@pytest.mark.parametrize("change", LEFT_OUT.values(), ids=LEFT_OUT)
def test_rows_that_nobody_could_learn_from_are_left_out(change: Change) -> None:
    """The site is named, and the model is that of the others alone."""
    stage, run, order = in_pool(most_rows=30)
    assert reported(stage, run, order, BERT, change).verdict == "accepted"
    assert stage.play(run).status.value == "completed", stage.row(run).cause
    assert next(p["marks"] for p in stage.result(run)["phases"] if p["name"] == "pool") == {"left out": ["bert"]}
    assert digest_of_anna_alone() == stage.row(run).state_digest


@cache
def digest_of_anna_alone() -> str | None:
    """The final state of a run in which no other site has labels."""
    stage = federation()
    run = stage.start(experiment("central", {"anna": "source", "carl": "target"}, config={"most_rows": 30}))
    return stage.play(run).state_digest


@pytest.mark.parametrize("world", [FEATURES, IMAGES], ids=["mlp", "batch norm"])
@pytest.mark.parametrize("change", tier_params(TAKEN, "the largest rows", "a single row"))
def test_rows_that_are_taken_can_be_learnt_from(change: Change, world: dict[str, Any]) -> None:
    """Of whatever dtype and size: the run ends as it should, and its state is finite."""
    stage, run, order = in_pool(world)
    assert reported(stage, run, order, BERT, change).verdict == "accepted"
    assert stage.play(run).status.value == "completed", stage.row(run).cause
    assert all(bool(torch.isfinite(w).all()) for w in last(stage, run).model.values())


def test_no_rows_at_all_end_the_run_with_a_reason() -> None:
    """Where nobody's can be learnt from there is nothing to go on with."""
    stage = federation(anna=site("anna", 1), bert=site("bert", 0))
    row = stage.play(stage.start(experiment("central", ROSTER)))
    assert row.status.value == "failed"
    assert "1 labelled rows were gathered that can be learnt from; training needs 2" in row.cause
