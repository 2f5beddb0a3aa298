"""Whether classes are as frequent at a target as at the sources, as a phase in the end: rows, counted at the site by class.

Aligning features of sites whose classes are dealt otherwise pulls rows across classes (Zhao et al., "On Learning Invariant
Representations for Domain Adaptation", ICML 2019). A site without labels counts what its model takes its rows for.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from tideline.core.phase import MOST_VALUES, Folded, Phase, Replies, Table, Turn
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, field, record
from tideline.core.run import Role, World
from tideline.core.step import Outcome, Site, Step
from tideline.learning.confusion import class_names
from tideline.learning.evaluate import ROWS, C, M, Offer, Predict, S

NAME = "label_shift"
SHARES = "share of each class at each site"
SHIFT = "label shift of each source (rows) and target"
TOGETHER = "all sources"


@record
class Classes:
    """What a site tells of its training rows."""

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

    return Phase(NAME, Step(name=NAME, run=count, takes=Nothing, keeps=keeps, gives=Classes, metrics=()), ask=offer, fold=told)


def told(state: S, replies: Replies[Classes], turn: Turn[C]) -> S | Folded[S]:
    """The state as it is; for people each site's shares, and how far those of each target are from each source's."""
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
    """A row for each class, a column for each site."""
    values = torch.stack(list(p.values()), dim=1)
    return Table(class_names(world), tuple(p), tuple(map(tuple, values.tolist())))


def far(taught: Mapping[str, Tensor], p: Mapping[str, Tensor], targets: list[str]) -> Table:
    """Total variation, 1/2 sum_k |p_k - q_k|: 0 where classes are as frequent here as there, 1 where none is in both."""
    values = tuple(tuple(min(1.0, float((q - p[t]).abs().sum() / 2)) for t in targets) for q in taught.values())
    return Table(tuple(taught), tuple(targets), values)
