"""KD3A in whole runs: votes, distillation, weights, averages, heads, counts, lost sites and lies."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.algorithms.compare import same
from tests.algorithms.lies import Change, filled, night_params, open_round, reported, tier_params
from tests.algorithms.source_free.played import away, mine, sent, states
from tests.algorithms.targeted import (
    NORMED,
    ROSTER,
    WAITING,
    accuracy,
    federation,
    mislabelled,
    played,
    site,
    tables,
)
from tests.synthetic import blobs, experiment
from tideline import nets
from tideline.algorithms import kd3a as method
from tideline.algorithms.kd3a import KD3A, Model, State, classifier, kd3a, smoothed
from tideline.algorithms.source_free.family import Mine
from tideline.core.algorithm import contract
from tideline.core.asked.world import World
from tideline.core.privacy import Exposure
from tideline.core.run import ClientId, Role
from tideline.core.step import Site
from tideline.learning.local_training import rate_at
from tideline.numerics.aggregation.averaging import weighted_sum
from tideline.numerics.labels import knowledge
from tideline.numerics.labels.knowledge import leave_one_out, shapley

DORA, ANNA = ClientId("dora"), ClientId("anna")
SOURCES = ["anna", "bert", "carl"]
WORLD = World(inputs=(8,), classes=3, model="mlp")
WEIGHTS = "weight of each site"


def averages(stage: Any, run: Any) -> list[State]:
    """The states after each distillation."""
    found = states(stage, run, State)
    return [s for before, s in pairwise(found) if before.taught and not s.taught]


def at(c: KD3A, seed: int = 0) -> Site:
    """The target as a step sees it."""
    data = replace(blobs(41, 1, 6), y=None)
    return Site(c, WORLD, DORA, Role.TARGET, data, 1, torch.Generator().manual_seed(seed))


def test_the_target_sends_the_weights_of_its_vote() -> None:
    """From the sources' tables on its rows: shares of sure rows and Shapley values of the quality, in each round."""
    stage, run = played("kd3a", rounds=2, gate=0.6, last_gate=0.8)
    x = blobs(41, 1, 6).x.all()
    for (_, r), (order, reply) in sent(stage, run, "distil").items():
        p = torch.stack([nets.loaded(WORLD, {**h.f, **h.g}).eval()(x).detach().softmax(1) for h in order.sources])
        gate = (0.6, 0.8)[r - 1]
        assert len(p) == 3 and order.shares.tolist() == [0.0] * 4
        top, label = p.max(2)
        focus = shapley(lambda T: knowledge.quality(top[list(T)], label[list(T)], 3, gate), 3)  # noqa: B023
        sure = float((top > gate).any(0).double().mean())
        torch.testing.assert_close(reply.a, knowledge.shares(focus, sure))


def test_the_next_model_is_the_average_and_so_is_what_batch_norm_measured() -> None:
    """w <- a_T w_T + sum_k a_k w_k; the first round takes its weights as they are, later ones a tenth of them."""
    stage, run = played("kd3a", more={"world": dict(NORMED)}, rounds=2)
    trained, distilled = sent(stage, run, "train"), sent(stage, run, "distil")
    before: dict[str, float] = {}
    for r, state in enumerate(averages(stage, run), 1):
        reply = distilled["dora", r][1]
        new = dict(zip(["dora", *SOURCES], reply.a.tolist(), strict=True))
        a = {k: 0.9 * before.get(k, new[k]) + 0.1 * new[k] for k in new}
        assert state.weights == pytest.approx(a)
        replies = {k: trained[k, r][1] for k in SOURCES} | {"dora": reply}
        for name, w in state.f.items():
            if name.endswith("num_batches_tracked"):
                continue
            torch.testing.assert_close(w, sum((a[k] * replies[k].f[name] for k in a), torch.zeros(())))
        torch.testing.assert_close(state.g["classifier.weight"], sum(a[k] * replies[k].g["classifier.weight"] for k in a))
        before = a
    assert any(name.endswith("running_var") for name in state.f)


def test_people_are_told_weights_and_batch_norm_distance() -> None:
    """Each round, over all sites; a network without batch norm has no such distance."""
    stage, run = played("kd3a", more={"world": dict(NORMED)}, rounds=2)
    weights, distances = tables(stage, run, WEIGHTS), tables(stage, run, "batch-norm distance")
    assert [sorted(each) for each in weights] == [sorted(ROSTER)] * 2
    assert all(sum(v for (v,) in each.values()) == pytest.approx(1) for each in weights)
    assert len(distances) == 2 and all(each["distance"][0] > 0 for each in distances)
    stage, run = played("kd3a", rounds=2)
    assert len(tables(stage, run, WEIGHTS)) == 2 and tables(stage, run, "batch-norm distance") == []


