"""The method, as a value: begin, prepare, plan. And its privacy contract, derived and never written by hand."""

from __future__ import annotations

import importlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from tideline.core.errors import ConfigRefused, NotFound
from tideline.core.phase import Phase, Plan
from tideline.core.privacy import TO_COORDINATOR, Clause, Contract, Exposure
from tideline.core.record import Nothing, Weights, leaves
from tideline.core.run import EMPTY, NO_MORE, Role, Roster, Scores, Scoring, Selection, World
from tideline.core.settings import Plain, nearest, parse
from tideline.core.step import Site

if TYPE_CHECKING:
    from torch import Generator, Tensor


R = TypeVar("R")
C = TypeVar("C")
S = TypeVar("S")
M = TypeVar("M")


@dataclass(frozen=True)
class InitialWeights(Generic[C, S]):
    """How a method begins from weights that the user gives. They fit the world's network: names, shapes and dtypes are checked.

    begin  the coordinator's first state, from them
    fits   refuses worlds and rosters that such a run cannot use, in place of the method's own (RosterRefused, ConfigRefused)
    notes  what such a run will do otherwise than it was asked, in sentences beside the method's own
    """

    begin: Callable[[C, World, Roster, Generator, Weights], S]
    fits: Callable[[C, World, Roster], None] = lambda config, world, roster: None
    notes: Callable[[C, World, Roster], tuple[str, ...]] = lambda config, world, roster: ()


@dataclass(frozen=True)
class Algorithm(Generic[C, S, M]):
    """One method. `config` is a frozen dataclass of settings that has `rounds`; `state` and `memory` are record types.

    begin   the coordinator's first state
    prepare a client's first memory, once per client and run
    plan    the phases, in order; repetition is tuple multiplication
    fits    refuses worlds and rosters that the method cannot use, before anybody is asked (RosterRefused, ConfigRefused)
    sizes   named dims that every message is held to beside the world's: those that a reply names and its order does not
    notes   what the method will do otherwise than it was asked, in sentences, such as a number that is rounded
    cast    the roles of a demonstration, as `casting` deals them
    network the network of a demonstration
    claims  what is and is not claimed of what leaves a site beyond the contract, in sentences for those who own data
    keepsakes   what a site's owner may take out of its memory, by name: arrays by name. Nothing of it is ever sent
    initial_weights   how it begins from weights that the user gives; None: a run with such weights is refused
    admins  whether its final state is for admins alone: it tells of single sites what their results do not
    """

    name: str
    paper: str
    summary: str
    config: type[C]
    state: type[S]
    begin: Callable[[C, World, Roster, Generator], S]
    plan: Callable[[C], Plan[C, S]]
    memory: type[M] = Nothing  # type: ignore[assignment]
    prepare: Callable[[C, Site[C]], M] = lambda config, site: Nothing()  # type: ignore[assignment, return-value]
    fits: Callable[[C, World, Roster], None] = lambda config, world, roster: None
    presets: Mapping[str, Mapping[str, Plain]] = field(default_factory=lambda: EMPTY)
    cast: tuple[Role, ...] = (Role.SOURCE, Role.TARGET)
    network: str = "lenet"
    keepsakes: Callable[[C, M], Mapping[str, Mapping[str, Tensor]]] = lambda config, memory: EMPTY
    notes: Callable[[C, World], tuple[str, ...]] = lambda config, world: ()
    sizes: Callable[[C, World], Mapping[str, int]] = lambda config, world: EMPTY
    claims: tuple[str, ...] = ()
    initial_weights: InitialWeights[C, S] | None = None
    admins: bool = False

    def configure(self, given: Mapping[str, Plain], preset: str | None = None) -> C:
        """The method's config from plain data over a preset. Raises ConfigRefused."""
        if preset is not None and preset not in self.presets:
            known = sorted(self.presets)
            what = f"{self.name} has no preset {preset!r}"
            raise ConfigRefused(what, f"Use one of: {', '.join(known)}{nearest(preset, known)}", path="preset")
        base = self.presets[preset] if preset else {}
        return parse(self.config, {**base, **given}, "config")

    def dims(self, config: C, world: World) -> dict[str, int]:
        """The sizes of named dims: the method's, and those that the world was given."""
        return {**self.sizes(config, world), **world.sizes}


