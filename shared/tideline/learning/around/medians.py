"""The median of a column over sites, by which its missing cells are filled: what the labelled sites tell for it, and how they
are pooled.

Each tells its own median and how many cells it is of; the pooled one is their weighted median, so that no site of wild numbers
moves it beyond the others' medians. No row is sent; but a median is the number of one of the rows that it is of.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tideline.core.algorithm import MEDIANS, AnyAlgorithm
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, DataRefused, RosterRefused
from tideline.core.phase import AnyPhase, Phase, Replies, Turn
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, field, record
from tideline.core.run import ClientId, Roster
from tideline.core.step import Outcome, Site, Step, View
from tideline.core.tables.columns import filled_places
from tideline.learning.around.beside import FEWEST, Beside, remembering, sharing
from tideline.learning.loading.ahead import ticking
from tideline.learning.rows.filled import Medians, cells_of, medians_of, same

FILLED_BY = Beside("filled_by", Medians, "what missing cells are filled by, once it is known")
LEAST = 5  # known cells of a column, below which a site tells no median of it, whatever its owner's floor is
ALONE = (
    "world.columns have missing: median, which pools what labelled sites tell; what one tells would reach the others, and {are}"
)
INSTEAD = "Name two labelled sites or more, or write missing: indicator, of which nothing leaves"


def medians_in(value: object) -> Medians | None:
    """Those beside a memory, a state or a message, or of a site; None where there are none, or not yet."""
    found: Medians | None = FILLED_BY.found(value)
    return found


def filling(algorithm: AnyAlgorithm) -> AnyAlgorithm:
    """A method whose labelled sites tell medians before all else, by which everybody's missing cells are filled."""
    made = algorithm
    if algorithm.memory is not Nothing:
        made = remembering(made, FILLED_BY, medians_in, lambda site, outcome, before: medians_in(site), same)
    return sharing(made, FILLED_BY, telling, lambda world: {"filled": len(filled_places(world.columns))})


def check_sites(world: World, roster: Roster) -> None:
    """Raises ConfigRefused where the medians of one labelled site would be told."""
    labelled = sum(member.labelled for member in roster)
    if world.fills and labelled < FEWEST:
        raise ConfigRefused(ALONE.format(are=said(labelled)), INSTEAD, path="world.columns")


def said(labelled: int) -> str:
    return "there is one" if labelled else "there is none"


@record
class OwnMedians:
    """Of the rows that a site trains on, for each column whose missing cells are filled."""

    cells: Tensor = field("filled", Exposure.COUNT, low=0, doc="known cells of each column; 0 where they are too few to tell")
    medians: Tensor = field("filled", Exposure.STATISTIC, doc="the median of each column's known cells, the number of one row")


def telling(memory: type[Any], sampled: bool) -> AnyPhase:
    """The exchange before all others. A run that samples sites pools the medians of those that it draws."""

    def run(order: Nothing, memory: Any, site: Site[Any]) -> Outcome[OwnMedians, Any]:
        cells = cells_of(ticking(site.data.x, site), filled_places(site.world.columns))
        return Outcome(OwnMedians(*medians_of(cells, max(LEAST, site.least_rows))), memory)

    step = Step(name=MEDIANS, run=run, takes=Nothing, keeps=memory, gives=OwnMedians, view=View.LEARN)
    return Phase(MEDIANS, step, ask=asked, fold=pooled, sampled=sampled, floor=FEWEST, needs="medians of several sites")


def asked(state: Any, turn: Turn[Any]) -> dict[ClientId, Nothing]:
    """All sites with labels. Raises RosterRefused for fewer than two: some that were to have labels have none."""
    sites = turn.labelled()
    if len(sites) < FEWEST:
        raise RosterRefused(ALONE.format(are=said(len(sites))), INSTEAD, path="world.columns")
    return dict.fromkeys(sites, Nothing())


def pooled(state: Any, replies: Replies[OwnMedians], turn: Turn[Any]) -> Any:
    """The weighted medians. Raises DataRefused for a column of which no site has enough known cells."""
    several = list(replies.values())
    counts, values = torch.stack([each.cells for each in several]), torch.stack([each.medians for each in several])
    empty = [column.name for column, known in zip(fillable(turn.world), counts.sum(0).tolist(), strict=True) if not known]
    if empty:
        what = f"No labelled site has enough known cells of the column {empty[0]!r} to tell their median"
        raise DataRefused(what, "Let the world give this column missing: indicator, or leave it out")
    return replace(state, **{FILLED_BY.name: Medians(weighted_median(values.double(), counts.double()))})


def fillable(world: World) -> list[Any]:
    return [column for column in world.columns if column.fills]


def weighted_median(values: Tensor, weights: Tensor) -> Tensor:
    """Of s sites (s, p) -> (p,): the least value with half of the weights at it or below."""
    order = values.argsort(stable=True, dim=0)
    below = weights.gather(0, order).cumsum(0)
    at = (below >= below[-1:] / 2).int().argmax(0, keepdim=True)
    return values.gather(0, order).gather(0, at)[0]
