"""FedWCA in whole runs: mixtures, clusters and labels are the paper's; sites that come late or are lost, and replies that lie."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.algorithms import compare
from tests.algorithms.compare import same
from tests.algorithms.lies import NIGHT, Change, night_params, open_round, tier_params
from tests.algorithms.lies import reported as lied
from tests.algorithms.source_free.played import ROSTER, TRUE, WAITING, away, federation, mine, played, sent, site, states
from tests.laws.stage import HoardingParts, Stage
from tests.synthetic import experiment
from tideline import nets
from tideline.algorithms import METHODS
from tideline.algorithms.fedwca import Config, fedwca
from tideline.algorithms.fedwca.client import State, pour
from tideline.algorithms.fedwca.server import MEASURED, WEIGHTS, moved, parted, reported, widened
from tideline.algorithms.source_free.family import Model
from tideline.core.asked.world import World
from tideline.core.run import ClientId
from tideline.engine.model.fold_report import checked_report
from tideline.engine.model.orders import OrderStatus
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


@pytest.mark.parametrize("mixing", ["column", *night_params("row")])
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


@pytest.mark.parametrize("weights", [*QUICK, *night_params(*(w for w in WEIGHTS if w not in QUICK))])
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
    assert all(same(by_site["bert"].soft[0], by_site["emil"].soft[0]) for by_site in by_round.values())


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


BERT = ClientId("bert")


@pytest.mark.parametrize("refresh_every", [5, *night_params(1)])
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
    return open_round(federation(), experiment("fedwca", ROSTER, config={"rounds": 3, **GIVEN}), "full", BERT)


@pytest.mark.parametrize("change", tier_params(ADMITTED, "weights that sum to nothing", "a model beyond all measure"))
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
        *night_params({"cluster_on": "last"}, {"cluster_on": "all"}),
    ],
)
def test_other_clusterings(config: dict[str, Any]) -> None:
    """Into so many; by another layer."""
    stage, run = played("fedwca", rounds=2, **config)
    found = set(states(stage, run, State)[-1].members.values())
    assert len(found) == config.get("clusters", len(found))
