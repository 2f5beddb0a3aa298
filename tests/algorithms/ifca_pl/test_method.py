"""IFCA with pseudo-labels: first models, choices, means, lost sites and lies, in whole runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.algorithms.compare import same
from tests.algorithms.lies import Change, open_round, reported, tier_params
from tests.algorithms.source_free.played import ROSTER, WAITING, away, federation, mine, played, sent, site, states
from tests.synthetic import experiment
from tideline import nets
from tideline.algorithms.ifca_pl import State, ifca_pl, place
from tideline.algorithms.ifca_pl.choosing import Config, scattered, unfitness
from tideline.algorithms.source_free.family import Model
from tideline.core.asked.world import World
from tideline.core.run import ClientId, Role
from tideline.core.step import Site
from tideline.numerics.aggregation.averaging import weighted_sum
from tideline.numerics.labels.prototypes import pseudo_labels

BERT = ClientId("bert")
TARGETS = ["bert", "carl", "dora", "emil"]
APART: dict[str, Any] = {"noise": 0.5, "more": {"seed": 3}}  # with which the two domains take different models, and one is left
WORLD = World(inputs=(8,), classes=3, model="mlp")


def objective(h: dict[str, Any], x: torch.Tensor) -> float:
    """F by its definition: L_IM over all rows, and the cross-entropy with the model's own prototype labels."""
    net = nets.loaded(WORLD, h).eval()
    with torch.no_grad():
        p = net(x).double().softmax(1)
        labels = pseudo_labels(net.get_submodule("features")(x), net(x).softmax(1)).labels
    o = p.mean(0)
    entropy = -(p * p.log()).nan_to_num(0).sum(1).mean()
    cross = -p[torch.arange(len(p)), labels].log().mean()
    return float((o * o.log()).sum() + entropy + cross)


def rows_of(name: str) -> torch.Tensor:
    """A site's training rows."""
    return site(name).open_site_data(WORLD, Role.TARGET).train.x.all()  # type: ignore[attr-defined,no-any-return]


def test_the_first_models_lie_about_the_source() -> None:
    """theta_j = f_S + noise of 0.01 deviations of each tensor, another for each j; the same in a run of the same seed."""
    stage, run = played("ifca_pl", rounds=1)
    state = states(stage, run, State)[1]
    assert len(state.models) == 3 and state.chosen == {}
    for name, w in state.f.items():
        moved = torch.stack([f[name] - w for f in state.models])
        assert 0.005 * float(w.std()) < float(moved.std()) < 0.015 * float(w.std())
        assert not torch.equal(moved[0], moved[1])
    again = states(*played.anew("ifca_pl", rounds=1), State)[1]
    assert all(same(a, b) for a, b in zip(state.models, again.models, strict=True))
    other = states(*played("ifca_pl", rounds=1, more={"seed": 8}), State)[1]
    assert not same(state.models[0], other.models[0])


def test_noise_goes_to_what_is_trained_and_varies() -> None:
    """Buffers and counters stay, and so does a tensor of equal numbers, whose deviation is 0."""
    f = nets.weights_of(nets.build(World(inputs=(1, 8, 8), classes=3, model="lenet_bn")))
    f = {n: w for n, w in f.items() if not n.startswith("classifier")}
    found = scattered(f, 0.1, torch.Generator().manual_seed(0))
    assert found.keys() == f.keys()
    stays = {n for n, w in f.items() if not w.is_floating_point() or float(w.std(correction=0)) == 0}
    assert {n for n in f if torch.equal(found[n], f[n])} == stays
    assert any(n.endswith("running_var") for n in stays)


def test_each_site_takes_the_model_with_the_least_objective() -> None:
    """j_i = argmin_j F_i(theta_j), by its definition, in every round."""
    stage, run = played("ifca_pl", rounds=3, **APART)
    chosen = set()
    for (k, _), (order, reply) in sent(stage, run, "adapt").items():
        F = [objective({**f, **order.g}, rows_of(k)) for f in (order.f, *order.others)]
        assert int(reply.choice.argmax()) == F.index(min(F))
        assert sorted(reply.choice.tolist()) == [0.0, 0.0, 1.0]
        chosen.add(int(reply.choice.argmax()))
    assert chosen == {0, 1}


def test_a_model_is_the_mean_over_those_who_chose_it() -> None:
    """Each counts alike, whatever its rows; a model that nobody chose stays as it is."""
    stage, run = played("ifca_pl", federation(carl=site("carl", 11)), rounds=2, **APART)
    adapt = sent(stage, run, "adapt")
    order, after = adapt["bert", 1][0], adapt["bert", 2][0]
    replies = {k: adapt[k, 1][1] for k in TARGETS}
    for j, (f, g) in enumerate(zip((order.f, *order.others), (after.f, *after.others), strict=True)):
        members = [k for k in TARGETS if int(replies[k].choice.argmax()) == j]
        assert same(g, weighted_sum((1 / len(members), replies[k].f) for k in members) if members else f)