@pytest.mark.parametrize("focus", ["shapley", *night_params("paper")])
def test_a_source_whose_labels_are_wrong_weighs_least(focus: str) -> None:
    """Its votes lose against those of two others, as long as what it learns is its own labels."""
    stage = federation(carl=site("carl", change=mislabelled))
    stage, run = played("kd3a", stage, rounds=4, epochs=8, gate=0.8, smoothing=0.0, rate=0.03, focus=focus)
    for each in tables(stage, run, WEIGHTS)[:2]:
        assert each["carl"][0] < (0.2 if focus == "shapley" else 0.02) and min(each["anna"][0], each["bert"][0]) > 0.25
    assert accuracy(stage, run) > 0.9


def test_how_much_of_a_sure_liar_a_focus_leaves() -> None:
    """Two agree and a third, as sure, contradicts: Shapley values leave it what it would be worth alone, a sixth of all."""
    p = torch.eye(3)[torch.tensor([[0, 1, 2, 0], [0, 1, 2, 0], [1, 2, 0, 1]])]
    assert method.focus(p, 0.9, KD3A()).tolist() == pytest.approx([10 / 3, 10 / 3, 4 / 3])
    assert method.focus(p, 0.9, KD3A(focus="paper")).tolist() == pytest.approx([4.0, 4.0, 0.0])


@pytest.mark.parametrize(
    "config",
    [
        {"distillation": "paper"},
        *night_params({"focus": "paper"}, {"counted": True}, {"heads": "local"}),
    ],
    ids=str,
)
def test_other_forms_learn_too(config: dict[str, Any]) -> None:
    """The paper's distillation, its focus, its counts; classifiers of their own."""
    assert accuracy(*played("kd3a", rounds=8, gate=0.7, rate=0.03, **config)) > 0.9


def test_classifiers_may_stay() -> None:
    """heads: local. The common classifier is never changed, the target's is not sent, and each site is scored with its own."""
    stage, run = played("kd3a", rounds=2, heads="local")
    found = states(stage, run, State)
    assert all(same(s.g, found[0].g) for s in found)
    assert all(reply.g is None for _, reply in sent(stage, run, "distil").values())
    trained = sent(stage, run, "train")
    heads = {k: mine(stage, run, k).g for k in ROSTER}
    assert all(same(heads[k], trained[k, 2][1].g) for k in SOURCES)
    assert not any(same(heads["dora"], heads[k]) for k in SOURCES)
    assert same(mine(stage, run, "dora").f, found[-1].f)
    nets.loaded(WORLD, kd3a.keepsakes(None, mine(stage, run, "dora"))["model"])


def test_local_classifiers_go_on_where_they_were() -> None:
    """A source's second round begins from its own, not from the common one: of rate 0 nothing changes."""
    stage, run = played("kd3a", rounds=2, heads="local")
    assert not same(sent(stage, run, "train")["anna", 1][1].g, sent(stage, run, "train")["anna", 2][1].g)
    memory = Mine({}, {"classifier.weight": torch.ones(3, 64), "classifier.bias": torch.zeros(3)})
    w = nets.weights_of(nets.build(WORLD))
    c = KD3A(heads="local")
    assert same(method.own_head(w, memory, at(c)), memory.g)
    assert method.own_head(w, Mine({}, {}), at(c)) is w
    assert method.own_head(w, memory, at(KD3A())) is w


def test_counts_leave_only_where_they_are_used() -> None:
    """The contract has no count, unless weights go by them."""
    assert not [c for c in contract(kd3a, KD3A()) if c.exposure is Exposure.COUNT]
    assert {c.field for c in contract(kd3a, KD3A(counted=True)) if c.exposure is Exposure.COUNT} == {"samples"}


