"""The laws bite: a method that breaks one is caught by it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.laws import laws
from tests.laws.case import Case
from tests.laws.stage import registered
from tideline.core.algorithm import Algorithm
from tideline.core.handle import Handle
from tideline.core.phase import Phase, Plan, Replies, Turn
from tideline.core.privacy import TO_PEERS, Exposure
from tideline.core.record import Weights, field, record
from tideline.core.run import ClientId
from tideline.core.settings import setting
from tideline.core.step import Outcome, Site, step

Law = Callable[[Case], Any]
calls: list[int] = []


@dataclass(frozen=True)
class Config:
    """No settings but the number of rounds."""

    rounds: int = setting(2, low=1, doc="rounds")


@record
class Box:
    """A vector and named tensors: what the coordinator knows and sends."""

    v: Tensor = field("d", doc="a vector")
    last: Weights = field(doc="one value per site")


@record
class Answer:
    """What a site sends."""

    v: Tensor = field("...", Exposure.STATISTIC, doc="a vector")


@record
class Value:
    """A value for peers."""

    v: Tensor = field("n", Exposure.WEIGHTS, audience=TO_PEERS)


@record
class Sealed:
    """A site's value, sealed; and something that should be another thing."""

    sealed: Handle[Value]
    v: Tensor = field("n", Exposure.STATISTIC)


@record
class Mine:
    """What a site keeps."""

    secret: Tensor = field("n", doc="numbers of its own")


def answer(v: Callable[[Box, Mine, Site], Tensor], name: str) -> Any:
    """A step that sends what `v` gives."""

    @step(metrics=("loss",))
    def work(order: Box, memory: Mine, site: Site) -> Outcome[Answer, Mine]:
        return Outcome(Answer(v(order, memory, site)), Mine(torch.randn(9, generator=site.rng)), {"loss": 0.0})

    return replace(work, name=name)


def good(order: Box, memory: Mine, site: Site) -> Tensor:
    return order.v + torch.randn(16, generator=site.rng)


def to_all(state: Box, turn: Turn) -> Mapping[ClientId, Box]:
    return dict.fromkeys(turn.members(), state)


def tells_a_number() -> Algorithm:
    """A method whose metric is a number of a row."""

    @step(metrics=("loss",))
    def work(order: Box, memory: Mine, site: Site) -> Outcome[Answer, Mine]:
        return Outcome(Answer(good(order, memory, site)), memory, {"loss": float(site.data.x.all()[0].flatten()[0])})

    return replace(method(), plan=lambda c: (Phase("work", work, ask=to_all, fold=mean),) * c.rounds)


def sealing(leaks: bool) -> Algorithm:
    """A method whose sites seal a value for each other, and perhaps send it in the open too."""

    @step(metrics=("loss",))
    def work(order: Box, memory: Mine, site: Site) -> Outcome[Sealed, Mine]:
        v = torch.randn(16, generator=site.rng)
        return Outcome(Sealed(Handle.of(Value(v)), v if leaks else torch.zeros(16)), memory, {"loss": 0.0})

    unmoved = Phase("work", work, ask=to_all, fold=lambda state, replies, turn: state)
    return replace(method(), plan=lambda c: (unmoved,) * c.rounds)


def mean(state: Box, replies: Replies[Answer], turn: Turn) -> Box:
    total = torch.zeros(16)
    for reply in replies.values():
        total = total + reply.v.flatten()[:16] / len(replies)
    return Box(total, {})


def method(v: Any = good, ask: Any = to_all, fold: Any = mean) -> Algorithm:
    """A method of which one part may be bad."""

    def plan(c: Config) -> Plan:
        return (Phase("work", answer(v, "work"), ask=ask, fold=fold),) * c.rounds

    return Algorithm(
        "bad",
        "no paper",
        "breaks a law",
        Config,
        Box,
        lambda config, world, roster, rng: Box(torch.randn(16, generator=rng), {}),
        plan,
        Mine,
        lambda config, site: Mine(torch.randn(9, generator=site.rng)),
        presets={"tiny": {}},
    )


def changes_the_state(state: Box, turn: Turn) -> Mapping[ClientId, Box]:
    state.v.add_(1.0)
    return to_all(state, turn)


def counts_calls(order: Box, memory: Mine, site: Site) -> Tensor:
    calls.append(1)
    return good(order, memory, site) + len(calls)


def rolls_dice(order: Box, memory: Mine, site: Site) -> Tensor:
    return good(order, memory, site) + random.random()


def changes_its_order(order: Box, memory: Mine, site: Site) -> Tensor:
    order.v.mul_(2.0)
    return good(order, memory, site)


def sends_a_row(order: Box, memory: Mine, site: Site) -> Tensor:
    return torch.cat([site.data.x.all()[0], torch.randn(8, generator=site.rng)])


def sends_labels(order: Box, memory: Mine, site: Site) -> Tensor:
    return good(order, memory, site) if site.data.y is None else site.data.y[:33].float()


def sends_its_memory(order: Box, memory: Mine, site: Site) -> Tensor:
    return torch.cat([memory.secret, torch.zeros(7)])


def sends_a_number_a_row(order: Box, memory: Mine, site: Site) -> Tensor:
    return site.data.x.all().mean(1)


def hands_one_reply_to_all(state: Box, replies: Replies[Answer], turn: Turn) -> Box:
    first = next(iter(replies.values()))
    return Box(mean(state, replies, turn).v, {"of-somebody": first.v.clone()})


BAD: Mapping[str, tuple[Algorithm, Law]] = {
    "an ask that changes the state": (method(ask=changes_the_state), laws.functions_are_pure),
    "a step that counts its calls": (method(counts_calls), laws.functions_are_pure),
    "a step that counts its calls, restarted": (method(counts_calls), laws.restarts_change_nothing),
    "a step that changes its order": (method(changes_its_order), laws.functions_are_pure),
    "a step with a global generator": (method(rolls_dice), laws.arrival_does_not_matter),
    "a step that sends a row": (method(sends_a_row), laws.site_data_stay),
    "a step that sends labels": (method(sends_labels), laws.site_data_stay),
    "a step that sends its memory": (method(sends_its_memory), laws.site_data_stay),
    "a step that sends a number for each row": (method(sends_a_number_a_row), laws.site_data_stay),
    "a metric that is a number of a row": (tells_a_number(), laws.site_data_stay),
    "a step that sends what it sealed": (sealing(leaks=True), laws.stays_sealed),
    "a tell that hands one reply to all": (method(fold=hands_one_reply_to_all), laws.peers_see_what_is_declared),
}
LAWS = [
    *(laws.archive_keeps_all, laws.functions_are_pure, laws.arrival_does_not_matter, laws.restarts_change_nothing),
    *(laws.old_memory_is_noticed, laws.lost_reply_is_noticed, laws.site_data_stay, laws.peers_see_what_is_declared),
    *(laws.a_quorum_goes_on, laws.no_quorum_stalls, laws.one_site_in_all, laws.every_clause_can_be_forbidden),
]


@pytest.mark.parametrize("what", BAD)
def test_a_bad_method_is_caught(what: str) -> None:
    """Each of these breaks one law, and that law fails."""
    algorithm, law = BAD[what]
    with pytest.raises(AssertionError):
        law(Case("bad", registered(algorithm)))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_good_one_passes(law: Law) -> None:
    """The same method without its fault, which keeps memory at every site, passes every law."""
    law(Case("bad", registered(method())))


def test_what_is_sealed_was_looked_at() -> None:
    assert laws.stays_sealed(Case("bad", registered(sealing(leaks=False)))) > 0
