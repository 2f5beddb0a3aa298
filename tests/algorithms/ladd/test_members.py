"""LADD: sites that come late or are lost, replies that lie, worlds and settings that do not fit, and weights that are brought."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from safetensors.torch import save

from tests.algorithms.compare import same
from tests.algorithms.ladd.played import BOTH, NORM, TARGETS, WORLD, open_federation, played
from tests.algorithms.lies import Change, at_night, opened, reported, tiered
from tests.algorithms.source_free.played import ROSTER, WAITING, away, federation, sent, site, states
from tests.laws.laws import EVERYTHING
from tests.synthetic import experiment
from tideline import nets
from tideline.algorithms import METHODS
from tideline.algorithms.ladd.client import State
from tideline.core.asked.world import World
from tideline.core.run import ClientId
from tideline.core.settings import parse
from tideline.engine.model.orders import OrderStatus
from tideline.engine.simulation.federation import Federation

BERT = ClientId("bert")
NOTE = "has no source: no image takes another style"


@pytest.mark.parametrize("method", ["ladd", *at_night("ladd_pl")])
def test_a_site_whose_style_is_unknown_has_the_model_of_all(method: str) -> None:
    """It belongs to no cluster, takes part in the mean over all, and is in no cluster's own layers."""
    stage = federation()
    stage, run = played(method, stage, away(stage, "emil", ("style", 1)), WAITING, rounds=2)
    last = states(stage, run, State)[-1]
    assert sorted(last.members) == TARGETS[:3]
    asked = {k: sent(stage, run, "adapt")[k, 2][0].f for k in TARGETS}
    replies = {k: sent(stage, run, "adapt")[k, 1][1].f for k in TARGETS}
    assert same(asked["emil"], states(stage, run, State)[-3].f)
    name = f"{NORM}weight"
    torch.testing.assert_close(asked["emil"][name], torch.stack([f[name] for f in replies.values()]).mean(0))
    assert last.members["dora"] not in (last.members["bert"], last.members["carl"])
    assert torch.equal(asked["dora"][name], replies["dora"][name])  # alone in its cluster
    assert all(c["accuracy"] is not None for c in stage.result(run)["clients"] if c["role"] == "target")


def test_of_a_cluster_of_which_one_site_answered_half_stays() -> None:
    """So the others are not sent that site's own layers; all others are the mean over those who answered."""
    stage = federation()
    stage, run = played("ladd_pl", stage, away(stage, "carl", ("adapt", 1)), WAITING, rounds=2)
    start, reply = sent(stage, run, "adapt")["bert", 1]
    after = sent(stage, run, "adapt")["carl", 2][0].f
    name = f"{NORM}weight"
    torch.testing.assert_close(after[name], (start.f[name] + reply.f[name]) / 2)
    assert not torch.equal(after[name], reply.f[name])


def test_a_cluster_of_which_nobody_answered_keeps_its_layers() -> None:
    """And takes the others from the mean over all."""
    stage = federation()
    both = [away(stage, name, ("adapt", 2)) for name in ("bert", "carl")]
    stage, run = played("ladd_pl", stage, lambda orders: both[1](both[0](orders)), WAITING, rounds=3)
    before, after = (sent(stage, run, "adapt")["bert", r][0].f for r in (2, 3))
    others = sent(stage, run, "adapt")["dora", 3][0].f
    assert all(torch.equal(after[name], (before if name.startswith(NORM) else others)[name]) for name in after)


@pytest.mark.parametrize("method", BOTH)
def test_one_target_alone(method: str) -> None:
    """One cluster, whose model is the site's."""
    stage, run = played(method, more={"roster": {"anna": "source", "dora": "target"}}, rounds=2)
    state = states(stage, run, State)[-1]
    assert state.members == {"dora": 0}
    assert same(state.models[0], sent(stage, run, "adapt")["dora", 2][1].f)


@pytest.mark.parametrize("rows", [0, 1])
def test_a_site_of_one_image_tells_no_style(rows: int) -> None:
    """It would be that image's; the site says so, and the run names it."""
    stage = federation(dora=site("dora", rows))
    row = stage.play(stage.start(experiment("ladd", ROSTER, world=WORLD)))
    assert row.status.value == "stalled"
    assert "dora" in row.cause and "a style is a mean over two or more" in row.cause


def filled(name: str, value: Any) -> Change:
    """A field of other numbers."""
    return lambda given: {name: torch.as_tensor(value).expand_as(given[name]).clone()}


ADMITTED: dict[str, tuple[str, Change]] = {
    "a style beyond all measure": ("style", filled("style", 1e15)),
    "no style at all": ("style", filled("style", 0.0)),
    "whole numbers": ("style", lambda given: {"style": torch.ones(1, 1, 1, dtype=torch.uint8)}),
    "truth values": ("style", lambda given: {"style": torch.ones(1, 1, 1, dtype=torch.bool)}),
    "in double": ("style", lambda given: {"style": given["style"].double()}),
    "a model beyond all measure": (
        "adapt",
        lambda given: {"f": {n: torch.full_like(w, 1e15) if w.is_floating_point() else w for n, w in given["f"].items()}},
    ),
    "rows beyond all measure": ("adapt", lambda given: {"samples": 10**15}),
}


def in_phase(method: str, phase: str, **config: Any) -> tuple[Any, Any, Any]:
    """A run in which a phase is open, and bert's order."""
    return opened(open_federation(), experiment(method, ROSTER, world=WORLD, config={"rounds": 2, **config}), phase, BERT)


@pytest.mark.parametrize(("phase", "change"), tiered(ADMITTED, "a style beyond all measure", "a model beyond all measure"))
def test_a_reply_that_is_taken_can_be_folded(phase: str, change: Change) -> None:
    """The round closes, and the run has not failed. A style that lies leads no source astray either."""
    stage, run, order = in_phase("ladd", phase, style_transfer=True)
    assert reported(stage, run, order, BERT, change).verdict == "accepted"
    row = stage.play(run, None if phase == "style" else lambda orders: [o for o in orders if o.cursor == order.cursor])
    closed = next(r for r in stage.journal.rounds(run) if r.cursor == order.cursor)
    assert BERT in closed.folded and row.status.value != "failed", row.cause
    assert phase == "adapt" or row.status.value == "completed", row.cause
    assert stage.journal.order(order.id).status is OrderStatus.ANSWERED


@pytest.mark.parametrize("method", ["ladd_pl", *at_night("ladd")])
@pytest.mark.parametrize("transfer", [True, *at_night(False)])
@pytest.mark.parametrize("roster", [ROSTER, dict.fromkeys(TARGETS, "target")], ids=["source", "no source"])
def test_weights_take_the_place_of_a_source(method: str, transfer: bool, roster: dict[str, str]) -> None:
    """Styles are told and clusters made; where a transfer was asked for and there is no source the run says so."""
    at = Federation(METHODS, {name: replace(site(name), policy=EVERYTHING) for name in roster})
    torch.manual_seed(3)
    digest = at.bring([save(nets.weights_of(nets.build(parse(World, WORLD))))])
    config = {"style_transfer": transfer, "rounds": 1}
    run = at.start({**experiment(method, roster, world=WORLD, config=config), "weights": digest})
    result = at.run(run)
    assert result["status"] == "completed", result["cause"]
    assert result["groups"]["last"] == {"cluster 1": ["bert", "carl"], "cluster 2": ["dora", "emil"]}
    unused = transfer and "anna" not in roster
    assert [NOTE in note for note in result["notes"]] == [True] * unused
