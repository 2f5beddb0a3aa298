"""A method with its settings, and what follows from them: worked out once, as every order needs it.

And whether it takes the rows of a run's world: said before anybody is asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from tideline.archive.wire.packing import Packing
from tideline.core.algorithm import AnyAlgorithm, Methods, contract, plan_of, resolve, rounds_of
from tideline.core.asked.computing import Computing, Precision
from tideline.core.asked.normalise import Normalise
from tideline.core.asked.private import Privacy
from tideline.core.asked.scoring import NO_MORE, Scoring, Selection
from tideline.core.asked.secure import SecureSums
from tideline.core.asked.wire import NO_WIRE, Format, Wire
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.core.phase import AnyPhase, AnyPlan
from tideline.core.privacy import Contract, Exposure
from tideline.core.recent import Recent
from tideline.core.rows import Takes, described
from tideline.core.run import Roster
from tideline.core.settings import Plain, Settings
from tideline.core.step import View
from tideline.engine.compute.sums.phases import summed_in
from tideline.engine.model.orders import Purpose, seed_for
from tideline.learning.around.clipping import adapting
from tideline.learning.in_world import in_world

Fits = Callable[[Settings, World, Roster], None]


@dataclass(frozen=True)
class Configured:
    """A method with its settings, and what a run asks of its scorings."""

    algorithm: AnyAlgorithm
    config: Settings
    scoring: Scoring = NO_MORE
    wire: Wire = NO_WIRE
    privacy: Privacy | None = None
    sums: SecureSums | None = None

    @cached_property
    def plan(self) -> AnyPlan:
        plan: AnyPlan = plan_of(self.algorithm, self.config, self.scoring)
        return plan

    @cached_property
    def rounds(self) -> tuple[int, ...]:
        """The round of each place in the plan."""
        return rounds_of(self.plan)

    @cached_property
    def sampled(self) -> bool:
        """Whether a run may ask a part of the sites: of an exchange that does more than score."""
        return any(phase.sampled and not scores(phase) for phase in self.plan)

    @cached_property
    def last_scoring(self) -> int | None:
        """The place of the last scoring that may be sampled."""
        return max((at for at, phase in enumerate(self.plan) if phase.sampled and scores(phase)), default=None)

    @cached_property
    def contract(self) -> Contract:
        return contract(self.algorithm, self.config, self.scoring, self.wire, self.privacy)

    @cached_property
    def packing(self) -> Packing | None:
        """How orders travel, and what follows for their replies; None where all is as it is."""
        return Packing(self.wire, up=False) if self.wire.on else None

    def packing_at(self, seed: int, cursor: int) -> Packing | None:
        """How the coordinator writes the orders of a place in the plan. seed: of the run."""
        return self.packing and replace(self.packing, seed=seed_for(seed, Purpose.WIRE, cursor))

    @cached_property
    def wire_notes(self) -> tuple[str, ...]:
        """What the run's wire does not do that one could expect of it."""
        if self.wire.format is Format.FLOAT32 or any(clause.wire for clause in self.contract):
            return ()
        if any(clause.exposure is Exposure.WEIGHTS for clause in self.contract):
            return ("wire.format is topk, and no reply has a difference that it could be of: all weights travel as float32",)
        return (f"wire.format is {self.wire.format}, and no reply of {self.algorithm.name} has any weights",)


LATELY: Recent[Configured] = Recent(16)
UNSAID = World()


def scores(phase: AnyPhase) -> bool:
    """Whether a phase looks at held-out rows alone."""
    return phase.step is not None and phase.step.view is View.HELD_OUT


def configured(
    methods: Methods,
    method: str,
    config: Mapping[str, Plain],
    scoring: Scoring = NO_MORE,
    world: World = UNSAID,
    wire: Wire = NO_WIRE,
    privacy: Privacy | None = None,
    sums: SecureSums | None = None,
) -> Configured:
    """A method with the settings of a run, made once for equal ones. Raises NotFound, ConfigRefused."""
    more = methods, method, (scoring, wire, privacy, sums), world.scaling, world.fills
    return LATELY.of(config, lambda: known(json.dumps(config, default=dict), *more), *more)


@lru_cache(32)
def known(
    config: str,
    methods: Methods,
    method: str,
    asked: tuple[Scoring, Wire, Privacy | None, SecureSums | None],
    scaling: Normalise,
    fills: bool,
) -> Configured:
    scoring, wire, privacy, sums = asked
    selects, follows = scoring.selection is not Selection.NONE, privacy is not None and privacy.follows
    algorithm = summed_in(resolve(methods, method), sums, privacy is not None, selects)
    algorithm = adapting(in_world(algorithm, scaling, scoring.prior, fills), follows)
    settings = algorithm.configure(json.loads(config))
    return Configured(algorithm=algorithm, config=settings, scoring=scoring, wire=wire, privacy=privacy, sums=sums)


def check_computing(computing: Computing | None, algorithm: AnyAlgorithm) -> None:
    """Raises ConfigRefused for scaled gradients and added mini-batches where a method steps in a loop of its own."""
    if computing is None or not algorithm.own_loop:
        return
    own = f"{algorithm.name} trains in a loop of its own, which"
    if computing.precision is Precision.FLOAT16:
        what = f"computing.precision is float16, and {own} does not scale the gradients that float16 needs scaled"
        raise ConfigRefused(what, "Use precision: bfloat16, which needs no scaling", path="computing.precision")
    if computing.accumulate > 1:
        what = f"computing.accumulate is {computing.accumulate}, and {own} steps after each mini-batch"
        raise ConfigRefused(what, "Leave accumulate out, and set config.batch", path="computing.accumulate")


def check_selection(method: Configured) -> None:
    """Raises ConfigRefused for a selection by a method whose scorings tell no score to select by."""
    if method.scoring.selection is not Selection.NONE and all(phase.report is None for phase in method.plan):
        what = f"{method.algorithm.name} scores in a way of its own, and tells no score to select a round by"
        raise ConfigRefused(what, "Leave selection out", path="selection")


def taking(algorithm: AnyAlgorithm, fits: Fits, methods: Methods) -> Fits:
    """What holds world and roster to the method, which looks at the rows first."""

    def both(settings: Settings, world: World, roster: Roster) -> None:
        check_takes(algorithm, settings, world, methods)
        fits(settings, world, roster)

    return both


def check_takes(algorithm: AnyAlgorithm, settings: Settings, world: World, methods: Methods) -> None:
    """Raises ConfigRefused for rows that the method does not take, with the names of those that do. world: as it sees it."""
    takes: Takes = algorithm.takes(settings)
    if takes.fits(world):
        return
    known = [resolve(methods, name) for name, _ in methods]
    others = ", ".join(each.name for each in known if each.takes(each.configure({})).fits(world))
    why = f": it {takes.why}" if takes.why else ""
    what = f"world.inputs is {list(world.inputs)}, {described(world)}; {algorithm.name} takes {takes.words}{why}"
    raise ConfigRefused(what, f"Use one of: {others}", path="world.inputs")
