"""What a trainer holds a step to: of how many rows an answer is made, and what is told of classes with few."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tideline.algorithms import METHODS
from tideline.algorithms.gaussian_heads import GaussianHeads, Sums, sums
from tideline.algorithms.stlf.client import sampled
from tideline.core.asked.world import world_in
from tideline.core.record import Nothing
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId, Role
from tideline.core.step import Data, Site, View
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.engine.site.rules import FREE, Least, SiteRules

WORLD = {"inputs": [6], "classes": 3, "model": "linear", "normalise": "none"}


class Rows:
    """So many rows of each class."""

    def __init__(self, *of_class: int) -> None:
        self.y = torch.cat([torch.full((n,), k) for k, n in enumerate(of_class)])
        self.x = torch.randn(len(self.y), 6, generator=torch.Generator().manual_seed(len(self.y))) + self.y[:, None]

    def view(self, view: View, role: Role) -> Data:
        y: Tensor | None = None if role is Role.TARGET and view is not View.HELD_OUT else self.y
        return Data(MemoryRows(self.x), y, torch.zeros(len(self.x), dtype=torch.int64), ("d",))


def federation(rules: SiteRules, *of_class: int) -> Federation:
    """Anna has enough rows, and bert so many of each class, by these rules."""
    sites = {"anna": SimSite(lambda w, r: Rows(30, 30, 30)), "bert": SimSite(lambda w, r: Rows(*of_class), rules=rules)}
    return Federation(METHODS, sites)


def played(rules: SiteRules, *of_class: int, method: str = "fedavg", role: str = "source", **config: Any) -> dict[str, Any]:
    made = federation(rules, *of_class)
    given = {"method": method, "world": WORLD, "roster": {"anna": "source", "bert": role}, "config": {"rounds": 1, **config}}
    return made.run(made.start(given))


STRICT = replace(FREE, least=Least(rows=20, rows_per_class=1))


@pytest.mark.parametrize(
    ("rules", "rows", "asked", "words"),
    [
        (STRICT, (7, 7, 7), {}, None),
        (STRICT, (7, 7, 5), {}, "it has fewer than 20 training rows for the run"),
        (STRICT, (7, 7, 5), {"role": "target"}, None),  # it is scored alone
        (STRICT, (7, 7, 5), {"role": "target", "method": "self_training"}, "it has fewer than 20 training rows for the run"),
        (FREE, (1, 1, 1), {}, None),
        (
            STRICT,
            (30, 30, 30),
            {"method": "pfedhn", "batches": 1, "batch": 4, "role": "peer"},
            "config.batches x config.batch is 4",
        ),
        (
            STRICT,
            (30, 30, 30),
            {"rate": 0.1, "weight_decay": 1.0},
            "config.rate x config.weight_decay is 0.1: an answer would be",
        ),
        (STRICT, (30, 30, 30), {"rate": 0.1, "mu": 10.0, "method": "fedprox"}, "config.rate x (weight_decay + mu) is 1.00005"),
        (STRICT, (30, 30, 30), {"rate": 0.1, "mu": 0.1, "method": "fedprox"}, None),
        (replace(FREE, bounds={"batch_share": 0.25}), (10, 10, 10), {"batch": 8}, "config.batch of 8 is more than 25% of its"),
        (replace(FREE, bounds={"batch_share": 0.25}), (10, 10, 12), {"batch": 8}, None),
    ],
)
def test_of_how_many_rows_an_answer_is_made(
    rules: SiteRules, rows: tuple[int, ...], asked: dict[str, Any], words: str | None
) -> None:
    """The join is refused, before anything of the rows has left."""
    more = {"roles": ["peer", "source"]} if asked.get("method") == "pfedhn" else {}
    result = played(rules, *rows, **{**asked, **more})
    assert (result["status"] == "completed") is (words is None), result["cause"]
    assert words is None or words in result["cause"], result["cause"]


def sums_of(least: int, *of_class: int, rows: int = 1) -> Sums:
    """What a site tells of its classes by Gaussian heads, in a run that asks for classes of one row. rows: wanted in all."""
    site = Site(
        config=GaussianHeads(least_rows=1),
        world=world_in(WORLD),
        me=ClientId("bert"),
        role=Role.SOURCE,
        data=Rows(*of_class).view(View.TRAIN, Role.SOURCE),
        round=1,
        rng=torch.Generator(),
        least_per_class=least,
        least_rows=rows,
    )
    return sums.run(Nothing(), Nothing(), site).message


def test_nothing_is_told_of_a_class_with_few_rows() -> None:
    """Not its count, nor its sum, though the run's own setting asks for classes of one row; of the others all is told."""
    free, strict = sums_of(1, 9, 1, 4), sums_of(5, 9, 1, 4)
    assert free.count.tolist() == [9, 1, 4] and strict.count.tolist() == [9, 0, 0]
    assert torch.equal(strict.total[0], free.total[0]) and not strict.total[1:].any()
    rows = Rows(9, 1, 4)
    assert torch.allclose(free.total[1], rows.x[rows.y == 1][0].double(), atol=1e-6)  # a sum of one row is that row


