"""The law of sealed values bites: a method that also sends one as it is is caught by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.laws.case import Case
from tests.laws.sealed import stays_sealed
from tests.laws.stage import registered
from tideline.core.algorithm import Algorithm
from tideline.core.handle import Handle
from tideline.core.phase import Phase, Plan, Replies, Turn
from tideline.core.privacy import TO_PEERS, Exposure
from tideline.core.record import Nothing, field, record
from tideline.core.run import ClientId
from tideline.core.settings import setting
from tideline.core.step import Outcome, Site, step


@dataclass(frozen=True)
class Config:
    """Whether the value is sent in the open, too."""

    rounds: int = setting(2, low=1, doc="rounds")
    leaks: bool = setting(False, doc="whether the value is sent in the open too")


@record
class Value:
    """A value for peers."""

    v: Tensor = field("n", Exposure.WEIGHTS, audience=TO_PEERS)


@record
class Answer:
    """A site's value, sealed; and something that should be another thing."""

    sealed: Handle[Value]
    v: Tensor = field("n", Exposure.STATISTIC)


@step()
def work(order: Nothing, memory: Nothing, site: Site) -> Outcome[Answer, Nothing]:
    v = torch.randn(16, generator=site.rng)
    return Outcome(Answer(Handle.of(Value(v)), v if site.config.leaks else torch.zeros(16)), memory)


def to_all(state: Nothing, turn: Turn) -> Mapping[ClientId, Nothing]:
    return dict.fromkeys(turn.members(), Nothing())


def unmoved(state: Nothing, replies: Replies[Answer], turn: Turn) -> Nothing:
    return state


def method(leaks: bool) -> Case:
    """A method of which one site's values are for the others."""

    def plan(c: Config) -> Plan:
        return (Phase("work", work, to_all, unmoved),) * c.rounds

    def begin(*given: Any) -> Nothing:
        return Nothing()

    presets = {"tiny": {"leaks": leaks}}
    algorithm = Algorithm("toy", "nobody", "values for peers", Config, Nothing, begin, plan, presets=presets)
    return Case("toy", registered(algorithm))


def test_a_value_that_is_sent_in_the_open_too_is_caught() -> None:
    """Whatever else declares it."""
    with pytest.raises(AssertionError, match="passed unsealed"):
        stays_sealed(method(leaks=True))


def test_one_that_is_sealed_passes() -> None:
    """And was looked at."""
    assert stays_sealed(method(leaks=False)) > 0
