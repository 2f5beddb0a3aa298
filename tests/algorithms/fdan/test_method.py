"""f-DAN in whole runs: moments, what features are drawn to, changes, statistics that stay, few rows, lost sites and lies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional

from tests.algorithms.compare import memory_of
from tests.algorithms.lies import night_params, open_round, reported
from tests.algorithms.source_free.played import away, sent, states
from tests.algorithms.targeted import DOMAINS, NORMED, ROSTER, WAITING, accuracy, federation, played, site, tables
from tests.synthetic import blobs, experiment
from tideline import nets
from tideline.algorithms.fdan import FDAN, centre, client, fdan
from tideline.algorithms.fdan.client import Lesson, Mine, Model, State
from tideline.core.algorithm import contract
from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.core.privacy import TO_BOTH, Exposure
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId, Role
from tideline.core.step import Data, Site
from tideline.engine.simulation.federation import SimSite
from tideline.learning.fit import remeasure
from tideline.numerics.alignment.feature_maps import moment, psi, ramp, typical, waves

ANNA, DORA = ClientId("anna"), ClientId("dora")
SOURCES = ["anna", "bert", "carl"]
WORLD = World(inputs=(8,), classes=3, model="mlp")
IMAGES = {"world": dict(NORMED)}
DISTANCES = "distance from the target"


def rows_of(name: str, inputs: tuple[int, ...] = (8,)) -> torch.Tensor:
    """A site's training rows."""
    return blobs(41, DOMAINS[name], 2 * sorted(DOMAINS).index(name), inputs).x.all()


def as_it_is(data: Data) -> Data:
    """Rows of their domain."""
    return data


def farther(data: Data) -> Data:
    """Rows that lie elsewhere."""
    return replace(data, x=MemoryRows(data.x.all() + 2.0))


def at(c: FDAN, r: int = 1, n: int = 41, role: Role = Role.TARGET) -> Site:
    """A site in a round."""
    data = blobs(n, 1, 6)
    data = data if role is Role.SOURCE else replace(data, y=None)
    return Site(c, WORLD, DORA, role, data, r, torch.Generator().manual_seed(0))


def test_a_moment_is_the_mean_of_psi_by_what_all_share() -> None:
    """s2 is the target's median squared distance after the first averages; frequencies come from one seed."""
    stage, run = played("fdan", rounds=2)
    (_, told_width) = sent(stage, run, "width")["dora", 1]
    for (k, r), (order, reply) in sent(stage, run, "share").items():
        net = nets.loaded(WORLD, {**order.model, **order.buffers})
        f = nets.features(net, rows_of(k))
        by = waves(320, f.shape[1], order.s2, torch.Generator().manual_seed(order.seed))
        torch.testing.assert_close(reply.m, moment(by, f))
        assert reply.samples == 41 and order.s2 == told_width.s2
        if (k, r) == ("dora", 1):
            assert told_width.s2 == pytest.approx(typical(f))
    assert len({order.seed for order, _ in sent(stage, run, "share").values()}) == 1


def test_each_side_gets_the_others_moment() -> None:
    """Sources m_T; the target the mean of m_i, with which its distance is the mean of the distances."""
    stage, run = played("fdan", rounds=2)
    shared, lessons = sent(stage, run, "share"), sent(stage, run, "train")
    for r in (1, 2):
        m = {k: shared[k, r][1].m for k in ROSTER}
        assert all(torch.equal(lessons[k, r][0].partner, m["dora"]) for k in SOURCES)
        order = lessons["dora", r][0]
        mine = torch.randn(320, generator=torch.Generator().manual_seed(r))
        expected = sum(float((mine - m[k]).square().sum()) for k in SOURCES) / 3
        assert float((mine - order.partner).square().sum()) + order.spread == pytest.approx(expected, rel=1e-5)
        told_of = tables(stage, run, DISTANCES)[r - 1]
        assert {k: v for k, (v,) in told_of.items()} == pytest.approx(
            {k: float((m[k] - m["dora"]).square().sum()) for k in SOURCES}, rel=1e-5
        )


