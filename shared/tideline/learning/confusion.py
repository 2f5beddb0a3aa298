"""Phases after the last scoring that compare sites by their labels: which classes are taken for which, and how shares shift."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from tideline.core.data import View
from tideline.core.phase import MOST_TABLES, MOST_VALUES, Folded, Phase, Replies, Table, Turn
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, field, record
from tideline.core.run import Role, World
from tideline.core.step import Outcome, Site, Step
from tideline.learning.evaluate import ROWS, C, M, Offer, Predict, S, T, predicted

NAME = "confusion"
OF_ALL = "confusion of all sites"
LONGEST = 80  # letters of a class name; with longer ones classes have their numbers
SHIFT_NAME = "label_shift"
SHARES = "share of each class at each site"
SHIFT = "label shift of each source (rows) and target"
TOGETHER = "all sources"


@record
class Confusion:
    """Held-out rows of a site by label and prediction; zeros without labels."""

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

    return Phase(NAME, Step(NAME, count, takes, keeps, Confusion, (), View.HELD_OUT), ask=offer, fold=fold_confusion)


def fold_confusion(state: S, replies: Replies[Confusion], turn: Turn[C]) -> S | Folded[S]:
    """The state unchanged, and a table for each site that had rows and for all of them together."""
    found = {str(site): reply.counts.double() for site, reply in replies.items()}
    seen = {site: counts for site, counts in found.items() if float(counts.sum())}
    tables = {f"{NAME} of {site}": counts for site, counts in seen.items()} if fits(len(seen) + 1, turn.world) else {}
    if len(seen) > 1 and fits(1, turn.world):
        tables[OF_ALL] = torch.stack(list(seen.values())).sum(0)
    return Folded(state, tables={name: table(counts, turn.world) for name, counts in tables.items()}) if tables else state


def fits(count: int, world: World) -> bool:
    return count <= MOST_TABLES and count * world.classes**2 <= MOST_VALUES


def class_names(world: World) -> tuple[str, ...]:
    known = world.class_names if all(len(name) <= LONGEST for name in world.class_names) else ()
    return known or tuple(map(str, range(world.classes)))


def table(counts: Tensor, world: World) -> Table:
    """A row for each class, a column for each that its rows were taken for."""
    names = class_names(world)
    values = tuple(tuple(map(float, row)) for row in counts.tolist())
    return Table(tuple(f"is {name}" for name in names), tuple(f"taken for {name}" for name in names), values)


@record
class Classes:
    """Training rows of a site by class."""

    counts: Tensor = field("classes", Exposure.COUNT, low=0, doc="training rows by label, or as the model takes them")


def label_shift(offer: Offer[S, C, Nothing], predict: Predict[Nothing, M, C], *, keeps: type[M]) -> Phase[C, S]:
    """A phase in which each asked client counts its training rows by class.

    offer and predict: as in `evaluate`; predict is asked for rows without labels alone.
    """

    def count(order: Nothing, memory: M, site: Site[C]) -> Outcome[Classes, M]:
        K = site.world.classes
        return Outcome(Classes(torch.bincount(labels_of(order, memory, site), minlength=K)), memory)

    def labels_of(order: Nothing, memory: M, site: Site[C]) -> Tensor:
        if site.data.y is not None:
            return site.data.y
        parts = (predict(order, memory, site, x).argmax(1).cpu() for x in torch.split(site.data.x, ROWS))
        return torch.cat(tuple(parts))

    return Phase(SHIFT_NAME, Step(SHIFT_NAME, count, Nothing, keeps, Classes, ()), ask=offer, fold=fold_shift)


def fold_shift(state: S, replies: Replies[Classes], turn: Turn[C]) -> S | Folded[S]:
    """The state unchanged, and tables: each site's shares, and how far those of each target are from each source's."""
    counts = {str(site): reply.counts.double() for site, reply in replies.items()}
    p = {site: each / each.sum() for site, each in counts.items() if float(each.sum())}
    sources, targets = ([c for c in map(str, turn.members(role)) if c in p] for role in (Role.SOURCE, Role.TARGET))
    if not sources or not targets or len(p) * (turn.world.classes + len(p)) > MOST_VALUES:
        return state
    everywhere = torch.stack([counts[name] for name in sources]).sum(0)
    taught = {name: p[name] for name in sources} | {TOGETHER: everywhere / everywhere.sum()}
    here = {name: p[name] for name in (*sources, *targets)}
    return Folded(state, tables={SHARES: shares(here, turn.world), SHIFT: far(taught, p, targets)})


def shares(p: Mapping[str, Tensor], world: World) -> Table:
    values = torch.stack(list(p.values()), dim=1)
    return Table(class_names(world), tuple(p), tuple(map(tuple, values.tolist())))


def far(taught: Mapping[str, Tensor], p: Mapping[str, Tensor], targets: list[str]) -> Table:
    """Total variation, 1/2 sum_k |p_k - q_k|: 0 where classes are as frequent here as there, 1 where none is in both."""
    values = tuple(tuple(min(1.0, float((q - p[t]).abs().sum() / 2)) for t in targets) for q in taught.values())
    return Table(tuple(taught), tuple(targets), values)
