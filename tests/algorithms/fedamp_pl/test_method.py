"""FedAMP with pseudo-labels: starts, memory, lost sites and lies, in whole runs."""

from __future__ import annotations

from typing import Any

import torch

from tests.algorithms.compare import close, same
from tests.algorithms.lies import Change, open_round, reported
from tests.algorithms.source_free.played import ROSTER, WAITING, away, federation, mine, played, sent, states
from tests.synthetic import experiment
from tideline import nets
from tideline.algorithms.fedamp_pl import State, fedamp_pl, weights
from tideline.core.asked.world import World
from tideline.core.run import ClientId
from tideline.numerics.aggregation.averaging import weighted_sum

BERT = ClientId("bert")
TARGETS = ["bert", "carl", "dora", "emil"]


def xi_of(f: dict[str, Any]) -> Any:
    """Attention by its definition, over flattened models in float64."""
    w = torch.stack([torch.cat([f[k][n].double().flatten() for n in sorted(f[k])]) for k in sorted(f)])
    x = (w[:, None] - w[None]).square().sum(-1)
    N = len(w)
    sigma = x[*torch.triu_indices(N, N, 1)].quantile(0.5)
    off = ((-x / sigma).exp() / N).fill_diagonal_(0)
    return off + (1 - off.sum(1)).diag()


def test_starts_are_the_mixtures_of_the_last_round() -> None:
    """Round 1 begins from f_S; then u_i = sum_j xi_ij w_j by the models of the round before."""
    stage, run = played("fedamp_pl", rounds=3)
    adapt = sent(stage, run, "adapt")
    source = states(stage, run, State)[1]
    for k in TARGETS:
        assert same(adapt[k, 1][0].f, source.f)
    for r in (2, 3):
        w = {k: adapt[k, r - 1][1].f for k in TARGETS}
        xi = xi_of(w)
        for i, k in enumerate(TARGETS):
            close(adapt[k, r][0].f, weighted_sum((float(a), w[j]) for a, j in zip(xi[i], TARGETS, strict=True)))


def test_the_personal_model_is_its_own() -> None:
    """A site is scored with w_i, keeps it, and its owner takes it out as a whole network."""
    stage, run = played("fedamp_pl", rounds=2)
    adapt, state = sent(stage, run, "adapt"), states(stage, run, State)[-1]
    for k in TARGETS:
        kept = mine(stage, run, k)
        assert same(kept.f, adapt[k, 2][1].f) and same(kept.f, state.models[k])
        nets.loaded(World(inputs=(8,), classes=3, model="mlp"), fedamp_pl.keepsakes(None, kept)["model"])
    assert not same(state.models["bert"], state.models["emil"])


def test_one_site_alone_without_its_term_is_shot() -> None:
    """N = 1: u_i = w_i; with prox = 0 and labels once an epoch it is SHOT, bit for bit. With the term it is not."""
    alone = {"roster": {"anna": "source", "dora": "target"}}
    shot = mine(*played("shot", more=alone, rounds=3), "dora")
    plain = mine(*played("fedamp_pl", more=alone, rounds=3, prox=0.0), "dora")
    held = mine(*played("fedamp_pl", more=alone, rounds=3, prox=10.0), "dora")
    assert same(plain.f, shot.f)
    assert not same(held.f, shot.f)


def test_a_silent_site_keeps_its_model() -> None:
    """Who misses a round stays with its last w_j in everybody's attention, and is scored with it."""
    stage = federation()
    stage, run = played("fedamp_pl", stage, away(stage, "carl", ("adapt", 2)), WAITING, rounds=3)
    adapt = sent(stage, run, "adapt")
    w = {k: adapt[k, 1 if k == "carl" else 2][1].f for k in TARGETS}
    xi = xi_of(w)
    close(adapt["bert", 3][0].f, weighted_sum((float(a), w[j]) for a, j in zip(xi[0], TARGETS, strict=True)))


def test_a_latecomer_begins_from_the_source() -> None:
    """Until it has answered, a site is sent f_S and weighs in no mixture; it may be scored all the same."""
    stage = federation()
    stage, run = played("fedamp_pl", stage, away(stage, "emil", ("adapt", 1)), WAITING, rounds=3)
    adapt, seen = sent(stage, run, "adapt"), states(stage, run, State)
    assert same(adapt["emil", 2][0].f, seen[1].f)
    assert next(sorted(s.models) for s in seen if s.models) == TARGETS[:3]
    assert sorted(seen[-1].models) == TARGETS and seen[-1].xi.shape == (4, 4)
    assert all(c["accuracy"] is not None for c in stage.result(run)["clients"] if c["role"] == "target")


def test_buffers_and_counters_take_part_in_mixtures_not_in_distances() -> None:
    """Batch norm: running means are mixed with the same weights, counters take the maximum; neither moves the attention."""
    world = {"inputs": [1, 8, 8], "classes": 3, "model": "lenet_bn"}
    stage, run = played("fedamp_pl", more={"world": world})
    adapt, xi = sent(stage, run, "adapt"), states(stage, run, State)[-1].xi
    norm = "features.bottleneck.norm."
    before = states(stage, run, State)
    first = next(s for s in before if s.models)
    w = [first.models[k] for k in TARGETS]
    u = adapt["bert", 2][0].f
    close(
        {"mean": u[f"{norm}running_mean"]},
        {"mean": sum(float(a) * f[f"{norm}running_mean"] for a, f in zip(first.xi[0], w, strict=True))},
    )
    assert int(u[f"{norm}num_batches_tracked"]) == max(int(f[f"{norm}num_batches_tracked"]) for f in w)
    moved = [{**f, f"{norm}running_var": f[f"{norm}running_var"] + i} for i, f in enumerate(w)]
    assert torch.equal(weights(moved), weights(w))
    assert xi.shape == (4, 4)


def test_people_are_told_the_attention_and_sites_are_not() -> None:
    """A table for each round; orders hold a model and no word of who is in it."""
    stage, run = played("fedamp_pl", rounds=2)
    tables = [p["tables"]["attention, xi"] for p in stage.result(run)["phases"] if "attention, xi" in p["tables"]]
    assert len(tables) == 2 and tables[0]["rows"] == tables[0]["columns"] == TARGETS
    assert torch.equal(torch.tensor(tables[-1]["values"], dtype=torch.float64), states(stage, run, State)[-1].xi)
    assert not [k for k in ROSTER if k.encode() in b"|".join(data for _, _, data in stage.wire.down)]


def test_a_model_beyond_all_measure_is_folded() -> None:
    """It is far from all: they weigh nothing in each other, and the round closes."""
    stage, run, order = open_round(federation(), experiment("fedamp_pl", ROSTER), "adapt", BERT)
    change: Change = lambda given: {"f": {n: torch.full_like(w, 1e15) for n, w in given["f"].items()}}  # noqa: E731
    assert reported(stage, run, order, BERT, change).verdict == "accepted"
    stage.play(run, lambda orders: [each for each in orders if each.cursor == order.cursor])
    assert BERT in next(r for r in stage.journal.rounds(run) if r.cursor == order.cursor).folded
    xi = next(s.xi for s in states(stage, run, State) if s.models)
    assert bool(torch.isfinite(xi).all())
    torch.testing.assert_close(xi.sum(1), torch.ones(4, dtype=torch.float64))
