"""Scores on each target's held-out rows; and the model that is the target's own stays with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol, TypeVar

from torch import Tensor

from tideline.algorithms.source_free.messages import Mine, Model
from tideline.algorithms.source_free.settings import EndCounts
from tideline.algorithms.source_free.source import Whole, network
from tideline.core.data import View
from tideline.core.phase import Phase, Plan, to, to_all
from tideline.core.record import Nothing, Record
from tideline.core.run import Role
from tideline.core.settings import Settings
from tideline.core.step import Outcome, Site, Step
from tideline.learning.confusion import confused
from tideline.learning.evaluate import Offer, Predict, accuracy, evaluate, outputs
from tideline.learning.label_shift import label_shift

C = TypeVar("C", bound=Settings)
S = TypeVar("S")
K = TypeVar("K", bound="HasModel")
M = TypeVar("M")


class HasModel(Whole, Record, Protocol):
    """A memory that has a site's own model."""


def predict(order: Model, memory: M, site: Site[Settings], x: Tensor) -> Tensor:
    """Outputs of the model that was sent."""
    return outputs(network(site, order.f, order.g), x, site.device)


def predict_own(order: Nothing, memory: Mine, site: Site[Settings], x: Tensor) -> Tensor:
    """Outputs of the model in the site's memory."""
    return outputs(network(site, memory.f, memory.g), x, site.device)


def source_only(
    offer: Offer[S, C, Model] | None = None,
    memory: type[M] = Mine,  # type: ignore[assignment]
) -> Phase[C, S]:
    """h_S as it came, scored once: the baseline of adaptation. memory: the method's memory type, which stays as it is."""
    ask = offer or to(Role.TARGET, Model)
    return evaluate(ask, predict, takes=Model, keeps=memory, name="source_only", metrics=("source_only",))


def score(
    offer: Offer[S, C, Model] | None = None,
    memory: type[K] = Mine,  # type: ignore[assignment]
) -> Phase[C, S]:
    """The model that each target would use now. It stays in the target's memory, which the owner may export.

    memory: the method's memory type, a record with f and g.
    """

    def run(order: Model, memory: K, site: Site[C]) -> Outcome[Nothing, K]:
        value = accuracy(predict, order, memory, site)
        mine = replace(memory, f=order.f, g=order.g)
        return Outcome(Nothing(), mine, {} if value is None else {"accuracy": value})

    step = Step("score", run, Model, memory, Nothing, ("accuracy",), View.HELD_OUT)
    return Phase("score", step, ask=offer or to(Role.TARGET, Model))


def end_counts(
    c: EndCounts,
    predict: Predict[Nothing, M, C],
    memory: type[M],
    *,
    targets: Offer[S, C, Nothing] | None = None,
    everybody: Offer[S, C, Nothing] | None = None,
) -> Plan[C, S]:
    """What sites count in the end, as `c` asks: confusions of classes on held-out rows, and training rows of each class.

    predict(order, memory, site, x): outputs of the site's own model. targets, everybody: who is asked, if not all of them.
    """
    taken = confused(targets or to(Role.TARGET, Nothing), predict, keeps=memory)
    shift = label_shift(everybody or to_all(Nothing), predict, keeps=memory)
    return (*(taken,) * c.confusion, *(shift,) * c.label_shift)


def keepsakes(config: Settings, memory: HasModel) -> Mapping[str, Mapping[str, Tensor]]:
    """The site's own model as one state dict, once there is one."""
    return {"model": {**memory.f, **memory.g}} if memory.f else {}
