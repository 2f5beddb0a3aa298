"""What a trainer holds a step to: of how many rows an answer is made, and what is told of classes with few."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tideline.algorithms import METHODS
from tideline.algorithms.gaussian_heads import GaussianHeads, Sums, sums
from tideline.algorithms.stlf.client import sampled
from tideline.core.algorithm import resolve
from tideline.core.asked.world import world_in
from tideline.core.record import Nothing
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId, Role
from tideline.core.settings import BATCH, RATE, Settings, Sizes, marks_in, pull, setting, steps
from tideline.core.step import Data, Site, View
from tideline.engine.compute.limits import sized, too_few
from tideline.engine.ports.site import Limits
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.engine.site.rules import FREE, Least, SiteRules, bound_of

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


# What sizes a site's training is marked where it is declared, so that an owner's limits hold every method without its names.
NAMES = [name for name, _ in METHODS]
# How settings sound that size a step, a training, or an answer: by their names, and by what is said of them.
BY_NAME = re.compile(r"(^|_)(rate|decay|l2|mu|prox|batch(es)?|steps?|epochs?|rounds)$")
BY_WORDS = re.compile(
    r"learning rate|weight decay|proximal|rows in a mini-batch|many mini-batches|^(local )?epochs|\bepochs that\b"
)


def sounding(config: type[Settings], at: str = "") -> Iterator[str]:
    """The paths of settings that sound like it, those of settings within settings too."""
    for each in dataclasses.fields(config):
        default = each.default if each.default_factory is dataclasses.MISSING else each.default_factory()
        if dataclasses.is_dataclass(default):
            yield from sounding(type(default), f"{at}{each.name}.")
        elif BY_NAME.search(each.name) or BY_WORDS.search(each.metadata.get("doc", "")):
            yield f"{at}{each.name}"


def unmarked(config: type[Settings]) -> list[str]:
    marks = dict(marks_in(config))
    stops = [path for path in sounding(config) if path not in marks and path.rsplit(".", 1)[-1] != "patience"]
    return stops + [path for path, mark in marks.items() if mark.sizes in GOES_WITH and not goes(marks.get(mark.of), mark.sizes)]


GOES_WITH = {Sizes.PULL: Sizes.RATE, Sizes.STEPS: Sizes.BATCH}


def goes(other: object, kind: Sizes) -> bool:
    return getattr(other, "sizes", None) is GOES_WITH[kind]


@pytest.mark.parametrize("name", NAMES)
def test_what_sizes_a_training_is_marked(name: str) -> None:
    """A setting that sounds like a rate, a decay, a mini-batch or a number of rounds says what it sizes, or that it sizes nothing
    at a site; a pull names its rate, and a number of mini-batches their size.
    """
    assert unmarked(resolve(METHODS, name).config) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_learning_rate_is_bound_by_default(name: str) -> None:
    """A method brings no rate that the built-in policy does not know."""
    rates = [path.rsplit(".", 1)[-1] for path, mark in marks_in(resolve(METHODS, name).config) if mark.sizes is Sizes.RATE]
    assert [rate for rate in rates if bound_of(SiteRules().bounds, rate) is None] == []


@dataclass(frozen=True)
class Inner:
    """Settings within settings."""

    fast_rate: float = setting(0.5, sizes=RATE, doc="learning rate")
    anchor: float = setting(0.0, sizes=pull("fast_rate"), doc="draws back")
    ridge: float = setting(0.0, sizes=pull("fast_rate"), doc="draws back, too")


@dataclass(frozen=True)
class Odd:
    """A method's settings by names that nobody else has."""

    handful: int = setting(8, sizes=BATCH, doc="rows at once")
    hops: int = setting(0, sizes=steps("handful"), doc="how many")
    inner: Inner = setting(Inner())


@dataclass(frozen=True)
class Careless:
    """Settings of somebody who forgot."""

    wild_rate: float = setting(0.1, doc="how far a step goes")
    slow: float = setting(0.1, doc="weight decay")
    lost: float = setting(0.1, sizes=pull("rate"), doc="nothing that is there")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (Odd(), []),
        (Odd(hops=2), ["config.hops x config.handful is 16 rows an answer, fewer than 20"]),
        (Odd(hops=3), []),
        (Odd(handful=60), ["config.handful of 60 is more than 50% of its training rows"]),
        (Odd(inner=Inner(anchor=0.05, ridge=0.04)), []),
        (Odd(inner=Inner(anchor=0.06, ridge=0.06)), ["config.inner.fast_rate x (inner.anchor + inner.ridge) is 0.06: an answer"]),
    ],
)
def test_limits_know_settings_by_their_marks(config: Odd, words: list[str]) -> None:
    """Whatever their names are, and wherever they stand; what several pulls do to one rate adds up."""
    found = [said for said, _ in too_few(Limits(rows=20, share=0.5), sized(config), 100)]
    assert len(found) == len(words) and all(want in said for want, said in zip(words, found, strict=True)), found


def test_settings_without_a_mark_are_found() -> None:
    """By name and by what is said of them; and a pull whose rate is not there."""
    assert unmarked(Careless) == ["wild_rate", "slow", "lost"]


def test_a_share_of_rows_is_no_proximal_term() -> None:
    """FedWCA's mu mixes two rows; nothing is drawn back by it, whatever the rate is."""
    config = resolve(METHODS, "fedwca").configure({"rate": 0.2, "mu": 0.9})
    assert list(too_few(Limits(rows=20), sized(config), 100)) == []


def test_a_mini_batch_of_a_source_is_a_mini_batch() -> None:
    """An owner's share of the training rows holds every setting that is one."""
    config = resolve(METHODS, "shot").configure({"source_batch": 60, "batch": 10})
    (said,) = [words for words, _ in too_few(Limits(rows=20, share=0.5), sized(config), 100)]
    assert said.startswith("config.source_batch of 60 is more than 50%")
