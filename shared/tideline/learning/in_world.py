"""A method in its run: where rows are normalised by statistics that are found in the run, these have their place.

So have the medians by which missing cells are filled (`tideline.learning.around.medians`), and the shares of classes by which
targets' predictions are corrected (`tideline.learning.around.class_shares`). No method knows of any of them
(`tideline.learning.around.beside`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

from torch import Tensor

from tideline.core.algorithm import NORMALISE, AnyAlgorithm, contract
from tideline.core.asked.normalise import NO_SCALING, Normalise, Place, Scaling
from tideline.core.asked.scoring import Prior
from tideline.core.asked.world import HeadWorld, World
from tideline.core.errors import ConfigRefused, DataRefused, RosterRefused
from tideline.core.phase import AnyPhase, Phase, Replies, Turn
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, field, record
from tideline.core.run import ClientId, Roster
from tideline.core.settings import Settings
from tideline.core.step import Outcome, Site, Step, View
from tideline.core.tables.columns import code_places
from tideline.learning.around import class_shares, medians
from tideline.learning.around.beside import FEWEST, Beside, remembering, sharing
from tideline.learning.loading.ahead import ticking
from tideline.learning.normalising import LEAST, Statistics, by_moments, check_place, moments_of, same
from tideline.nets.partial import PartWorld
from tideline.numerics.alignment import normalising as numeric

STATISTICS = Beside("normalised_by", Statistics, "what rows are normalised by, once it is known")


def statistics_in(value: object) -> Statistics | None:
    """Those beside a memory, a state or a message, or of a site; None where there are none, or not yet."""
    found: Statistics | None = STATISTICS.found(value)
    return found


def in_world(
    algorithm: AnyAlgorithm, scaling: Normalise = NO_SCALING, prior: Prior = Prior.SOURCE, fills: bool = False
) -> AnyAlgorithm:
    """The method as it is played where rows are normalised, targets' predictions corrected and missing cells filled like this."""
    made = algorithm
    if scaling.kind.found and algorithm.memory is not Nothing:
        made = remembering(made, STATISTICS, statistics_in, lambda site, outcome, before: statistics_in(site), same)
    if scaling.kind is Scaling.SHARED:
        made = sharing(made, STATISTICS, measuring, lambda world: {"normalised": numbers(world, scaling.at)})
    made = class_shares.correcting(made) if prior is Prior.EM else made
    return medians.filling(made) if fills else made


QUIET = (Exposure.METRIC, Exposure.COUNT)
ALONE = "world.normalise is shared, which pools what labelled sites tell; what one tells would reach the others, and there {are}"
INSTEAD = "Name two labelled sites or more, or write normalise: site, or none"


def normalised_world(algorithm: AnyAlgorithm, config: Settings, world: World, roster: Roster, weights: bool) -> World:
    """The world with what its rows are normalised by, where nobody said it: vectors have columns of any scale, images have not.

    shared; site, where fewer than two sites may have labels; none, where weights are brought, which are of rows as these are, or
    the method itself sends nothing of rows. weights: whether the run brings some. Raises ConfigRefused for what cannot be.
    """
    labelled = sum(member.labelled for member in roster)
    medians.check_sites(world, roster)
    if world.normalise is None and len(world.inputs) == 1 and not world.tokens:
        quiet = all(clause.exposure in QUIET for clause in contract(algorithm, config))
        kind = Scaling.SHARED if labelled >= FEWEST else Scaling.SITE
        return replace(world, normalise=Normalise(Scaling.NONE if weights or quiet else kind))
    if world.scaling.kind is Scaling.SHARED and labelled < FEWEST:
        raise ConfigRefused(ALONE.format(are=said(labelled)), INSTEAD, path="world.normalise")
    check_place(world)
    return world


def said(labelled: int) -> str:
    return "is one" if labelled else "is none"


@record
class Moments:
    """Of the rows that a site trains on, for each channel of images or number of vectors."""

    count: int = field("", Exposure.COUNT, low=0, doc="number of rows")
    mean: Tensor = field("normalised", Exposure.STATISTIC, doc="mean of each number, or channel, of the rows")
    spread: Tensor = field("normalised", Exposure.STATISTIC, low=0, doc="standard deviation of each")


def numbers(world: World, at: Place) -> int:
    """How many numbers, or channels, are normalised. world: as the method sees it."""
    seen = world.inner if isinstance(world, PartWorld) else world
    whole = seen.whole if isinstance(seen, HeadWorld) and at is Place.INPUTS else seen
    return whole.inputs[0]


def measuring(memory: type[Any], sampled: bool) -> AnyPhase:
    """The exchange before all others. A run that samples sites pools the moments of those that it draws."""

    def run(order: Nothing, memory: Any, site: Site[Any]) -> Outcome[Moments, Any]:
        rows = site.data.x
        of = moments_of(ticking(rows, site), rows.shape[0])
        return Outcome(Moments(of.count, of.mean, of.variance.sqrt()), memory)

    step = Step(name=NORMALISE, run=run, takes=Nothing, keeps=memory, gives=Moments, view=View.LEARN)
    return Phase(NORMALISE, step, ask=asked, fold=pooled, sampled=sampled, floor=FEWEST, needs="a mean of several sites")


def asked(state: Any, turn: Turn[Any]) -> dict[ClientId, Nothing]:
    """All sites with labels. Raises RosterRefused for fewer than two: some that were to have labels have none."""
    sites = turn.labelled()
    if len(sites) < FEWEST:
        raise RosterRefused(ALONE.format(are=said(len(sites))), INSTEAD, path="world.normalise")
    return dict.fromkeys(sites, Nothing())


def pooled(state: Any, replies: Replies[Moments], turn: Turn[Any]) -> Any:
    """The moments of all rows together. Raises DataRefused for fewer than two of them."""
    of = reduce(add, (numeric.Moments(each.count, each.mean, each.spread.square()) for each in replies.values()))
    if of.count < LEAST:
        what = f"The labelled sites have {of.count} rows to train on in all, of which there is no mean and spread"
        raise DataRefused(what, "Give them rows, or write normalise: none")
    at_inputs = turn.world.scaling.at is Place.INPUTS
    by = by_moments(of, code_places(turn.world.columns) if at_inputs else ())
    return replace(state, **{STATISTICS.name: by})
