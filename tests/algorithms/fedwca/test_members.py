"""FedWCA: sites that come late or are lost, replies that lie, and settings that do not fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.algorithms.compare import same
from tests.algorithms.fedwca.test_method import GIVEN, ORIGINAL, TARGETS, close
from tests.algorithms.lies import NIGHT, Change, at_night, opened, tiered
from tests.algorithms.lies import reported as lied
from tests.algorithms.source_free.played import ROSTER, WAITING, away, federation, played, sent, states
from tests.synthetic import experiment
from tideline.algorithms.fedwca import Config
from tideline.algorithms.fedwca.client import State
from tideline.algorithms.fedwca.server import WEIGHTS, moved, parted, reported, widened
from tideline.core.run import ClientId
from tideline.engine.model.fold_report import checked_report
from tideline.engine.model.orders import OrderStatus
from tideline.numerics.aggregation.averaging import weighted_sum

BERT = ClientId("bert")


@pytest.mark.parametrize("refresh_every", [5, *at_night(1)])
def test_a_site_that_misses_the_first_round_comes_later(refresh_every: int) -> None:
    """It is sent f_S and no other model, then joins the cluster of its nearest layer, and is in the next mean."""
    stage = federation()
    # Light rounds come after the first full one, so that both kinds meet a newcomer.
    missed = [("first", 1)] if refresh_every == 1 else [("first", 1), ("full", 1)]
    config = {"rounds": 4, "refresh_every": refresh_every}
    stage, run = played("fedwca", stage, away(stage, "emil", *missed), WAITING, **config)
    source, after = states(stage, run, State)[1], states(stage, run, State)[-1]
    phase = "full" if refresh_every == 1 else "light"
    order, reply = sent(stage, run, phase)["emil", 1]
    assert same(order.f, source.f)
    assert (order.soft == ()) if refresh_every == 1 else (order.init is None)
    assert reply is not None
    assert sorted(after.members) == TARGETS
    later = sent(stage, run, phase)["emil", 2][0]
    mates = [k for k in TARGETS if after.members[k] == after.members["emil"]]
    assert len(mates) >= 2
    close(later.f, weighted_sum((1 / len(mates), sent(stage, run, phase)[k, 1][1].f) for k in mates))


def test_a_given_group_waits_for_its_latecomer() -> None:
    """With given clusters a late site joins its own group."""
    stage = federation()
    stage, run = played("fedwca", stage, away(stage, "emil", ("first", 1)), WAITING, rounds=3, **GIVEN, **ORIGINAL)
    members = states(stage, run, State)[-1].members
    assert members["emil"] == members["dora"] != members["bert"]


@pytest.mark.parametrize(
    ("refresh_every", "weights"),
    [
        *((refresh_every, WEIGHTS[0]) for refresh_every in (1, 5)),
        *(pytest.param(refresh_every, weights, marks=NIGHT) for refresh_every in (1, 5) for weights in WEIGHTS[1:]),
    ],
)
def test_a_given_group_may_be_late_as_a_whole(refresh_every: int, weights: str) -> None:
    """It gets a cluster when the first of it comes, and is in nobody else's."""
    stage = federation()
    late = [("first", 1)] if refresh_every == 1 else [("first", 1), ("full", 1)]
    emil, dora = away(stage, "emil", *late), away(stage, "dora", *late)
    config = {"rounds": 5, "refresh_every": refresh_every, "weights": weights}
    stage, run = played("fedwca", stage, lambda orders: emil(dora(orders)), WAITING, **config, **GIVEN)
    before, last = (next(s for s in states(stage, run, State) if s.members), states(stage, run, State)[-1])
    assert (before.members, len(before.models)) == ({"bert": 0, "carl": 0}, 1)
    assert (last.members, len(last.models)) == ({"bert": 0, "carl": 0, "dora": 1, "emil": 1}, 2)
    assert last.soft.sum(1).tolist() == pytest.approx([1.0] * len(last.soft))
    assert {len(v) for v in last.v.values()} <= {2}


