"""FedWCA: mixtures, clusters and labels are those of the paper's equations and algorithms, in whole runs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.algorithms import compare
from tests.algorithms.compare import same
from tests.algorithms.lies import at_night
from tests.algorithms.source_free.played import ROSTER, TRUE, federation, mine, played, sent, site, states
from tests.laws.stage import HoardingParts, Stage
from tideline import nets
from tideline.algorithms import METHODS
from tideline.algorithms.fedwca import Config, fedwca
from tideline.algorithms.fedwca.client import State, pour
from tideline.algorithms.fedwca.server import MEASURED, WEIGHTS
from tideline.algorithms.source_free.family import Model
from tideline.core.asked.world import World
from tideline.numerics.aggregation.averaging import weighted_sum
from tideline.numerics.clustering.mixing import across

GIVEN: dict[str, Any] = {"clustering": "given", "given": TRUE}
TARGETS = sorted(TRUE)
ORIGINAL = {"refresh_every": 1}
QUICK = ("equal", "local", "one-equal-adaptive")
close = partial(compare.close, atol=1e-5)


def simplex(w: Tensor) -> Tensor:
    """Weights of sum one, to the last digit."""
    return w.double() / w.double().sum()


def places(full: Any, r: int) -> list[int]:
    """The clusters, near 0 and far 1, in the order in which a full round sends their soft models: by their models' numbers."""
    ours = [full[k, r][0].f for k in ("bert", "dora")]
    return sorted((0, 1), key=lambda c: [float(w.double().sum()) for w in ours[c].values()])


def test_the_first_round_makes_clusters_of_means() -> None:
    """f_c is the mean of the f_k of its members, and every target has a cluster of at least two."""
    stage, run = played("fedwca", rounds=1)
    state = states(stage, run, State)[-1]
    assert sorted(state.members) == TARGETS
    replies = {k: reply for (k, _), (_, reply) in sent(stage, run, "first").items()}
    for c, f in enumerate(state.models):
        members = [k for k in TARGETS if state.members[k] == c]
        assert len(members) >= 2
        close(f, weighted_sum((1 / len(members), replies[k].f) for k in members))


@pytest.mark.parametrize("mixing", ["column", *at_night("row")])
def test_soft_models_and_starts_are_the_equations(mixing: str) -> None:
    """f~_c of a full round is equation 2 by the last weights; f_init of a light round is equation 8 by those of the full one."""
    stage, run = played("fedwca", rounds=6, refresh_every=2, mixing=mixing, **GIVEN)
    full, light = sent(stage, run, "full"), sent(stage, run, "light")
    # Rounds: first, full 1, light 1, full 2, light 2, full 3.
    order, _ = full["bert", 1]
    near, far = (places(full, 1).index(c) for c in (0, 1))
    close(order.soft[near], order.f)  # at first f~_c = f_c
    weights = {k: (simplex(full[k, 1][1].alpha)[[near, far]], simplex(full[k, 1][1].beta)) for k in TARGETS}
    f = {c: light[k, 1][0].f for c, k in enumerate(("bert", "dora"))}
    for k in TARGETS:
        alpha, beta = weights[k]
        own = 0 if TRUE[k] == "near" else 1
        v = beta[1] * alpha
        v[own] += beta[0]
        close(light[k, 1][0].init, weighted_sum(zip(v.tolist(), (f[0], f[1]), strict=True)))
    a = torch.stack([torch.stack([weights[k][0] for k in group]).mean(0) for group in (TARGETS[:2], TARGETS[2:])])
    b = torch.stack([torch.stack([weights[k][1] for k in group]).mean(0) for group in (TARGETS[:2], TARGETS[2:])])
    A = across(a, mixing)
    sent_models = {0: full["bert", 2][0].f, 1: full["dora", 2][0].f}
    for c in (0, 1):
        mixed = weighted_sum((float(A[other, c]), sent_models[other]) for other in (0, 1))
        expected = weighted_sum([(float(b[c, 0]), sent_models[c]), (float(b[c, 1]), mixed)])
        close(full["bert", 2][0].soft[places(full, 2).index(c)], expected)


def test_the_place_of_a_soft_model_tells_no_number() -> None:
    """The same sites under other names, so that their clusters change numbers: the same models in the same order."""
    names = {"bert": "zora", "carl": "zeno"}
    stage, run = played("fedwca", rounds=3, **GIVEN)
    roster = {names.get(k, k): role for k, role in ROSTER.items()}
    renamed = Stage(METHODS, {names.get(k, k): site(k) for k in ROSTER}, parts=HoardingParts())
    groups = {"clustering": "given", "given": {names.get(k, k): group for k, group in TRUE.items()}}
    other, again = played("fedwca", renamed, more={"roster": roster}, rounds=3, **groups)
    assert states(stage, run, State)[-1].members["bert"] == 0 and states(other, again, State)[-1].members["zora"] == 1
    for on, which, who in ((stage, run, "bert"), (other, again, "zora")):
        order = sent(on, which, "full")[who, 1][0]
        sums = [[float(w.double().sum()) for w in f.values()] for f in order.soft]
        assert sums == sorted(sums)