def test_what_features_are_drawn_to() -> None:
    """lambda (2 / (1 + exp(-10 p)) - 1) |mean psi(f) - m|^2 + CE; in the first round, and without a partner, CE alone."""
    w = nets.weights_of(nets.build(WORLD))
    m = torch.randn(20, generator=torch.Generator().manual_seed(1))
    c = FDAN(rounds=4, features=20, lam=3.0)
    order = Lesson(w, {}, 5, 2.0, m, 0.25)
    assert client.drawn_to(order, 64, at(c)) is None
    assert client.drawn_to(replace(order, partner=None), 64, at(c, 3)) is None
    assert client.drawn_to(order, 64, at(replace(c, lam=0.0), 3)) is None
    penalty = client.drawn_to(order, 64, at(c, 3))
    assert penalty is not None
    data = blobs(33, 1, 6)
    net = nets.loaded(WORLD, w)
    f = net.get_submodule("features")(data.x.all())
    by = waves(20, 64, 2.0, torch.Generator().manual_seed(5))
    apart = 3.0 * ramp(0.5) * ((psi(by, f).mean(0) - m).square().sum() + 0.25)
    assert data.y is not None
    loss = client.objective(replace(at(c, 3), data=data), penalty)
    assert loss is not None
    torch.testing.assert_close(loss(net, data.x.all(), data.y), functional.cross_entropy(net(data.x.all()), data.y) + apart)
    alone = client.objective(replace(at(c, 3), data=replace(data, y=None)), penalty)
    assert alone is not None
    torch.testing.assert_close(alone(net, data.x.all(), data.y), apart)
    assert client.objective(replace(at(c, 3), data=replace(data, y=None)), None) is None


def test_changes_are_averaged_alike() -> None:
    """w <- w + the plain mean; the target takes part, and changes nothing where it is drawn nowhere."""
    stage, run = played("fdan", rounds=2)
    trained = sent(stage, run, "train")
    before, after = trained["anna", 1][0], trained["anna", 2][0]
    replies = [trained[k, 1][1] for k in ROSTER]
    for name, w in before.model.items():
        expected = w + sum((reply.delta[name] for reply in replies), torch.zeros(())) / 4
        torch.testing.assert_close(after.model[name], expected)
    assert not any(bool(d.any()) for d in trained["dora", 1][1].delta.values())
    second = trained["dora", 2][1].delta
    assert bool(second["features.1.weight"].any()) and not bool(second["classifier.weight"].any())


def test_statistics_of_batch_norm_stay() -> None:
    """They are in no reply; each site is scored, and keeps the model, with those of its own rows by the last w."""
    stage, run = played("fdan", more=IMAGES, rounds=2)
    for _, reply in sent(stage, run, "train").values():
        assert not any("running" in name or "batches" in name for name in reply.delta)
    w = states(stage, run, State)[-1]
    world = World(inputs=(1, 8, 8), classes=3, model="lenet_bn")
    for k in ROSTER:
        net = nets.loaded(world, {**w.model, **w.buffers})
        remeasure(net, rows_of(k, (1, 8, 8)), 41, torch.Generator())
        own = fdan.keepsakes(None, memory_of(stage, run, k, Mine))["model"]
        torch.testing.assert_close(dict(own), dict(net.state_dict()))
        nets.loaded(world, own)


@pytest.mark.nightly(job="numbers")
@pytest.mark.parametrize("more", [{}, IMAGES], ids=["features", "images"])
def test_features_are_drawn_together(more: dict[str, Any]) -> None:
    """With lambda the far sources end nearer to the target than without."""

    def ending(lam: float) -> tuple[float, float]:
        stage = federation(**{k: site(k, 160, farther if k == "dora" else as_it_is) for k in ROSTER})
        stage, run = played("fdan", stage, more=more, rounds=9, rate=0.03, lam=lam)
        last = tables(stage, run, DISTANCES)[-1]
        return sum(v for (v,) in last.values()), accuracy(stage, run)

    (near, score), (far, _) = ending(5.0), ending(0.0)
    assert near < 0.8 * far and score > 0.9


def test_without_lambda_it_is_averaging_of_changes() -> None:
    """The target's change is always none, and the sources' that of cross-entropy alone."""
    stage, run = played("fdan", rounds=2, lam=0.0)
    replies = sent(stage, run, "train")
    assert all(not any(bool(d.any()) for d in replies["dora", r][1].delta.values()) for r in (1, 2))


def test_its_contract_names_peers() -> None:
    """What goes to the other side as it is: the width and the moments. Statistics of batch norm are no clause."""
    found = {c.field: c for c in contract(fdan, FDAN())}
    assert {name for name, c in found.items() if c.audience == TO_BOTH} == {"s2", "m"}
    assert found["m"].exposure is Exposure.STATISTIC and found["samples"].exposure is Exposure.COUNT
    assert not [name for name in found if "buffers" in name]