def test_weights_by_counts() -> None:
    """a_T = n_T / n, and a_k by n_k CF(k)."""
    stage = federation(anna=site("anna", 23), dora=site("dora", 37))
    stage, run = played("kd3a", stage, rounds=1, counted=True)
    (_, reply) = sent(stage, run, "distil")["dora", 1]
    n = {"anna": 23, "bert": 41, "carl": 41}
    parts = {k: float(a) * n[k] for k, a in zip(SOURCES, reply.a[1:], strict=True)}
    own = 37 / (37 + 105)
    expected = {"dora": own} | {k: (1 - own) * part / sum(parts.values()) for k, part in parts.items()}
    assert states(stage, run, State)[-1].weights == pytest.approx(expected)


def test_one_source_gets_what_the_target_leaves() -> None:
    """a_1 = 1 - a_T."""
    stage, run = played("kd3a", more={"roster": {"anna": "source", "dora": "target"}}, rounds=2)
    for _, reply in sent(stage, run, "distil").values():
        assert len(reply.a) == 2 and float(reply.a.sum()) == pytest.approx(1)
        assert 0 <= float(reply.a[0]) <= 0.5


def test_gate_and_rate_over_the_rounds() -> None:
    """The gate rises in a straight line, the rate falls as half a cosine."""
    c = KD3A(rounds=11, rate=0.1)
    assert [method.gate_of(c, r) for r in (1, 6, 11)] == pytest.approx([0.9, 0.925, 0.95])
    assert method.gate_of(KD3A(rounds=1), 1) == 0.9
    assert [rate_at(c, c.rate, r, c.rounds) for r in (1, 12)] == pytest.approx([0.1, 0.0])
    assert rate_at(KD3A(), 0.1, 2, 2) == pytest.approx(0.05)


def test_smoothing() -> None:
    """The first weights count whole; one that had none counts with its new one; who is away has no part."""
    new = {"t": 0.2, "a": 0.5, "b": 0.3}
    assert smoothed({}, new, 0.9) == pytest.approx(new)
    found = smoothed({"t": 0.4, "a": 0.4, "c": 0.2}, new, 0.9)
    before = {"t": 0.4 / 1.1, "a": 0.4 / 1.1, "b": 0.3 / 1.1}
    assert found == pytest.approx({k: 0.9 * before[k] + 0.1 * new[k] for k in new})
    assert smoothed({"t": 1.0}, new, 0.0) == pytest.approx(new)


def test_exact_up_to_six_sources() -> None:
    """Shapley values of six; of seven what each adds to the others; the paper's form of any number."""
    rng = torch.Generator().manual_seed(0)
    p = (4 * torch.randn(7, 20, 3, generator=rng)).softmax(2)

    def quality(S: int) -> Any:
        top, label = p[:S].max(2)
        return lambda T: knowledge.quality(top[list(T)], label[list(T)], 3, 0.6)

    assert torch.equal(method.focus(p[:6], 0.6, KD3A()), shapley(quality(6), 6))
    assert torch.equal(method.focus(p, 0.6, KD3A()), leave_one_out(quality(7), 7))
    assert torch.equal(method.focus(p[:3], 0.6, KD3A(focus="paper")), leave_one_out(quality(3), 3))


class Known(nn.Module):
    """A network whose outputs are its inputs."""

    def forward(self, x: Tensor) -> Tensor:
        """As they are."""
        return x


def test_rows_are_mixed_in_pairs() -> None:
    """By the batch's order and share, both from the step's generator; a row counts by its own certainty."""
    rng = torch.Generator().manual_seed(2)
    agreed = knowledge.vote((4 * torch.randn(3, 9, 3, generator=rng)).softmax(2), 0.8)
    x, rows = torch.randn(5, 3, generator=rng), torch.tensor([8, 0, 3, 5, 1])
    found = method.mixed(agreed, at(KD3A(), seed=7))(Known(), x, rows)
    same_rng = torch.Generator().manual_seed(7)
    order = torch.randperm(5, generator=same_rng)
    l_ = float(torch.rand(3, generator=same_rng).median())
    log_h = (l_ * x + (1 - l_) * x[order]).log_softmax(1)
    label = agreed.label[rows]
    each = -l_ * log_h[range(5), label] - (1 - l_) * log_h[range(5), label[order]]
    torch.testing.assert_close(found, (agreed.sure[rows] * each).mean())
    assert 0 < int(agreed.sure[rows].sum()) < 5