def test_the_site_pours_what_equation_8_says() -> None:
    """f_init made at a site of its own model and the soft ones equals sum_c v_c f_c (steps 2 to 4)."""
    world = World(inputs=(8,), classes=3, model="mlp")
    f = [
        {n: torch.randn_like(w) for n, w in nets.weights_of(nets.build(world)).items() if "classifier" not in n} for _ in range(3)
    ]
    g = {n: w for n, w in nets.weights_of(nets.build(world)).items() if "classifier" in n}
    S = torch.rand(3, 3).double()
    S = S / S.sum(1, keepdim=True)
    alpha, beta, own = torch.tensor([0.2, 0.5, 0.3]).double(), torch.tensor([0.4, 0.6]).double(), 2
    soft = [weighted_sum(zip(row.tolist(), f, strict=True)) for row in S]
    net = nets.build(world)
    pour(net, g, [(0.4, f[own]), *zip((0.6 * alpha).tolist(), soft, strict=True)])
    v = beta[1] * (alpha @ S)
    v[own] += beta[0]
    expected = weighted_sum(zip(v.tolist(), f, strict=True))
    close({**expected, **g}, dict(nets.weights_of(net)))


def test_one_cluster_is_shot_under_fedavg() -> None:
    """C = 1, one model's labels, no mixup: the same models, bit for bit, as SHOT under averaging of equal sites."""
    one = dict.fromkeys(TARGETS, "all")
    stage, run = played("fedwca", rounds=4, clustering="given", given=one, two_models=False, mu=0.0)
    other, again = played("fedavg_shot", rounds=4)
    assert same(states(stage, run, State)[-1].models[0], states(other, again, Model)[-1].f)
    assert same(mine(stage, run, "bert").f, mine(other, again, "bert").f)


def test_one_client_alone() -> None:
    """K = 1: one cluster of one, whose model is the site's."""
    stage, run = played("fedwca", more={"roster": {"anna": "source", "dora": "target"}}, rounds=3)
    state = states(stage, run, State)[-1]
    assert state.members == {"dora": 0}
    *_, (_, reply) = sent(stage, run, "light").values()
    assert same(state.models[0], reply.f)


