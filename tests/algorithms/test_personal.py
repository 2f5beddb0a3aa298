"""Local: every site alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from tests.algorithms.compare import memory_of
from tests.algorithms.lies import Change, night_params, open_round, reported, tier_params
from tests.algorithms.remembered import remembered
from tests.algorithms.source_free.played import sent
from tests.laws import laws
from tests.laws.case import Case
from tests.laws.stage import HoardingParts, Stage, registered
from tests.laws.values import leaves
from tests.synthetic import experiment, rows, sites
from tideline import nets
from tideline.algorithms import METHODS
from tideline.algorithms.personal import Mine, Start, initial, local
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.algorithm import contract
from tideline.core.asked.world import World
from tideline.core.privacy import DEFAULT_POLICY, Audience, Exposure
from tideline.core.record import Nothing
from tideline.core.run import ClientId
from tideline.engine.model.orders import Purpose, seed_for
from tideline.engine.model.runs import JOIN
from tideline.learning.fit import cross_entropy, fit

ROSTER = {"anna": "source", "bert": "peer", "carl": "target"}
WORLD = World(inputs=(8,), classes=3, model="mlp")


@remembered
def played(roster: dict[str, str] = ROSTER, scores: str = "accuracy", **config: Any) -> tuple[Stage, str]:
    stage = Stage(METHODS, sites(), parts=HoardingParts())
    run = stage.start(experiment("local", roster, config=config, scores=scores))
    assert stage.play(run).status.value == "completed", stage.row(run).cause
    return stage, run


def test_no_reply_holds_a_tensor() -> None:
    """Nothing leaves but metrics: every reply's message is empty, and so is the contract beside them."""
    stage, run = played()
    plan = local.plan(local.configure({}, "tiny"))
    for order in stage.journal.orders(run):  # type: ignore[arg-type]
        if order.cursor != JOIN:
            step = plan[order.cursor].step
            assert step is not None
            assert step.gives is Nothing
            assert list(leaves(decode(step.gives, order.reply[0][0], stage.parts, LAX))) == []
    assert {len(data) for _, _, data in stage.wire.up} == {min(len(data) for _, _, data in stage.wire.up)}
    assert {c.exposure for c in contract(local, local.configure({}))} == {Exposure.METRIC}


def test_who_else_takes_part_makes_no_difference() -> None:
    """A site's model is the same alone and in company."""
    together, alone = played(), played({"bert": "peer"})
    for (name, ours), (other, theirs) in zip(
        leaves(memory_of(*together, "bert", Mine)), leaves(memory_of(*alone, "bert", Mine)), strict=True
    ):
        assert name == other
        assert torch.equal(ours, theirs)


def test_sites_start_from_common_weights() -> None:
    """The one seed that is sent gives every site the same first model, whatever its own generators say."""
    world = World(inputs=(8,), classes=3, model="mlp")
    torch.manual_seed(1)
    first = initial(Start(5), world)
    torch.manual_seed(2)
    again = initial(Start(5), world)
    assert all(torch.equal(first[k], again[k]) for k in first)
    assert any(not torch.equal(first[k], v) for k, v in initial(Start(6), world).items())
    assert first.keys() == nets.build(world).state_dict().keys()


def test_a_target_is_left_alone() -> None:
    """A site without training labels has no model of its own: it is not asked and has no accuracy."""
    stage, run = played()
    assert {o.client for o in stage.journal.orders(run) if o.cursor != JOIN} == {"anna", "bert"}  # type: ignore[arg-type]
    assert stage.result(run)["clients"][2]["accuracy"] is None  # type: ignore[arg-type]
    assert memory_of(stage, run, "carl", Mine).model == {}


def test_without_the_setting_nobody_is_asked_for_a_model() -> None:
    """A start has no models, and the plan ends with a scoring."""
    assert Start(7).models == ()
    stage, run = played()
    assert [p["name"] for p in stage.result(run)["phases"]] == ["join", "train", "score", "train", "score"]  # type: ignore[arg-type]
    assert [p.name for p in local.plan(local.configure({"unseen": True}, "tiny"))][-2:] == ["share", "unseen"]


def test_a_site_may_train_with_adam() -> None:
    """As the family does: one epoch by hand."""
    stage, run = played(rounds=1, optimiser="adam", rate=0.01)
    order, _ = sent(stage, run, "train")["bert", 1]
    net = nets.loaded(WORLD, initial(order, WORLD))
    rng = torch.Generator().manual_seed(seed_for(7, Purpose.STEP, 0, "bert"))
    by = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-4)
    fit(net, rows(1, WORLD).train, cross_entropy, by, epochs=1, batch=16, rng=rng)
    for name, w in nets.weights_of(net).items():
        torch.testing.assert_close(w, memory_of(stage, run, "bert", Mine).model[name])


def share(weights: Any) -> float:
    """The accuracy of a model on carl's held-out rows."""
    data = rows(2, WORLD).held_out
    with torch.no_grad():
        guess = nets.loaded(WORLD, weights).eval()(data.x.all()).argmax(1)
    return float((guess == data.y).double().mean())


def told_of(stage: Stage, run: Any, name: str) -> dict[str, Any]:
    """A site's line of the result."""
    return next(c for c in stage.result(run)["clients"] if c["name"] == name)