def test_distillation_as_it_is_printed() -> None:
    """n_V KL(pbar || h); 0.001 where nobody is sure."""
    rng = torch.Generator().manual_seed(2)
    agreed = knowledge.vote((3 * torch.randn(3, 9, 3, generator=rng)).softmax(2), 0.8)
    x, rows = torch.randn(9, 3, generator=rng), torch.arange(9)
    found = method.as_printed(agreed)(Known(), x, rows)
    weight = torch.where(agreed.sure, agreed.support.float(), torch.tensor(0.001))
    divergence = (agreed.mean * (agreed.mean.log() - x.log_softmax(1))).sum(1)
    torch.testing.assert_close(found, (weight * divergence).mean())
    assert 0 < int(agreed.sure.sum()) < 9


def test_a_source_that_is_away_has_no_part_in_a_round() -> None:
    """The others' models are voted by and averaged; when it is back, so is the weight that it had."""
    stage = federation()
    stage, run = played("kd3a", stage, away(stage, "anna", ("train", 2)), WAITING, rounds=3)
    distil = sent(stage, run, "distil")
    assert [len(distil["dora", r][0].sources) for r in (1, 2, 3)] == [3, 2, 3]
    assert [sorted(each) for each in tables(stage, run, WEIGHTS)] == [sorted(ROSTER), ["bert", "carl", "dora"], sorted(ROSTER)]
    one, two, three = averages(stage, run)
    assert two.weights["anna"] == one.weights["anna"] != three.weights["anna"]


@pytest.mark.parametrize("who", ["anna", "dora"])
def test_a_site_with_a_single_row_says_so(who: str) -> None:
    """Batch norm wants two."""
    stage = federation(**{who: site(who, 1)})
    run = stage.start(experiment("kd3a", ROSTER))
    row = stage.play(run)
    assert row.status.value == "stalled" and "single training row" in row.cause


ODD: dict[str, Change] = {
    "all zeros": lambda given: {"a": torch.zeros(4)},
    "large": lambda given: {"a": torch.full((4,), 1e15)},
    "whole numbers": lambda given: {"a": torch.tensor([1, 0, 0, 3])},
    "truth values": lambda given: {"a": torch.tensor([True, False, False, True])},
    "no classifier": lambda given: {"g": None},
}


@pytest.mark.parametrize("change", tier_params(ODD, "all zeros", "no classifier"))
def test_odd_weights_are_divided_by_their_sum(change: Change) -> None:
    """Of whatever dtype and size; the average stays one, and the run ends as it should."""
    stage, run, order = open_round(federation(), experiment("kd3a", ROSTER), "distil", DORA)
    assert reported(stage, run, order, DORA, change).verdict == "accepted"
    assert stage.play(run).status.value == "completed", stage.row(run).cause
    first = averages(stage, run)[0]
    assert sum(first.weights.values()) == pytest.approx(1)
    replies = [reply for (_, r), (_, reply) in sent(stage, run, "train").items() if r == 1]
    largest = max(float(reply.g["classifier.weight"].abs().max()) for reply in replies)
    assert 0 < float(first.g["classifier.weight"].abs().max()) <= 1.5 * largest


def test_a_model_that_gives_no_numbers_has_no_vote() -> None:
    """Its tables are taken for uniform ones: it has no focus, and the others' consensus stands."""
    stage, run, order = open_round(federation(), experiment("kd3a", ROSTER), "train", ANNA)
    reported(stage, run, order, ANNA, filled("f", 1e15))
    stage.play(run, lambda orders: [o for o in orders if o.phase in ("train", "distil") and o.round == 1])
    (_, reply) = sent(stage, run, "distil")["dora", 1]
    p = torch.stack([torch.full((4, 3), torch.nan), torch.eye(3)[[0, 1, 2, 0]]])
    assert method.focus(knowledge.finite(p), 0.5, KD3A()).tolist() == pytest.approx([0.0, 4.0])
    assert bool(torch.isfinite(reply.a).all()) and float(reply.a.sum()) == pytest.approx(1)


def test_the_average_of_classifiers_that_were_sent() -> None:
    """All of them; where one is missing, in the others' proportions."""
    models = {k: Model({}, {"w": torch.tensor([float(i)])}) for i, k in enumerate("abc", 1)}
    a = {"a": 0.2, "b": 0.3, "c": 0.5}
    assert float(classifier(a, models)["w"]) == pytest.approx(0.2 + 0.6 + 1.5)
    models["a"] = Model({}, {})
    assert float(classifier(a, models)["w"]) == pytest.approx((0.6 + 1.5) / 0.8)
    assert weighted_sum([]) == {}