def test_weights_lie_on_the_simplex() -> None:
    """alpha, beta and v of every full round are not negative and sum to one."""
    stage, run = played("fedwca", rounds=4, **GIVEN, **ORIGINAL)
    for _, reply in sent(stage, run, "full").values():
        for w in (reply.alpha, reply.beta):
            assert bool((w >= 0).all())
            assert float(w.sum()) == pytest.approx(1, abs=1e-6)
    for v in states(stage, run, State)[-1].v.values():
        assert float(v.sum()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("weights", [*QUICK, *at_night(*(w for w in WEIGHTS if w not in QUICK))])
def test_ablations_of_the_weights(weights: str) -> None:
    """Where sites measure nothing there are no full rounds, and f_init is mixed as the name says."""
    stage, run = played("fedwca", rounds=3, weights=weights, **GIVEN)
    light, full = sent(stage, run, "light"), sent(stage, run, "full")
    assert bool(full) == (weights in MEASURED)
    at = max(r for _, r in light)
    own, other = light["bert", at][0].f, light["dora", at][0].f
    expected = {"one-hot": None, "equal": (0.5, 0.5), "one-equal": (0.8, 0.2)}
    if weights in expected:
        shares, init = expected[weights], light["bert", at][0].init
        assert (init is None) if shares is None else close(init, weighted_sum(zip(shares, (own, other), strict=True))) is None
    if weights == "local":
        assert {tuple(reply.beta.tolist()) for _, reply in full.values()} == {(0.0, 1.0)}
    if weights == "one-equal-adaptive":
        (order, reply) = full["bert", 1]
        close(order.soft[0], weighted_sum([(0.5, full["bert", 1][0].f), (0.5, full["dora", 1][0].f)]))
        assert reply.alpha.tolist() == [1.0]


@pytest.mark.nightly(job="numbers")
def test_ablations_of_the_labels_end_otherwise() -> None:
    """Each switch changes the final models."""
    switches: list[dict[str, Any]] = [{}, {"labels": "predicted"}, {"fixed_labels": False}, {"two_models": False}, {"mu": 0.0}]
    ends = set()
    for switch in switches:
        # Domains and a rate at which the two models come to dispute rows.
        far = {name: site(name, further=4) for name in TARGETS}
        stage, run = played("fedwca", federation(**far), rounds=4, epochs=4, rate=0.1, lam=1.0, **GIVEN, **ORIGINAL, **switch)
        ends.add(stage.row(run).state_digest)
    assert len(ends) == len(switches)


def test_a_collapsed_model_gets_one_half() -> None:
    """A model that calls nearly everything one class has the largest density of all: then beta is (1/2, 1/2), and it is told."""
    alike = site("dora", change=lambda data: replace(data, x=data.x.at(torch.zeros(len(data), dtype=torch.int64))))
    stage, run = played("fedwca", federation(dora=alike), rounds=3, **GIVEN, **ORIGINAL)
    reported = {o.client: o.metrics["collapsed"] for o in stage.journal.orders(run) if "collapsed" in o.metrics}
    assert reported == {"bert": 0, "carl": 0, "dora": 1, "emil": 0}
    halves = {k: reply.beta.tolist() == [0.5, 0.5] for (k, _), (_, reply) in sent(stage, run, "full").items()}
    assert halves == {"bert": False, "carl": False, "dora": True, "emil": False}


def test_the_revised_protocol_sends_two_models() -> None:
    """A light round takes 2 models down, a full one C + 1."""
    stage, run = played("fedwca", rounds=3, refresh_every=2, **GIVEN)
    phases = {p["name"]: p["bytes_down"] for p in stage.result(run)["phases"] if p["name"] in ("full", "light")}
    order = sent(stage, run, "full")["bert", 1][0]
    assert len(order.soft) == 2
    # What a site holds already, its own model as it was scored with, is not sent again.
    assert phases["light"] < phases["full"]
    assert sent(stage, run, "light")["bert", 1][0].init is not None


def test_what_a_site_is_sent_tells_nothing_of_members() -> None:
    """No order names a site, a cluster or a count; it has as many soft models as there are clusters, whoever is in them."""
    stage, run = played("fedwca", rounds=4, **GIVEN, **ORIGINAL)
    down = b"|".join(data for _, _, data in stage.wire.down)
    words = [name.encode() for name in (*ROSTER, "near", "far", "members", "cluster")]
    assert not [word for word in words if word in down]
    # A person's own words, which the coordinator keeps: no order's settings have them.
    assert stage.row(run).spec.config["given"] == TRUE
    assert not [row for row in stage.journal.orders(run) if "given" in stage.agent_service.offer(row).brief["config"]]
    orders = [order for order, _ in sent(stage, run, "full").values()]
    assert {field for order in orders for field in vars(order)} == {"f", "soft", "g", "scores"}
    assert {float(order.scores.abs().sum()) for order in orders} == {0.0}
    by_round = {r: {k: sent(stage, run, "full")[k, r][0] for k in TARGETS} for r in (1, 2)}
    for reported in by_round.values():
        assert same(reported["bert"].soft[0], reported["emil"].soft[0])


def test_no_counter_tells_how_many_rows_a_site_has() -> None:
    """Batch norm counts batches, and a mean takes the largest counter: none leaves a site, so no mate reads its size."""
    world = {"inputs": [1, 8, 8], "classes": 3, "model": "lenet_bn"}
    stage, run = played("fedwca", federation(carl=site("carl", 200)), more={"world": world}, rounds=3, **GIVEN)
    models = [m for phase in ("first", "full", "light") for pair in sent(stage, run, phase).values() for m in pair]
    counters = {int(w) for m in models for name, w in m.f.items() if not w.is_floating_point()}
    assert models and counters == {0}


def test_the_plan_is_the_paper() -> None:
    """Round 0 makes the clusters; then every U-th round is full."""
    names = [p.name for p in fedwca.plan(Config(rounds=12, evaluate_every=12, refresh_every=5))]
    assert names == ["source", "source_only", "first", "full", *["light"] * 4, "full", *["light"] * 4, "full", "score"]
    assert [p.name for p in fedwca.plan(Config(rounds=0))] == ["source", "source_only", "score"]


def test_its_owner_takes_the_model_out() -> None:
    """What a site keeps is its cluster's model with g: a whole network for the owner."""
    stage, run = played("fedwca", **GIVEN)
    state = states(stage, run, State)[-1]
    kept = fedwca.keepsakes(None, mine(stage, run, "dora"))["model"]
    assert same(kept, {**state.models[1], **state.g})
    nets.loaded(World(inputs=(8,), classes=3, model="mlp"), kept)
    assert fedwca.keepsakes(None, mine(stage, run, "anna")) == {}


def test_sites_of_other_sizes_count_alike() -> None:
    """The mean over a cluster does not weigh by rows, which are not told."""
    stage, run = played("fedwca", federation(carl=site("carl", 11)), rounds=1, **GIVEN)
    replies = {k: reply for (k, _), (_, reply) in sent(stage, run, "first").items()}
    close(states(stage, run, State)[-1].models[0], weighted_sum([(0.5, replies["bert"].f), (0.5, replies["carl"].f)]))


def test_people_are_told_groups_and_weights() -> None:
    """The result has who is in which cluster, once, and v of each full round; sites are sent neither."""
    stage, run = played("fedwca", rounds=4, **GIVEN, **ORIGINAL)
    phases = stage.result(run)["phases"]
    reported = [(p["name"], p["groups"]) for p in phases if p["groups"]]
    assert reported == [("first", {"cluster 1": ["bert", "carl"], "cluster 2": ["dora", "emil"]})]
    (_, tables), *_ = [(p["name"], p["tables"]) for p in phases if p["tables"]]
    ((name, table),) = tables.items()
    assert (table["rows"], table["columns"]) == (TARGETS, ["cluster 1", "cluster 2"])
    assert name.endswith(", v")
    v = next(s.v for s in states(stage, run, State) if s.v)
    assert table["values"] == [v[k].tolist() for k in TARGETS]