@pytest.mark.parametrize("confidence", [False, True])
def test_a_target_scores_every_model(confidence: bool) -> None:
    """Its accuracy is the mean over the labelled sites' models, as they keep them; labelled sites have their own as ever."""
    stage, run = played(unseen=True, confidence=confidence)
    each = [share(memory_of(stage, run, name, Mine).model) for name in ("anna", "bert")]
    assert told_of(stage, run, "carl")["accuracy"] == pytest.approx(sum(each) / 2)
    plain = played()
    for name in ("anna", "bert"):
        assert told_of(stage, run, name)["accuracy"] == told_of(*plain, name)["accuracy"]
    order, _ = sent(stage, run, "unseen")["carl", 1]
    for weights, name in zip(order.models, ("anna", "bert"), strict=True):
        assert all(torch.equal(w, memory_of(stage, run, name, Mine).model[k]) for k, w in weights.items())
    down = b"|".join(data for name, _, data in stage.wire.down if name == "carl")
    assert b"anna" not in down and b"bert" not in down
    if confidence:
        tables = stage.result(run)["phases"][-1]["tables"]  # type: ignore[arg-type]
        assert sum(sum(line) for table in tables.values() for line in table["values"]) == 2 * 60
        assert 0 <= told_of(stage, run, "carl")["metrics"]["ece"] <= 1


def test_without_a_target_nobody_sends_a_model() -> None:
    """There is nobody to score it."""
    stage, run = played({"anna": "source", "bert": "source"}, unseen=True)
    assert [p["name"] for p in stage.result(run)["phases"]] == ["join", "train", "score", "train", "score"]  # type: ignore[arg-type]


def test_models_go_to_targets_only_where_owners_let_them() -> None:
    """Weights go to the coordinator and to others, as the clause says; an owner who forbids either is not overruled."""
    clauses = [c for c in contract(local, local.configure({"unseen": True})) if c.exposure is not Exposure.METRIC]
    assert [(c.phase, c.field, c.exposure, c.audience) for c in clauses] == [
        ("share", "model", Exposure.WEIGHTS, {Audience.COORDINATOR, Audience.PEERS})
    ]
    kept = {name: replace(site, policy=DEFAULT_POLICY - {(Exposure.WEIGHTS, Audience.PEERS)}) for name, site in sites().items()}
    stage = Stage(METHODS, kept)
    row = stage.play(stage.start(experiment("local", ROSTER, config={"unseen": True})))
    assert row.status.value == "stalled" and "share/share sends model as WEIGHTS to coordinator and peers" in row.cause
    assert stage.play(stage.start(experiment("local", ROSTER))).status.value == "completed"


def sharing(**config: Any) -> tuple[Any, Any, Any]:
    """A run that asks for models, and bert's order."""
    stage = Stage(METHODS, sites(), parts=HoardingParts())
    return open_round(stage, experiment("local", ROSTER, config={"unseen": True, **config}), "share", "bert")


WRONG: dict[str, Change] = {
    "no model": lambda given: {"model": {}},
    "a layer less": lambda given: {"model": dict(list(given["model"].items())[1:])},
    "another layer": lambda given: {"model": {**given["model"], "spy": torch.zeros(1)}},
    "another shape": lambda given: {"model": {k: w[None] for k, w in given["model"].items()}},
    "another dtype": lambda given: {"model": {k: w.double() for k, w in given["model"].items()}},
}


@pytest.mark.parametrize("change", tier_params(WRONG, "no model", "another dtype"))
def test_a_model_of_another_network_is_left_out(change: Change) -> None:
    """The site is named, and the target scores the others."""
    stage, run, order = sharing()
    assert reported(stage, run, order, ClientId("bert"), change).verdict == "accepted"
    assert stage.play(run).status.value == "completed", stage.row(run).cause
    assert next(p["marks"] for p in stage.result(run)["phases"] if p["name"] == "share") == {"left out": ["bert"]}
    assert told_of(stage, run, "carl")["accuracy"] == pytest.approx(share(memory_of(stage, run, "anna", Mine).model))


@pytest.mark.parametrize("confidence", [False, True])
def test_a_model_beyond_all_measure_is_scored(confidence: bool) -> None:
    """It is as wrong as it is, and the run ends as it should."""
    stage, run, order = sharing(confidence=confidence)
    change: Change = lambda given: {"model": {k: torch.full_like(w, 1e15) for k, w in given["model"].items()}}  # noqa: E731
    assert reported(stage, run, order, ClientId("bert"), change).verdict == "accepted"
    assert stage.play(run).status.value == "completed", stage.row(run).cause
    assert told_of(stage, run, "carl")["accuracy"] is not None


def test_no_model_at_all_leaves_targets_without_an_accuracy() -> None:
    """Where no site has trained one."""
    stage, run, _ = sharing()
    for name in ("anna", "bert"):
        (each,) = stage.agent_service.orders(ClientId(name))
        reported(stage, run, each, ClientId(name), WRONG["no model"])
    assert stage.play(run).status.value == "completed", stage.row(run).cause
    assert told_of(stage, run, "carl")["accuracy"] is None


@dataclass(frozen=True)
class Unseen(Case):
    """The method with the setting in its preset."""

    @property
    def roster(self) -> dict[str, str]:
        return {"anna": "source", "bert": "source", "carl": "target"}


UNSEEN = Unseen(
    "local_unseen",
    registered(replace(local, name="local_unseen", presets={"tiny": {**local.presets["tiny"], "unseen": True, "rounds": 1}})),
)


@pytest.mark.parametrize(
    "law",
    [
        *(laws.functions_are_pure, laws.site_data_stay, laws.peers_see_what_is_declared),
        *night_params(
            *(laws.archive_keeps_all, laws.arrival_does_not_matter, laws.restarts_change_nothing),
            *(laws.a_quorum_goes_on, laws.every_clause_can_be_forbidden),
        ),
    ],
    ids=lambda law: law.__name__,
)
def test_the_laws_hold_with_unseen(law: Any) -> None:
    """Those of every method, for the phases that only the setting brings."""
    law(UNSEEN)
