"""FedPCL with pseudo-labels: heads, prototypes, classes that are missing, lost sites and lies, in whole runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.algorithms.compare import memory_of, same
from tests.algorithms.lies import Change, night_params, open_round, reported, tier_params
from tests.algorithms.source_free.played import ROSTER, WAITING, away, federation, played, sent, site, states
from tests.laws.stage import Stage
from tests.synthetic import experiment
from tideline import nets
from tideline.algorithms.fedpcl_pl import WIDTH, Config, Memory, State, drawn, fedpcl_pl, predict, prepare
from tideline.core.asked.world import World
from tideline.core.privacy import DEFAULT_POLICY, Audience, Exposure
from tideline.core.run import ClientId, Role
from tideline.core.step import Site
from tideline.engine.simulation.federation import SimSite
from tideline.numerics.labels.prototypes import pseudo_labels

BERT = ClientId("bert")
TARGETS = ["bert", "carl", "dora", "emil"]
WORLD = World(inputs=(8,), classes=3, model="mlp")
ALLOWED = DEFAULT_POLICY | {(Exposure.STATISTIC, Audience.PEERS)}


def agreed(**changed: SimSite) -> Stage:
    """The sites, whose owners let prototypes go to the others."""
    sites = {name: site(name) for name in ROSTER} | changed
    return federation(**{name: replace(each, policy=ALLOWED) for name, each in sites.items()})


def known(name: str) -> Any:
    """A site's shelf as a target sees it."""
    return site(name).open_site_data(WORLD, Role.TARGET)


