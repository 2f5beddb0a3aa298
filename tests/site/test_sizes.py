"""What sizes a site's training is marked where it is declared, so that an owner's limits hold every method without its names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tideline.algorithms import METHODS
from tideline.core.algorithm import resolve
from tideline.core.settings import BATCH, RATE, Settings, Sizes, marks_in, pull, setting, steps
from tideline.engine.compute.limits import sized, too_few
from tideline.engine.ports.site import Limits
from tideline.engine.site.rules import SiteRules, bound_of

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
