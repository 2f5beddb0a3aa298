"""A method in a run's world: where its rows are normalised by statistics that are found in the run, these have their place.

No method knows of it. Its records get a field more, and its steps and folds see them without. Pooled statistics stand in the
state, so that they are kept, restored and computed again with it, and in each message, so that no site needs an earlier one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import replace
from functools import cache, reduce
from operator import add
from typing import Any, TypeVar, cast

from torch import Tensor

from tideline.core.algorithm import NORMALISE, AnyAlgorithm, contract
from tideline.core.errors import ConfigRefused, DataRefused, RosterRefused
from tideline.core.phase import AnyPhase, AnyPlan, Each, Folded, Phase, Replies, Turn, folded
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, Record, field, record, specs
from tideline.core.rows import Rows
from tideline.core.run import NO_SCALING, ClientId, HeadWorld, Normalise, Place, Roster, Scaling, World
from tideline.core.settings import Settings
from tideline.core.step import AnyStep, Outcome, Site, Step, View
from tideline.learning.normalising import LEAST, Statistics, by_moments, check_place, moments_of, same
from tideline.nets.partial import PartWorld
from tideline.numerics.alignment import normalising as moments

R = TypeVar("R", bound=Record)
BESIDE = "normalised_by"


def beside(kind: type[Any]) -> type[Any]:
    """A record type with the statistics beside its own fields, whose names stay: replies are held to them."""
    return extended(cast(Hashable, kind))


@cache
def extended(kind: Any) -> type[Any]:
    more = (BESIDE, Statistics | None, field(doc="what rows are normalised by, once it is known"))
    made = dataclasses.make_dataclass(kind.__name__, [more], bases=(kind,), frozen=True, eq=False, kw_only=True)
    made.__record__ = True  # type: ignore[attr-defined]
    return made


def joined(value: Any, by: Statistics | None) -> Any:
    return beside(type(value))(**{spec.name: getattr(value, spec.name) for spec in specs(type(value))}, **{BESIDE: by})


def bare(value: Any, kind: type[R]) -> R:
    """The method's own record."""
    return kind(**{spec.name: getattr(value, spec.name) for spec in specs(kind)})


def statistics_in(value: object) -> Statistics | None:
    """Those beside a memory, a state or a message, or of a site; None where there are none, or not yet."""
    found = getattr(value, BESIDE, None)
    return found if isinstance(found, Statistics) else None


def in_world(algorithm: AnyAlgorithm, scaling: Normalise = NO_SCALING) -> AnyAlgorithm:
    """The method as it is played where rows are normalised like this."""
    kept = keeping(algorithm) if scaling.kind.found and algorithm.memory is not Nothing else algorithm
    return sharing(kept, scaling.at) if scaling.kind is Scaling.SHARED else kept


QUIET = (Exposure.METRIC, Exposure.COUNT)
FEWEST = 2  # labelled sites whose moments are pooled: those of one would reach the others as they are
ALONE = "world.normalise is shared, which pools what labelled sites tell; what one tells would reach the others, and there {are}"
INSTEAD = "Name two labelled sites or more, or write normalise: site, or none"


def settled(algorithm: AnyAlgorithm, config: Settings, world: World, roster: Roster, weights: bool) -> World:
    """The world with what its rows are normalised by, where nobody said it: vectors have columns of any scale, images have not.

    shared; site, where fewer than two sites may have labels; none, where weights are brought, which are of rows as these are, or
    the method itself sends nothing of rows. weights: whether the run brings some. Raises ConfigRefused for what cannot be.
    """
    labelled = sum(member.labelled for member in roster)
    if world.normalise is None and len(world.inputs) == 1:
        quiet = all(clause.exposure in QUIET for clause in contract(algorithm, config))
        kind = Scaling.SHARED if labelled >= FEWEST else Scaling.SITE
        return replace(world, normalise=Normalise(Scaling.NONE if weights or quiet else kind))
    if world.scaling.kind is Scaling.SHARED and labelled < FEWEST:
        raise ConfigRefused(ALONE.format(are=said(labelled)), INSTEAD, path="world.normalise")
    check_place(world)
    return world


def said(labelled: int) -> str:
    return "is one" if labelled else "is none"


def keeping(algorithm: AnyAlgorithm) -> AnyAlgorithm:
    """A method whose sites remember beside its own memory what their rows were normalised by: their models need it."""
    own = algorithm.memory

    def prepare(config: Settings, site: Site[Settings]) -> Any:
        return joined(algorithm.prepare(config, site), statistics_in(site))

    def remembering(step: AnyStep) -> AnyStep:
        def run(order: Any, memory: Any, site: Site[Any]) -> Outcome[Any, Any]:
            mine, by = bare(memory, own), statistics_in(site)
            made = step.run(order, mine, site)
            if type(made.memory) is not own:
                return made  # which is refused
            kept = made.memory is mine and same(statistics_in(memory), by)
            return replace(made, memory=memory if kept else joined(made.memory, by))

        return replace(step, run=run, keeps=beside(own))

    def around(plan: AnyPlan) -> AnyPlan:
        return algorithm.around(tuple(stepping(phase, remembering) for phase in plan))

    return replace(algorithm, memory=beside(own), prepare=prepare, around=around)