def projections(order: Any, head: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """z = p(f_S(x)), and the prototype labels of f_S, by their definitions."""
    net, p = nets.loaded(WORLD, {**order.f, **order.g}).eval(), drawn(0, nets.width(WORLD))
    p.load_state_dict(dict(head))
    with torch.no_grad():
        features = net.get_submodule("features")(x)
        return p(features), pseudo_labels(features, net(x).softmax(1)).labels


@pytest.mark.parametrize("normalise", [False, *night_params(True)])
def test_prototypes_are_means_of_projections(normalise: bool) -> None:
    """C_i^c by the head that the site keeps, for each pseudo-label of f_S; and how many there are."""
    stage, run = played("fedpcl_pl", agreed(), normalise=normalise)
    learn = sent(stage, run, "learn")
    for k in TARGETS:
        order, reply = learn[k, 2]
        z, labels = projections(order.common, memory_of(stage, run, k, Memory).head, known(k).view("train", Role.TARGET).x.all())
        z = functional.normalize(z) if normalise else z
        for c in range(3):
            assert int(reply.counts[c]) == int((labels == c).sum()) >= 5
            torch.testing.assert_close(reply.prototypes[c], z[labels == c].mean(0), atol=1e-5, rtol=1e-5)


def test_what_goes_down_is_what_came_up() -> None:
    """Cbar is the mean over the sites, and the list has every site's prototypes, the receiver's own too."""
    stage, run = played("fedpcl_pl", agreed(), rounds=2)
    before, after = sent(stage, run, "describe"), sent(stage, run, "learn")
    order = after["bert", 1][0]
    up = torch.stack([before[k, 1][1].prototypes for k in TARGETS])
    assert torch.equal(order.each, up) and bool(order.there.all()) and bool(order.common.present.all())
    torch.testing.assert_close(order.common.mean, up.mean(0))
    again = torch.stack([after[k, 1][1].prototypes for k in TARGETS])
    assert torch.equal(after["emil", 2][0].each, again) and not torch.equal(again, up)


def test_heads_begin_alike_and_stay_at_home() -> None:
    """From the seed of the order every site draws one head; after training each has its own, and f_S is as it came."""
    stage, run = played("fedpcl_pl", agreed(), rounds=2)
    ((_, taught),) = sent(stage, run, "source").values()
    orders = [order for order, _ in sent(stage, run, "describe").values()]
    assert len({order.seed for order in orders}) == 1
    first = dict(drawn(orders[0].seed, nets.width(WORLD)).state_dict())
    heads = {k: memory_of(stage, run, k, Memory) for k in TARGETS}
    assert not any(same(each.head, first) for each in heads.values())
    assert not same(heads["bert"].head, heads["emil"].head)
    assert all(same(each.f, taught.f) and same(each.g, taught.g) for each in heads.values())
    assert [o.cursor for o in stage.journal.orders(run) if o.client == "anna" and o.cursor >= 0] == [0]
    z, labels = projections(orders[0], first, known("bert").view("train", Role.TARGET).x.all())
    described = sent(stage, run, "describe")["bert", 1][1]
    torch.testing.assert_close(described.prototypes[0], z[labels == 0].mean(0), atol=1e-5, rtol=1e-5)


@pytest.mark.nightly(job="numbers")
def test_training_lowers_the_loss_and_draws_prototypes_together() -> None:
    """Over the rounds L falls."""
    stage, run = played("fedpcl_pl", agreed(), rounds=6, epochs=3, rate=0.05)
    losses = [o.metrics["loss"] for o in stage.journal.orders(run) if o.client == "dora" and "loss" in o.metrics]
    assert len(losses) == 6 and losses[-1] < losses[0]


def test_a_class_that_nobody_has_is_not_predicted() -> None:
    """Sites with four rows of a class: nobody sends it, nobody learns of it, and no row is called that."""
    stage, run = played("fedpcl_pl", agreed(**{k: site(k, 14) for k in TARGETS}), rounds=3)
    memory = memory_of(stage, run, "bert", Memory)
    assert memory.present.tolist() == [True, True, False] and not bool(memory.mean[2].any())
    order, held = sent(stage, run, "score")["bert", 3][0], known("bert").held_out
    here = Site(Config(), WORLD, BERT, Role.TARGET, held, 1, torch.Generator())
    assert set(predict(order, memory, here, held.x.all()).argmax(1).tolist()) == {0, 1}


def test_a_class_of_fewer_than_five_is_not_sent() -> None:
    """Four rows of a class: a row of zeros and the count 0, while others' prototypes of it are used."""
    stage, run = played("fedpcl_pl", agreed(dora=site("dora", 12)), rounds=1)
    order, reply = sent(stage, run, "learn")["dora", 1]
    few = [c for c in range(3) if int(reply.counts[c]) == 0]
    assert few and not bool(reply.prototypes[few].any())
    assert int(reply.counts.sum()) + 4 * len(few) >= 12 - 4
    assert bool(order.common.present.all())
    assert all(n == 0 or n >= 5 for n in reply.counts.tolist())


def test_no_prototype_at_all_leaves_the_source_model() -> None:
    """Sites with four rows send none: they are scored with the source model, and the run ends."""
    few = {k: site(k, 4) for k in TARGETS}
    stage, run = played("fedpcl_pl", agreed(**few))
    assert {c["accuracy"] - c["source_only"] for c in stage.result(run)["clients"] if c["role"] == "target"} == {0.0}
    assert sent(stage, run, "learn")["bert", 2][0].each.shape == (0, 3, WIDTH)


def test_no_rounds_leave_the_source_model() -> None:
    """With rounds: 0 nothing is described, and h_S decides."""
    stage, run = played("fedpcl_pl", agreed(), rounds=0)
    assert [p["name"] for p in stage.result(run)["phases"]] == ["join", "source", "source_only", "score"]
    assert {c["accuracy"] - c["source_only"] for c in stage.result(run)["clients"] if c["role"] == "target"} == {0.0}


def test_one_site_alone() -> None:
    """Its own prototypes are the mean and the list."""
    stage, run = played("fedpcl_pl", agreed(), more={"roster": {"anna": "source", "dora": "target"}})
    order, _ = sent(stage, run, "learn")["dora", 2]
    assert order.each.shape[0] == 1
    torch.testing.assert_close(order.common.mean, order.each[0])
    assert next(c for c in stage.result(run)["clients"] if c["name"] == "dora")["accuracy"] >= 0.9


def test_a_silent_site_stays_and_a_late_one_comes() -> None:
    """The last prototypes of one that misses a round are used; one that missed the first exchange draws the same first head."""
    stage = agreed()
    stage, run = played("fedpcl_pl", stage, away(stage, "carl", ("learn", 1)), WAITING, rounds=2)
    before, after = sent(stage, run, "describe"), sent(stage, run, "learn")
    assert torch.equal(after["bert", 2][0].each[1], before["carl", 1][1].prototypes)
    stage = agreed()
    stage, run = played("fedpcl_pl", stage, away(stage, "emil", ("describe", 1)), WAITING, rounds=2)
    orders = sent(stage, run, "learn")
    assert orders["emil", 1][0].each.shape[0] == 3 and orders["bert", 2][0].each.shape[0] == 4
    assert orders["emil", 1][0].common.seed == orders["bert", 1][0].common.seed


def test_the_default_policy_does_not_let_it_work() -> None:
    """Prototypes reach other sites: without an owner's word the run stalls before any step, with the clause."""
    stage = federation()
    run = stage.start(experiment("fedpcl_pl", ROSTER))
    row = stage.play(run)
    assert row.status.value == "stalled"
    assert "describe/describe sends prototypes (classes width) as STATISTIC to coordinator and peers" in row.cause
    assert not stage.jobs


def test_its_owner_takes_out_what_it_predicts_with() -> None:
    """Network, head and prototypes: by hand they predict what was scored."""
    stage, run = played("fedpcl_pl", agreed(), rounds=3)
    found = fedpcl_pl.keepsakes(None, memory_of(stage, run, "emil", Memory))
    assert sorted(found) == ["head", "model", "prototypes"]
    held = known("emil").held_out
    net = nets.loaded(WORLD, found["model"]).eval()
    head = drawn(0, nets.width(WORLD))
    head.load_state_dict(dict(found["head"]))
    with torch.no_grad():
        guess = (head(net.get_submodule("features")(held.x.all())) @ found["prototypes"]["mean"].mT).argmax(1)
    told_of = next(c for c in stage.result(run)["clients"] if c["name"] == "emil")["accuracy"]
    assert float((guess == held.y).double().mean()) == pytest.approx(told_of)
    assert fedpcl_pl.keepsakes(None, prepare(Config(), None)) == {}  # type: ignore[arg-type]


ADMITTED: dict[str, Change] = {
    "no row of any class": lambda g: {"counts": torch.zeros_like(g["counts"])},
    "one row of each, which is not used": lambda g: {"counts": torch.ones_like(g["counts"])},
    "broken counts": lambda g: {"counts": torch.tensor([5.5, 0.25, 1e15], dtype=torch.float64)},
    "truth values": lambda g: {"counts": g["counts"] > 0},
    "whole prototypes": lambda g: {"prototypes": g["prototypes"].long()},
    "wide prototypes": lambda g: {"prototypes": g["prototypes"].double()},
}


def in_first_exchange() -> tuple[Any, Any, Any]:
    """A run that asks for the first prototypes, and bert's order."""
    return open_round(agreed(), experiment("fedpcl_pl", ROSTER), "describe", BERT)


@pytest.mark.parametrize("change", tier_params(ADMITTED, "no row of any class", "broken counts"))
def test_prototypes_that_are_taken_can_be_learnt_from(change: Change) -> None:
    """Of whatever dtype; a class with fewer than 5 told rows is as if it were not there. The run ends as it should."""
    stage, run, order = in_first_exchange()
    assert reported(stage, run, order, BERT, change).verdict == "accepted"
    assert stage.play(run).status.value == "completed", stage.row(run).cause
    first = next(s for s in states(stage, run, State) if s.counts)
    lesson = sent(stage, run, "learn")["carl", 1][0]
    assert lesson.each.dtype == torch.float32
    used = (first.counts["bert"] >= 5).tolist()
    assert lesson.there[0].tolist() == used if any(used) else len(lesson.each) == 3