def casting(cast: Sequence[R], n: int) -> tuple[R, ...]:
    middle = cast[1:-1] or cast[:1]
    between = (middle[i % len(middle)] for i in range(n - 2))
    return (*cast[:1], *between, cast[-1])[-n:]


AnyAlgorithm: TypeAlias = Algorithm[Any, Any, Any]


def plan_of(algorithm: Algorithm[C, S, M], config: C, scoring: Scoring = NO_MORE) -> Plan[C, S]:
    """The method's plan, in which scorings tell what the run asks of them: of each phase's name the last one, or every one."""
    plan = algorithm.plan(config)
    if scoring == NO_MORE:
        return plan
    last = {phase.name: at for at, phase in enumerate(plan)}

    def reports(at: int, phase: Phase[C, S]) -> Phase[C, S]:
        whole = scoring.scores is Scores.EVERY or (scoring.scores is Scores.LAST and last[phase.name] == at)
        more = whole or scoring.selection is not Selection.NONE
        return phase if phase.report is None or not more else phase.report(phase, whole, scoring.selection)

    return tuple(reports(at, phase) for at, phase in enumerate(plan))


def contract(algorithm: Algorithm[C, S, M], config: C, scoring: Scoring = NO_MORE) -> Contract:
    """Every field and metric that any phase's replies hold, in the order of the plan, without repeats."""
    return tuple(dict.fromkeys(itertools.chain.from_iterable(map(clauses, plan_of(algorithm, config, scoring)))))


def clauses(phase: Phase[C, S]) -> Iterator[Clause]:
    step = phase.step
    if step is None:
        return
    place = phase.name, step.name
    for leaf in leaves(step.gives):
        assert leaf.exposure is not None
        yield Clause(*place, leaf.path, leaf.dims, exposure=leaf.exposure, audience=leaf.audience, doc=leaf.doc)
    for name in step.metrics:
        yield Clause(
            *place, f"metrics.{name}", dims="", exposure=Exposure.METRIC, audience=TO_COORDINATOR, doc="one number per reply"
        )


def rounds_of(plan: Plan[C, S]) -> tuple[int, ...]:
    """For each place in a plan, 1 + the number of earlier phases of the same name."""
    count: defaultdict[str, Iterator[int]] = defaultdict(lambda: itertools.count(1))
    return tuple(next(count[phase.name]) for phase in plan)


def round_of(plan: Plan[C, S], cursor: int) -> int:
    """1 + the number of earlier phases of the same name."""
    return 1 + sum(1 for phase in plan[:cursor] if phase.name == plan[cursor].name)


Methods = tuple[tuple[str, str], ...]


def resolve(methods: Methods, name: str) -> AnyAlgorithm:
    """The method of a name. Raises NotFound with the names that exist, ConfigRefused where its place holds no method."""
    places = dict(methods)
    if name not in places:
        known = sorted(places)
        raise NotFound(f"There is no method {name!r}", f"Use one of: {', '.join(known)}{nearest(name, known)}", path="method")
    found = attribute(places[name], f"The method {name!r}")
    if not isinstance(found, Algorithm):
        raise ConfigRefused(f"The method {name!r}: {places[name]} is no Algorithm", "Correct the registry tuple", path="method")
    return found


def attribute(place: str, whose: str) -> object:
    """What stands at "module:attribute". Raises ConfigRefused with the reason."""
    module, _, name = place.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError, TypeError) as cause:
        raise ConfigRefused(f"{whose}: {place}: {cause}", "Write it as MODULE:NAME, importable here", path="method") from cause


def load_methods(place: str) -> Methods:
    """A registry tuple that an operator chose with `--methods MODULE:TUPLE`. Raises ConfigRefused."""
    found = attribute(place, "--methods")
    shape = (tuple, str, str)  # of a row
    if not isinstance(found, tuple) or any((type(row), *map(type, row)) != shape for row in found):
        raise ConfigRefused(f"--methods {place} is not a tuple of (name, 'module:attribute')", "See tideline.algorithms.METHODS")
    names = [name for name, _ in found]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise ConfigRefused(f"--methods {place} names {twice[0]!r} twice", "Give each method a name of its own")
    return found