def test_the_default_policy_does_not_let_moments_go_to_peers() -> None:
    """Its owner has to agree: the site joins no run, and the cause names the clause."""
    stage = federation(anna=SimSite(site("anna").open_site_data))
    run = stage.start(experiment("fdan", ROSTER))
    row = stage.play(run)
    assert row.status.value == "stalled" and "sends m" in row.cause and "STATISTIC" in row.cause


def test_the_mean_of_moments() -> None:
    """None of none; of one it is that, and nothing is spread."""
    assert centre([]) == (None, 0.0)
    m = torch.tensor([1.0, 3.0])
    mean, spread = centre([m])
    assert mean is not None and torch.equal(mean, m) and spread == 0.0
    mean, spread = centre([m, -m])
    assert mean is not None and mean.tolist() == [0.0, 0.0] and spread == pytest.approx(10.0)


@pytest.mark.parametrize("who", ["anna", "dora"])
def test_a_site_with_few_rows_says_so(who: str) -> None:
    """31 are refused before anything of them is sent; 32 are enough."""
    stage = federation(**{who: site(who, 31)})
    run = stage.start(experiment("fdan", ROSTER))
    row = stage.play(run)
    assert row.status.value == "stalled"
    assert f"{who}" in row.cause and "31 training rows" in row.cause
    played("fdan", federation(**{who: site(who, 32)}), rounds=1)


@pytest.mark.parametrize("work", [client.warm, client.width, client.share, client.train])
def test_every_step_holds_to_it(work: Any) -> None:
    """Whatever the coordinator asks first."""
    w = nets.weights_of(nets.build(WORLD))
    with pytest.raises(DataRefused, match="31 training rows") as refusal:
        work.run(Model(w, {}), Mine({}, {}), at(FDAN(), n=31, role=Role.SOURCE))
    assert refusal.value.todo


def test_a_source_that_was_away_is_stood_for_by_its_last_moment() -> None:
    """The target's partner is the mean of the last moment of each; who never answered has none."""
    stage = federation()
    stage, run = played("fdan", stage, away(stage, "anna", ("share", 2)), WAITING, rounds=2)
    shared, lessons = sent(stage, run, "share"), sent(stage, run, "train")
    m = [shared["anna", 1][1].m, shared["bert", 2][1].m, shared["carl", 2][1].m]
    torch.testing.assert_close(lessons["dora", 2][0].partner, torch.stack(m).mean(0))
    stage = federation()
    stage, run = played("fdan", stage, away(stage, "dora", ("share", 1)), WAITING, rounds=1)
    assert all(sent(stage, run, "train")[k, 1][0].partner is None for k in SOURCES)
    assert tables(stage, run, DISTANCES) == []


@pytest.mark.parametrize("dtype", [torch.bool, *night_params(torch.int64, torch.float64)])
def test_a_moment_of_another_dtype_is_taken(dtype: torch.dtype) -> None:
    """Whole numbers, truth values: the run ends as it should."""
    stage, run, order = open_round(federation(), experiment("fdan", ROSTER), "share", DORA)
    assert reported(stage, run, order, DORA, lambda given: {"m": torch.ones(320, dtype=dtype)}).verdict == "accepted"
    assert stage.play(run).status.value == "completed", stage.row(run).cause


def test_what_is_no_mean_of_psi_draws_nobody() -> None:
    """A single number that no feature has would pull the target anywhere: the marks name who sent it, and it is not used."""
    stage, run, order = open_round(federation(), experiment("fdan", ROSTER), "share", ANNA)
    assert reported(stage, run, order, ANNA, lambda given: {"m": given["m"] + 0.1}).verdict == "accepted"
    assert stage.play(run).status.value == "completed", stage.row(run).cause
    first, *later = (r for r in stage.journal.rounds(run) if r.phase == "share")
    assert first.marks == {"left out": ("anna",)} and not any(r.marks for r in later)
    shared, lessons = sent(stage, run, "share"), sent(stage, run, "train")
    m = [shared[name, 1][1].m for name in ("bert", "carl")]
    torch.testing.assert_close(lessons["dora", 1][0].partner, torch.stack(m).mean(0))
