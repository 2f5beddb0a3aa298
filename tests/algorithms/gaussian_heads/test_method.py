"""Gaussian heads in whole runs: the classifier of pooled rows from sums, what leaves a site, who is left out, and refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from tests.laws.stage import HoardingParts, Stage
from tests.synthetic import CLASSES, FEATURES, Rows, blobs, experiment
from tideline import nets
from tideline.algorithms import METHODS
from tideline.algorithms.averaging.messages import Model
from tideline.algorithms.gaussian_heads import BIAS, WEIGHT, GaussianHeads, Sums, pairs, plan, square
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.asked.world import World
from tideline.core.rows import MemoryRows
from tideline.core.run import Role
from tideline.core.step import Data
from tideline.engine.model.brief import brief_of
from tideline.engine.simulation.federation import SimSite
from tideline.numerics.labels.gaussian_heads import class_sums, heads

ROSTER = {"anna": "source", "bert": "source", "carl": "target"}
WORLD = {**FEATURES, "model": "linear"}


def site(domain: int, change: Any = lambda data: data) -> SimSite:
    rows = Rows(change(blobs(41, domain, 0)), blobs(60, domain, 1))
    return SimSite(lambda world, role: rows)


def played(config: dict[str, Any] | None = None, world: Any = WORLD, **sites: SimSite) -> tuple[Stage, Any]:
    stage = Stage(METHODS, {name: site(i) for i, name in enumerate(ROSTER)} | sites, parts=HoardingParts())
    run = stage.start(experiment("gaussian_heads", ROSTER, world=world, config=config or {}))
    stage.play(run)
    return stage, run


def model(stage: Stage, run: Any) -> Model:
    return decode(Model, stage.journal.rounds(run)[-1].state[0][0], stage.parts, LAX)


def test_it_is_the_classifier_of_the_pooled_rows() -> None:
    stage, run = played()
    assert stage.row(run).status.value == "completed", stage.row(run).cause
    data = [blobs(41, domain, 0) for domain in (0, 1)]
    x, y = torch.cat([d.x.all() for d in data]), torch.cat([d.y for d in data if d.y is not None])
    known, found = heads(class_sums(x, y, CLASSES)), model(stage, run).model
    assert torch.allclose(found[WEIGHT], known.weight.float(), atol=1e-5)
    assert torch.allclose(found[BIAS], known.bias.float(), atol=1e-4)


def test_one_round_and_targets_send_nothing_but_scores() -> None:
    stage, run = played()
    asked = {(order.client, order.cursor) for order in stage.journal.orders(run) if order.cursor >= 0}
    assert [phase.name for phase in plan(GaussianHeads())] == ["sums", "score"]
    assert asked == {("anna", 0), ("bert", 0), ("anna", 1), ("bert", 1), ("carl", 1)}


def test_a_class_of_one_row_is_not_told() -> None:
    """Its sum would be the row."""

    def one_row(data: Data) -> Data:
        assert data.y is not None
        kept = torch.cat([(data.y != 1).nonzero().flatten(), (data.y == 1).nonzero().flatten()[:1]]).sort().values
        return replace(data, x=data.x.at(kept), y=data.y[kept], domain=data.domain[kept])

    for config, told in (({}, 0), ({"least_rows": 1}, 1)):
        stage, run = played(config, anna=site(0, one_row))
        first = next(order for order in stage.journal.orders(run) if order.client == "anna" and order.cursor == 0)
        count = decode(Sums, first.reply[0][0], stage.parts, LAX).count
        assert float(count[1]) == told and float(count.sum()) > 1


def test_a_site_with_nothing_to_tell_is_left_out() -> None:
    stage, run = played({"least_rows": 10}, anna=site(0, lambda data: few(data, 6)))
    assert stage.row(run).status.value == "completed", stage.row(run).cause
    assert stage.journal.rounds(run)[1].marks == {"left out": ("anna",)}
    own = blobs(41, 1, 0)
    assert own.y is not None
    assert torch.allclose(
        model(stage, run).model[WEIGHT], heads(class_sums(own.x.all(), own.y, CLASSES)).weight.float(), atol=1e-5
    )


def few(data: Data, n: int) -> Data:
    assert data.y is not None
    return replace(data, x=MemoryRows(data.x.all()[:n]), y=data.y[:n], domain=data.domain[:n])


def test_too_few_rows_end_the_run_with_the_reason() -> None:
    stage, run = played({"least_rows": 1000})
    row = stage.row(run)
    assert row.status.value == "failed" and "a class with two rows" in row.cause and "least_rows" in row.cause


def test_a_matrix_from_each_pair_once() -> None:
    made = torch.tensor([[1.0, 2, 3], [2, 4, 5], [3, 5, 6]]).double()
    rows, columns = pairs(3)
    assert torch.equal(square(made[rows, columns], 3), made) and len(rows) == 6


def test_the_network_is_one_layer() -> None:
    assert set(nets.template(World(inputs=(8,), classes=3, model="linear"))) == {WEIGHT, BIAS}


def test_features_on_few_directions_need_fewer_products() -> None:
    """On as many directions as features it is the same classifier; on fewer, less is sent, and the network stays as it is."""
    whole, run = played({"shrinkage": 0.0})
    d = model(whole, run).model[WEIGHT].shape[1]
    turned, other = played({"shrinkage": 0.0, "project": d})
    x = torch.cat([blobs(41, domain, 0).x.all() for domain in (0, 1)]).flatten(1)
    told = [x @ found[WEIGHT].T + found[BIAS] for found in (model(whole, run).model, model(turned, other).model)]
    assert torch.equal(told[0].argmax(1), told[1].argmax(1))
    few, last = played({"project": 2})
    assert model(few, last).model[WEIGHT].shape == (CLASSES, d)
    assert sent(few, last) < sent(whole, run)


def sent(stage: Stage, run: Any) -> int:
    """Bytes from sites, in the exchange of sums."""
    return next(int(each["bytes_up"]) for each in stage.result(run)["phases"] if each["name"] == "sums")


def test_earlier_agents_hear_of_directions_where_there_are_some() -> None:
    """They know no such setting, and would refuse the run."""
    for config, said in (({}, False), ({"project": 0}, False), ({"project": 2}, True)):
        stage, run = played(config)
        assert ("project" in brief_of(stage.row(run), Role.SOURCE)["config"]) is said  # type: ignore[operator]
        assert stage.row(run).spec.config["project"] == config.get("project", 0)
