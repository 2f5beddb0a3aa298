"""What a setting of a method sizes in a site's training: its declaration says so, and an owner's limits read it there.

    rate: float = setting(1e-2, sizes=RATE, doc="learning rate")
    weight_decay: float = setting(0.0, sizes=pull("rate"), doc="weight decay")

So what holds all methods to an owner's limits knows the names of none of their settings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tideline.core.settings import Settings


class Sizes(StrEnum):
    """RATE: how far a step of a site goes along a gradient. PULL: draws weights back in each step, by so much of a rate. BATCH:
    rows of a mini-batch. STEPS: mini-batches that an answer is made of in place of epochs; 0: epochs. TOLD: rows of which one
    gradient is that is told as it is. EPOCHS, ROUNDS: how often rows are seen, and answers given. ELSEWHERE: it sizes no step
    that a site takes on its rows, though its name may sound like it.
    """

    RATE = "rate"
    PULL = "pull"
    BATCH = "batch"
    STEPS = "steps"
    TOLD = "told"
    EPOCHS = "epochs"
    ROUNDS = "rounds"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True)
class Mark:
    """of: the setting beside it that it goes with: the rate of a pull, the mini-batch of steps."""

    sizes: Sizes
    of: str = ""


RATE, BATCH, TOLD = Mark(Sizes.RATE), Mark(Sizes.BATCH), Mark(Sizes.TOLD)
EPOCHS, ROUNDS, ELSEWHERE = Mark(Sizes.EPOCHS), Mark(Sizes.ROUNDS), Mark(Sizes.ELSEWHERE)


def pull(of: str) -> Mark:
    """The mark of a weight decay or a proximal term. of: the rate whose steps it acts in."""
    return Mark(Sizes.PULL, of)


def steps(of: str) -> Mark:
    """The mark of a number of mini-batches. of: their size."""
    return Mark(Sizes.STEPS, of)


def marks_in(config: type[Settings], at: str = "") -> Iterator[tuple[str, Mark]]:
    """The marks of a method's settings by their path, those of settings within settings too."""
    for each in dataclasses.fields(config):
        default = each.default if each.default_factory is dataclasses.MISSING else each.default_factory()
        if dataclasses.is_dataclass(default) and not isinstance(default, type):
            yield from marks_in(type(default), f"{at}{each.name}.")
        elif (mark := each.metadata.get("sizes")) is not None:
            yield f"{at}{each.name}", Mark(mark.sizes, f"{at}{mark.of}" if mark.of else "")