def test_a_cluster_more_is_given_no_weight() -> None:
    """What is known of the others stays, until its sites have measured; the mean of all is of it, too."""
    state = state_of({"a": 0, "b": 1}, {"a": 0, "b": 0})
    wider = widened(state, {"w": torch.full((2,), 9.0)}, Config())
    assert wider.soft.tolist() == [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    assert {k: v.tolist() for k, v in wider.v.items()} == {"a": [1.0, 0.0, 0.0], "b": [0.0, 1.0, 0.0]}
    assert [float(f["w"][0]) for f in wider.models] == [0.0, 1.0, 9.0]
    assert widened(state, {}, Config(weights="one-equal-adaptive")).soft.tolist() == [[1 / 3] * 3]


def test_one_who_is_silent_for_a_round_counts_as_what_it_was_sent() -> None:
    """So a cluster of which one site answered is not that site's model."""
    stage = federation()
    stage, run = played("fedwca", stage, away(stage, "carl", ("full", 1)), WAITING, rounds=3, **GIVEN)
    order, reply = sent(stage, run, "full")["bert", 1]
    after = sent(stage, run, "light")["bert", 1][0]
    close(after.f, weighted_sum([(0.5, reply.f), (0.5, order.f)]))
    assert not same(after.f, reply.f)


@pytest.mark.nightly(job="numbers")
def test_one_who_is_silent_too_long_leaves() -> None:
    """After so many rounds its cluster of one joins its nearest; when it answers again, it is a newcomer."""
    stage = federation()
    gone = [("full", r) for r in (1, 2, 3)]
    stage, run = played("fedwca", stage, away(stage, "carl", *gone), WAITING, rounds=6, lost_after=2, **ORIGINAL)
    seen = [sorted(s.members) for s in states(stage, run, State) if s.members]
    assert [k for k in TARGETS if k != "carl"] in seen  # it was out
    assert seen[-1] == TARGETS  # and is in again
    last = states(stage, run, State)[-1]
    assert min(sum(1 for c in last.members.values() if c == each) for each in last.members.values()) >= 2
    assert last.soft.shape == (len(last.models), len(last.models))
    assert {len(v) for v in last.v.values()} == {len(last.models)}


def state_of(members: dict[str, int], missed: dict[str, int]) -> State:
    """Clusters whose models are their own numbers."""
    C = 1 + max(members.values())
    layers = {k: torch.tensor([1.0, 0.1 * i, float(c)]).double() for i, (k, c) in enumerate(members.items())}
    models = tuple({"w": torch.full((2,), float(c))} for c in range(C))
    soft = torch.full((C, C), 1 / C, dtype=torch.float64)
    v = {k: torch.eye(C, dtype=torch.float64)[c] for k, c in members.items()}
    return State({}, {}, models, members, layers, missed, soft, v)


def test_a_cluster_of_one_joins_its_nearest_and_of_none_disappears() -> None:
    """Their weights go with the members, or to the others in proportion."""
    members = {"a": 0, "b": 0, "c": 1, "d": 1, "e": 2, "f": 2}
    lost = {"a": 0, "b": 0, "c": 0, "d": 3, "e": 3, "f": 3}
    left = parted(state_of(members, lost), Config(lost_after=3))
    assert left.members == {"a": 0, "b": 0, "c": 0}  # c's cluster of one joined a's and b's; e's and f's is gone
    assert [float(f["w"][0]) for f in left.models] == [0.0]
    assert left.soft.tolist() == [[1.0]]
    assert {k: v.tolist() for k, v in left.v.items()} == {"a": [1.0], "b": [1.0], "c": [1.0]}
    everybody = state_of(members, dict.fromkeys(members, 9))
    assert parted(everybody, Config(lost_after=3)) is everybody


@pytest.mark.parametrize("clustering", ["given", "agglomerative"])
def test_where_clusters_may_be_of_one_only_those_of_none_disappear(clustering: str) -> None:
    """The others close the gap, whichever is gone, and keep their models."""
    members = {"a": 0, "b": 0, "c": 1, "d": 1, "e": 2, "f": 2}
    lost = {"a": 0, "b": 3, "c": 3, "d": 3, "e": 0, "f": 0}
    left = parted(state_of(members, lost), Config(lost_after=3, clustering=clustering))
    assert left.members == {"a": 0, "e": 1, "f": 1}
    assert [float(f["w"][0]) for f in left.models] == [0.0, 2.0]
    assert left.soft.tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert {k: v.tolist() for k, v in left.v.items()} == {"a": [1.0, 0.0], "e": [0.0, 1.0], "f": [0.0, 1.0]}


@pytest.mark.parametrize(("sites", "clusters", "rows"), [(100, 50, 100), (200, 60, 60), (300, 101, 0)])
def test_many_sites_tell_no_more_than_is_kept(sites: int, clusters: int, rows: int) -> None:
    """v of each; of too many the means of clusters; or nothing. No run ends for what people are told."""
    members = {f"site-{i:03}": i % clusters for i in range(sites)}
    state = state_of(members, dict.fromkeys(members, 0))
    given = checked_report(reported(state, state, with_weights=True), "full", [ClientId(k) for k in members])
    assert [len(table.rows) for table in given.tables.values()] == [rows] * bool(rows)
    for table in given.tables.values():
        assert [sum(line) for line in table.values] == [1.0] * rows


def test_weights_of_what_is_gone_are_shared_out() -> None:
    """In proportion; equally, where no other cluster had any."""
    rows = torch.tensor([[0.5, 0.3, 0.2], [0.0, 0.0, 1.0]], dtype=torch.float64)
    found = moved(rows, {0: 0, 1: 1}, 2)
    torch.testing.assert_close(found, torch.tensor([[0.625, 0.375], [0.5, 0.5]], dtype=torch.float64))


def filled(name: str, value: Any) -> Change:
    """A field of other numbers."""
    return lambda given: {name: torch.as_tensor(value).expand_as(given[name]).clone()}


ADMITTED: dict[str, Change] = {
    "weights that sum to nothing": filled("alpha", 0.0),
    "shares that sum to nothing": filled("beta", 0.0),
    "weights beyond one": filled("alpha", 1e15),
    "whole numbers": lambda given: {"alpha": torch.tensor([3, 1]), "beta": torch.tensor([1, 0], dtype=torch.uint8)},
    "a model beyond all measure": lambda given: {"f": {n: torch.full_like(w, 1e15) for n, w in given["f"].items()}},
}


def in_full_round() -> tuple[Any, Any, Any]:
    """A run whose first full round is open, and bert's order."""
    return opened(federation(), experiment("fedwca", ROSTER, config={"rounds": 3, **GIVEN}), "full", BERT)


@pytest.mark.parametrize("change", tiered(ADMITTED, "weights that sum to nothing", "a model beyond all measure"))
def test_a_reply_that_is_taken_can_be_folded(change: Change) -> None:
    """Weights are brought to the simplex; the round closes."""
    stage, run, order = in_full_round()
    assert lied(stage, run, order, BERT, change).verdict == "accepted"
    stage.play(run, lambda orders: [each for each in orders if each.cursor == order.cursor])
    closed = next(r for r in stage.journal.rounds(run) if r.cursor == order.cursor)
    assert BERT in closed.folded and stage.row(run).status.value != "failed", stage.row(run).cause
    assert stage.journal.order(order.id).status is OrderStatus.ANSWERED
    v = next(s for s in states(stage, run, State) if s.v).v["bert"]
    assert float(v.sum()) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(
    "config",
    [
        {"clustering": "agglomerative", "clusters": 3},
        *at_night({"cluster_on": "last"}, {"cluster_on": "all"}),
    ],
)
def test_other_clusterings(config: dict[str, Any]) -> None:
    """Into so many; by another layer."""
    stage, run = played("fedwca", rounds=2, **config)
    found = set(states(stage, run, State)[-1].members.values())
    assert len(found) == config.get("clusters", len(found))