def test_nothing_is_told_of_few_rows_of_all_classes_together() -> None:
    """The products are of all that are told of: where these are few, nothing is told."""
    assert sums_of(5, 9, 1, 4, rows=9).count.tolist() == [9, 0, 0]
    few = sums_of(5, 9, 1, 4, rows=10)
    assert not few.count.any() and not few.total.any() and not few.second.any()


def test_training_is_of_enough_rows_whichever_are_chosen() -> None:
    """Rows without labels are no rows of a training on labels, nor are those that a run's settings leave out."""
    strict = partly_labelled(STRICT)
    assert "to train on 3 of its rows, which are fewer than 20" in strict["cause"], strict["cause"]
    assert partly_labelled(FREE)["status"] == "completed"


def partly_labelled(rules: SiteRules) -> dict[str, Any]:
    """A run at one site with three rows that have labels, and thirty that have none."""

    class Partly(Rows):
        def view(self, view: View, role: Role) -> Data:
            return replace(super().view(view, role), bare=MemoryRows(torch.randn(30, 6)))

    made = Federation(METHODS, {"bert": SimSite(lambda w, r: Partly(1, 1, 1), rules=rules)})
    run = made.start({"method": "fedavg", "world": WORLD, "roster": {"bert": "source"}, "config": {"rounds": 1}})
    return made.run(run)


@pytest.mark.parametrize(("rules", "words"), [(STRICT, "each point of an atom shows single rows"), (FREE, "")])
def test_points_that_show_single_rows(rules: SiteRules, words: str) -> None:
    """Plain gradients move each point of an atom towards the rows that it is matched to."""
    config = {"rounds": 1, "optimiser": "sgd", "encoder_rounds": 0, "points": 6, "batch": 6}
    made = federation(rules, 30, 30, 30)
    roster = {"anna": "source", "bert": "target"}
    result = made.run(made.start({"method": "feddadil", "world": WORLD, "roster": roster, "config": config}))
    assert words in result["cause"] and (result["status"] == "stalled") is bool(words), result["cause"]


def test_a_small_share_is_of_enough_rows() -> None:
    """Of a share of a hundredth, as many rows are drawn as the owner wants."""
    data = Rows(40, 40, 20).view(View.TRAIN, Role.SOURCE)
    drawn = [len(x) for x in sampled(data, 0.01, 2, torch.Generator(), 20)]
    assert sum(drawn) == 20 and sum(len(x) for x in sampled(data, 0.01, 2, torch.Generator())) == 2


def test_the_owners_floor_reaches_the_step() -> None:
    """Of a run whose smaller classes are told by nobody, the classifier is made of the larger one alone."""
    made = federation(replace(FREE, least=Least(rows=1, rows_per_class=5)), 9, 1, 4)
    run = made.start({"method": "gaussian_heads", "world": WORLD, "roster": {"bert": "source"}, "config": {"least_rows": 1}})
    result = made.run(run)
    free = federation(FREE, 9, 1, 4)
    other = free.run(
        free.start({"method": "gaussian_heads", "world": WORLD, "roster": {"bert": "source"}, "config": {"least_rows": 1}})
    )
    assert result["cause"] != other["cause"] or result["state_digest"] != other["state_digest"]
