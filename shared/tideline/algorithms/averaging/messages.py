"""Messages and state of the averaging family. Methods of other families whose models travel whole send the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from tideline.core.privacy import Exposure
from tideline.core.record import Weights, field, record
from tideline.core.step import Outcome, Site, Step
from tideline.learning.private.words import NUMBER, TRAINED

C = TypeVar("C")
G = TypeVar("G")
H = TypeVar("H")
M = TypeVar("M")
T = TypeVar("T")


@record
class Model:
    """What a client is sent: the common model w."""

    model: Weights = field(doc="parameters and buffers of the network, by name")


@record
class Models:
    """What a client is sent that scores several models."""

    models: tuple[Weights, ...] = field(doc="parameters and buffers by name, a mapping for each model")


@record
class Trained:
    """What a client answers: its model w_i."""

    model: Weights = field("like model", Exposure.WEIGHTS, private=TRAINED, doc="the model after local training")


@record
class Update(Trained):
    """What a client answers: its model w_i and how many rows it trained on, n_i."""

    samples: int = field("", Exposure.COUNT, low=1, private=NUMBER, doc="labelled training rows at the site")


@record
class State(Model):
    """What the coordinator knows: w."""


def counted(plain: Step[T, M, G, C], gives: type[H]) -> Step[T, M, H, C]:
    """A step that sends what `plain` does and, as `samples`, how many training rows there are. gives: the type of its replies."""
    made: Callable[..., H] = gives

    def run(order: T, memory: M, site: Site[C]) -> Outcome[H, M]:
        done = plain.run(order, memory, site)
        return Outcome(made(**vars(done.message), samples=site.samples), done.memory, done.metrics)

    return replace(plain, name=f"{plain.name}_counted", run=run, gives=gives)  # type: ignore[arg-type, return-value]