def stepping(phase: AnyPhase, made: Callable[[AnyStep], AnyStep]) -> AnyPhase:
    """The same phase with its step made another, if it has one."""
    return phase if phase.step is None else replace(phase, step=made(phase.step))


@record
class Moments:
    """Of the rows that a site trains on, for each channel of images or number of vectors."""

    count: int = field("", Exposure.COUNT, low=0, doc="number of rows")
    mean: Tensor = field("normalised", Exposure.STATISTIC, doc="mean of each number, or channel, of the rows")
    spread: Tensor = field("normalised", Exposure.STATISTIC, low=0, doc="standard deviation of each")


def sharing(algorithm: AnyAlgorithm, at: Place) -> AnyAlgorithm:
    """A method whose labelled sites tell the moments of their rows first; all sites' rows are normalised by the pooled ones."""

    def begin(*given: Any) -> Any:
        return joined(algorithm.begin(*given), None)

    def sizes(config: Settings, world: World) -> Mapping[str, int]:
        return {**algorithm.sizes(config, world), "normalised": numbers(world, at)}

    def around(plan: AnyPlan) -> AnyPlan:
        own = algorithm.around(plan)
        return (measuring(algorithm.memory, any(map(sampled, own))), *(bringing(phase, algorithm.state) for phase in own))

    starts = algorithm.initial_weights
    if starts is not None:
        own = starts.begin
        starts = replace(starts, begin=lambda *given: joined(own(*given), None))
    return replace(algorithm, state=beside(algorithm.state), begin=begin, initial_weights=starts, sizes=sizes, around=around)


def numbers(world: World, at: Place) -> int:
    """How many numbers, or channels, are normalised. world: as the method sees it."""
    seen = world.inner if isinstance(world, PartWorld) else world
    whole = seen.whole if isinstance(seen, HeadWorld) and at is Place.INPUTS else seen
    return whole.inputs[0]


def sampled(phase: AnyPhase) -> bool:
    """Whether a phase that does more than score may ask a part of the sites."""
    return phase.sampled and phase.step is not None and phase.step.view is not View.HELD_OUT


def measuring(memory: type[Any], sampled: bool) -> AnyPhase:
    """The exchange before all others. A run that samples sites pools the moments of those that it draws."""

    def run(order: Nothing, memory: Any, site: Site[Any]) -> Outcome[Moments, Any]:
        rows = site.data.x
        of = moments_of(ticking(rows, site), rows.shape[0])
        return Outcome(Moments(of.count, of.mean, of.variance.sqrt()), memory)

    step = Step(name=NORMALISE, run=run, takes=Nothing, keeps=memory, gives=Moments, view=View.LEARN)
    return Phase(NORMALISE, step, ask=asked, fold=pooled, sampled=sampled, floor=FEWEST, needs="a mean of several sites")


def ticking(rows: Rows, site: Site[Any]) -> Iterator[Tensor]:
    """All parts of rows, with a sign of life at each."""
    done = 0
    for part in rows.parts():
        yield part
        done += len(part)
        site.tick(done / max(len(rows), 1))


def asked(state: Any, turn: Turn[Any]) -> dict[ClientId, Nothing]:
    """All sites with labels. Raises RosterRefused for fewer than two: some that were to have labels have none."""
    sites = turn.labelled()
    if len(sites) < FEWEST:
        raise RosterRefused(ALONE.format(are=said(len(sites))), INSTEAD, path="world.normalise")
    return dict.fromkeys(sites, Nothing())


def pooled(state: Any, replies: Replies[Moments], turn: Turn[Any]) -> Any:
    """The moments of all rows together. Raises DataRefused for fewer than two of them."""
    of = reduce(add, (moments.Moments(each.count, each.mean, each.spread.square()) for each in replies.values()))
    if of.count < LEAST:
        what = f"The labelled sites have {of.count} rows to train on in all, of which there is no mean and spread"
        raise DataRefused(what, "Give them rows, or write normalise: none")
    return replace(state, **{BESIDE: by_moments(of)})


def bringing(phase: AnyPhase, own: type[Any]) -> AnyPhase:
    """The method's phase over its own state, whose messages bring the statistics beside."""

    def ask(state: Any, turn: Turn[Any]) -> Mapping[ClientId, Any]:
        orders, by = phase.ask(bare(state, own), turn), statistics_in(state)
        if isinstance(orders, Each):
            return Each(orders, lambda client: joined(orders[client], by))
        once = {id(order): joined(order, by) for order in {id(each): each for each in orders.values()}.values()}
        return {client: once[id(order)] for client, order in orders.items()}

    def next_state(state: Any, replies: Replies[Any], turn: Turn[Any]) -> Folded[Any]:
        made = folded(phase.fold(bare(state, own), replies, turn))
        return replace(made, state=joined(made.state, statistics_in(state)))

    made = replace(phase, ask=ask, fold=next_state, skip=lambda state: phase.skip(bare(state, own)))
    return stepping(made, reading)


def reading(step: AnyStep) -> AnyStep:
    """A step whose message brings the statistics, and that sees its own without; its rows are normalised already."""
    takes = step.takes

    def run(order: Any, memory: Any, site: Site[Any]) -> Outcome[Any, Any]:
        return step.run(bare(order, takes), memory, site)

    return replace(step, run=run, takes=beside(takes))
