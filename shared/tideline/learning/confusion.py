"""Which classes are taken for which, as a phase after the last scoring: held-out rows, counted at the site."""

from __future__ import annotations

import torch
from torch import Tensor

from tideline.core.phase import MOST_TABLES, MOST_VALUES, Folded, Phase, Replies, Table, Turn
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, field, record
from tideline.core.run import World
from tideline.core.step import Outcome, Site, Step, View
from tideline.learning.evaluate import C, M, Offer, Predict, S, T, predicted

NAME = "confusion"
OF_ALL = "confusion of all sites"
LONGEST = 80  # letters of a class name; with longer ones classes have their numbers


@record
class Confusion:
    """What a site tells of its held-out rows, where it has labels to count them by."""

    counts: Tensor = field("classes classes", Exposure.COUNT, low=0, doc="held-out rows by class and prediction")


def confused(
    offer: Offer[S, C, T],
    predict: Predict[T, M, C],
    *,
    takes: type[T] = Nothing,  # type: ignore[assignment]
    keeps: type[M] = Nothing,  # type: ignore[assignment]
) -> Phase[C, S]:
    """A phase in which each asked client counts its held-out rows by label and prediction.

    offer and predict: as in `evaluate`. A site without labels to score by sends zeros.
    """

    def count(order: T, memory: M, site: Site[C]) -> Outcome[Confusion, M]:
        K = site.world.classes
        counts = torch.zeros(K * K, dtype=torch.int64)
        for out, y in predicted(predict, order, memory, site):
            counts += torch.bincount(y * K + out.argmax(1), minlength=K * K)
        return Outcome(Confusion(counts.view(K, K)), memory)

    return Phase(NAME, Step(NAME, count, takes, keeps, Confusion, (), View.HELD_OUT), ask=offer, fold=told)


def told(state: S, replies: Replies[Confusion], turn: Turn[C]) -> S | Folded[S]:
    """The state as it is; for people a table of each site that had rows, and of all of them together."""
    found = {str(site): reply.counts.double() for site, reply in replies.items()}
    seen = {site: counts for site, counts in found.items() if float(counts.sum())}
    tables = {f"{NAME} of {site}": counts for site, counts in seen.items()} if fits(len(seen) + 1, turn.world) else {}
    if len(seen) > 1 and fits(1, turn.world):
        tables[OF_ALL] = torch.stack(list(seen.values())).sum(0)
    return Folded(state, tables={name: table(counts, turn.world) for name, counts in tables.items()}) if tables else state


def fits(count: int, world: World) -> bool:
    """Whether so many tables may be told of a round."""
    return count <= MOST_TABLES and count * world.classes**2 <= MOST_VALUES


def class_names(world: World) -> tuple[str, ...]:
    """What tables call the classes."""
    known = world.class_names if all(len(name) <= LONGEST for name in world.class_names) else ()
    return known or tuple(map(str, range(world.classes)))


def table(counts: Tensor, world: World) -> Table:
    """A row for each class, a column for each that its rows were taken for."""
    names = class_names(world)
    values = tuple(tuple(map(float, row)) for row in counts.tolist())
    return Table(tuple(f"is {name}" for name in names), tuple(f"taken for {name}" for name in names), values)