def test_equal_models_leave_one_in_use() -> None:
    """Without noise ties go to the first: all use theta_1, which is FedAvg with SHOT's loss, bit for bit; the others stay f_S."""
    stage, run = played("ifca_pl", rounds=3, noise=0.0)
    state = states(stage, run, State)[-1]
    other, again = played("fedavg_shot", rounds=3)
    assert set(state.chosen.values()) == {0}
    assert same(state.models[0], states(other, again, Model)[-1].f)
    assert same(state.models[1], state.f) and same(state.models[2], state.f)


def test_a_site_keeps_the_model_that_it_chose() -> None:
    """As it is after the mean; its owner takes it out as a whole network."""
    stage, run = played("ifca_pl", **APART)
    state = states(stage, run, State)[-1]
    for k in TARGETS:
        assert same(mine(stage, run, k).f, state.models[state.chosen[k]])
    nets.loaded(WORLD, ifca_pl.keepsakes(None, mine(stage, run, "bert"))["model"])


def test_one_site_alone() -> None:
    """Of one site the model that it chose is its own, and the others are never changed."""
    stage, run = played("ifca_pl", more={"roster": {"anna": "source", "dora": "target"}}, rounds=1)
    state = states(stage, run, State)[-1]
    (_, reply) = sent(stage, run, "adapt")["dora", 1]
    first = states(stage, run, State)[1]
    assert [same(f, reply.f) for f in state.models] == [j == state.chosen["dora"] for j in range(3)]
    assert [same(f, g) for f, g in zip(state.models, first.models, strict=True)] == [j != state.chosen["dora"] for j in range(3)]


def test_who_is_silent_keeps_its_choice_and_who_is_late_has_none_yet() -> None:
    """A latecomer is scored with the source model until it has chosen; one that was lost, with what it chose last."""
    stage = federation()
    stage, run = played("ifca_pl", stage, away(stage, "emil", ("adapt", 1)), WAITING, rounds=2)
    scores, source = sent(stage, run, "score"), states(stage, run, State)[1]
    assert same(scores["emil", 1][0].f, source.f) and not same(scores["bert", 1][0].f, source.f)
    stage = federation()
    stage, run = played("ifca_pl", stage, away(stage, "emil", ("adapt", 2)), WAITING, rounds=2)
    before, after = [s for s in states(stage, run, State) if s.chosen][0::2][:2]
    assert before.chosen["emil"] == after.chosen["emil"]
    assert same(sent(stage, run, "score")["emil", 2][0].f, after.models[after.chosen["emil"]])


def test_people_are_told_who_chose_which_and_sites_are_not() -> None:
    """Groups of the result are the choices, where they changed; no order names a site."""
    stage, run = played("ifca_pl", rounds=2, **APART)
    state = states(stage, run, State)[-1]
    groups = [p["groups"] for p in stage.result(run)["phases"] if p["groups"]]
    expected = {f"model {j + 1}": [k for k in TARGETS if state.chosen[k] == j] for j in range(3)}
    assert groups[-1] == {name: members for name, members in expected.items() if members}
    assert not [k for k in ROSTER if k.encode() in b"|".join(data for _, _, data in stage.wire.down)]


def test_a_model_that_gives_no_numbers_is_not_chosen() -> None:
    """Its F is infinite, where another site spoilt it."""
    data = replace(rows := site("bert").open_site_data(WORLD, Role.TARGET).train, y=None)  # type: ignore[attr-defined]
    at = Site(Config(), WORLD, BERT, Role.TARGET, data, 1, torch.Generator())
    net = nets.build(WORLD)
    assert unfitness(net, at) < torch.inf
    net.get_submodule("features")[1].weight.data.fill_(3e38)  # type: ignore[index]
    assert unfitness(net, at) == torch.inf and len(rows) == 41


ADMITTED: dict[str, tuple[Change, int]] = {
    "no model": (lambda given: {"choice": torch.zeros(3)}, 0),
    "all of them": (lambda given: {"choice": torch.full((3,), 1e15)}, 0),
    "whole numbers": (lambda given: {"choice": torch.tensor([0, 0, 7])}, 2),
    "a truth value": (lambda given: {"choice": torch.tensor([False, True, False])}, 1),
    "bytes": (lambda given: {"choice": torch.tensor([0, 255, 0], dtype=torch.uint8)}, 1),
}


def in_first_round() -> tuple[Any, Any, Any]:
    """A run whose first round is open, and bert's order."""
    return open_round(federation(), experiment("ifca_pl", ROSTER), "adapt", BERT)


@pytest.mark.parametrize(("change", "j"), tier_params(ADMITTED, "no model", "bytes"))
def test_a_choice_that_is_taken_is_one_of_k(change: Change, j: int) -> None:
    """Of whatever dtype and size: the first of the largest. The run ends as it should."""
    stage, run, order = in_first_round()
    assert reported(stage, run, order, BERT, change).verdict == "accepted"
    assert stage.play(run).status.value == "completed", stage.row(run).cause
    assert next(s for s in states(stage, run, State) if s.chosen).chosen["bert"] == j
    assert place(torch.tensor([0.0, 2.0, 2.0])) == 1
