"""The method, as a value: begin, prepare, plan. And its privacy contract, derived and never written by hand."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from tideline.core.asked.forms import form_up
from tideline.core.asked.private import Privacy
from tideline.core.asked.scoring import NO_MORE, Scores, Scoring, Selection
from tideline.core.asked.wire import NO_WIRE, Wire
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, NotFound
from tideline.core.phase import Phase, Plan, Tells, Turn
from tideline.core.privacy import TO_COORDINATOR, Clause, Contract, Exposure
from tideline.core.record import Nothing, Weights, holds_rows, leaves
from tideline.core.rows import ANYTHING, Takes
from tideline.core.run import ClientId, Role, Roster
from tideline.core.settings import EMPTY, Plain, nearest, parse
from tideline.core.step import Outcome, Site, Step

if TYPE_CHECKING:
    from torch import Generator, Tensor


R = TypeVar("R")
C = TypeVar("C")
S = TypeVar("S")
M = TypeVar("M")
C_contra = TypeVar("C_contra", contravariant=True)
S_contra = TypeVar("S_contra", contravariant=True)
M_contra = TypeVar("M_contra", contravariant=True)


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


NETWORK = "network"  # the form of a model that is the world's network as it is


@dataclass(frozen=True)
class RunModel(Generic[C_contra, S_contra]):
    """The run's model, one for all of its sites, in the coordinator's final state.

    of       its weights by name; empty where a run with these settings ends in none
    form     what is built of the world's network to hold them, a name in tideline.nets.forms
    options  of that form, by the settings
    differs  how its predictions differ from those that the result's accuracies are of, in a sentence; empty: they do not
    """

    of: Callable[[C_contra, World, S_contra], Weights]
    form: str = NETWORK
    options: Callable[[C_contra], Mapping[str, Plain]] = lambda config: EMPTY
    differs: Callable[[C_contra], str] = lambda config: ""


@dataclass(frozen=True)
class SiteModels(Generic[C_contra, S_contra, M_contra]):
    """A model of each site's own: in the site's memory, in the coordinator's final state, or in both.

    of       at a site, from its memory: weights by name, empty before it has a model. None: its memory has none
    known    at the coordinator, from its final state and a site's name: empty for a site without one. None: it has none
    roles    whose sites have one
    form     what is built of the world's network to hold them, a name in tideline.nets.forms
    options  of that form, by the settings
    """

    of: Callable[[C_contra, World, M_contra], Weights] | None = None
    known: Callable[[C_contra, World, S_contra, str], Weights] | None = None
    roles: tuple[Role, ...] = (Role.TARGET,)
    form: str = NETWORK
    options: Callable[[C_contra], Mapping[str, Plain]] = lambda config: EMPTY


@dataclass(frozen=True)
class NoModel:
    """The method ends in no model. why: the reason, in a sentence for whoever asks for one."""

    why: str


Result: TypeAlias = tuple[RunModel[C, S] | SiteModels[C, S, M] | NoModel, ...]


class Unlike(StrEnum):
    """How the sites of a demonstration differ: by styles of digits, or by which way up they see those of one style."""

    STYLES = "styles"
    TURNED = "turned"


@dataclass(frozen=True)
class Algorithm(Generic[C, S, M]):
    """One method. `config` is a frozen dataclass of settings that has `rounds`; `state` and `memory` are record types.

    begin   the coordinator's first state
    prepare a client's first memory, once per client and run
    plan    the phases, in order; repetition is tuple multiplication
    fits    refuses worlds and rosters that the method cannot use, before anybody is asked (RosterRefused, ConfigRefused)
    takes   which rows it takes, with these settings; whoever says nothing takes any that the network takes
    sizes   named dims that every message is held to beside the world's: those that a reply names and its order does not
    notes   what the method will do otherwise than it was asked, in sentences, such as a number that is rounded
    cast    the roles of a demonstration, as `casting` deals them
    unlike  how the sites of a demonstration differ
    extra_rounds    of averaging beside a demonstration: as long as labelled sites train beside the rounds of the preset `demo`
    network the network of a demonstration
    claims  what is and is not claimed of what leaves a site beyond the contract, in sentences for those who own data
    keepsakes   what a site's owner may take out of its memory, by name: arrays by name. Nothing of it is ever sent
    initial_weights   how it begins from weights that the user gives; None: a run with such weights is refused
    admins  whether its final state is for admins alone: it tells of single sites what their results do not
    augments    whether its sites train on rows, so that a run may have images changed at random
    result  what models a run ends in: of the run, of each site, both, or none. Every registered method says so
    own_loop whether sites step networks in a loop of the method's own, which neither scales gradients nor adds up mini-batches
    privately   what it does otherwise in runs that protect rows, in sentences
    unprotected why none of its runs can protect rows, in a clause; empty: those can whose exchanges all have a price
    summed  what is played in its place where sums are secure, under its name and with its settings: of a method whose state,
            messages or result tell of single sites otherwise; None: the method itself
    around  what a run's world does to the whole plan (tideline.learning.in_world); no method says it
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
    takes: Callable[[C], Takes] = lambda config: ANYTHING
    presets: Mapping[str, Mapping[str, Plain]] = field(default_factory=lambda: EMPTY)
    cast: tuple[Role, ...] = (Role.SOURCE, Role.TARGET)
    unlike: Unlike = Unlike.STYLES
    extra_rounds: int = 0
    network: str = "lenet"
    keepsakes: Callable[[C, M], Mapping[str, Mapping[str, Tensor]]] = lambda config, memory: EMPTY
    notes: Callable[[C, World], tuple[str, ...]] = lambda config, world: ()
    sizes: Callable[[C, World], Mapping[str, int]] = lambda config, world: EMPTY
    claims: tuple[str, ...] = ()
    initial_weights: InitialWeights[C, S] | None = None
    admins: bool = False
    augments: bool = True
    result: Result[C, S, M] = ()
    own_loop: bool = False
    privately: tuple[str, ...] = ()
    unprotected: str = ""
    summed: Algorithm[C, Any, Any] | None = None
    around: Callable[[Plan[C, S]], Plan[C, S]] = lambda plan: plan

    @property
    def run_model(self) -> RunModel[C, S] | None:
        return next((each for each in self.result if isinstance(each, RunModel)), None)

    @property
    def site_models(self) -> SiteModels[C, S, M] | None:
        return next((each for each in self.result if isinstance(each, SiteModels)), None)

    @property
    def no_model(self) -> str:
        """Why a run of it ends in no model; empty where it ends in one."""
        if self.run_model or self.site_models:
            return ""
        said = next((each.why for each in self.result if isinstance(each, NoModel)), "")
        return said or f"The method {self.name} does not declare what models it ends in"

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


def where_summed(algorithm: AnyAlgorithm, sums: object) -> AnyAlgorithm:
    """What a run of a method plays. sums: what the run says of secure ones, false without any."""
    return algorithm.summed or algorithm if sums else algorithm


def plan_of(algorithm: Algorithm[C, S, M], config: C, scoring: Scoring = NO_MORE) -> Plan[C, S]:
    """The method's plan, in which scorings tell what the run asks of them: of each phase's name the last one, or every one."""
    plan = algorithm.plan(config)
    if scoring == NO_MORE:
        return algorithm.around(plan)
    selects = scoring.selection is not Selection.NONE
    last = {phase.name: at for at, phase in enumerate(plan)}

    def reports(at: int, phase: Phase[C, S]) -> Phase[C, S]:
        ends = last[phase.name] == at
        whole = scoring.scores is Scores.EVERY or (scoring.scores is Scores.LAST and ends)
        tells = Tells(whole, scoring.selection, scoring.outputs and ends)
        return phase if phase.report is None or tells == Tells() else phase.report(phase, tells)

    stored: Plan[C, S] = storing(algorithm) if selects else ()
    return algorithm.around((*(reports(at, phase) for at, phase in enumerate(plan)), *stored))


STORE_BEST = "store_best"
# Phases, and their steps, that stand before a method's own: where missing cells are filled by medians, rows normalised by shared
# statistics, and targets' predictions corrected by shares of the classes.
MEDIANS, NORMALISE, CLASS_COUNTS = "medians", "normalise", "class_counts"
# Steps that agents do themselves, around values that are added up so that nobody sees a single one. That of the values stands
# behind the second.
SUM_KEYS, SUM_SHARES, SUM_SURVIVORS, SUM_UNMASK = "sum_keys", "sum_shares", "sum_survivors", "sum_unmask"
SUM_STEPS = (SUM_KEYS, SUM_SHARES, SUM_SURVIVORS, SUM_UNMASK)


def named_around(phase: str, step: str) -> str:
    """What an exchange around a phase's sums is called: `train keys`."""
    return f"{phase} {step.removeprefix('sum_')}"


def summed_by(phase: str, step: str) -> str:
    """The phase that such an exchange is around."""
    return phase.removesuffix(named_around("", step)) if step in SUM_STEPS else phase


def storing(algorithm: Algorithm[C, S, M]) -> Plan[C, S]:
    """The last exchange of a run that selects, where sites have models of their own: none of them would hear otherwise whether
    the last scoring was the best. Nothing is sent but that; it closes with whoever answers in time. Where memories hold rows, it
    is the last exchange of every site, after which they are gone (engine.compute.forgetting).
    """
    models = algorithm.site_models
    if models is None or models.of is None or algorithm.memory is Nothing:
        return ()
    roles = () if holds_rows(algorithm.memory) else models.roles

    def store(order: Nothing, memory: M, site: Site[C]) -> Outcome[Nothing, M]:
        return Outcome(Nothing(), memory)

    def ask(state: S, turn: Turn[C]) -> dict[ClientId, Nothing]:
        return dict.fromkeys(turn.members(*roles), Nothing())

    step = Step(name=STORE_BEST, run=store, takes=Nothing, keeps=algorithm.memory, gives=Nothing)
    return (Phase(STORE_BEST, step, ask=ask, floor=0),)


def contract(
    algorithm: Algorithm[C, S, M], config: C, scoring: Scoring = NO_MORE, wire: Wire = NO_WIRE, privacy: Privacy | None = None
) -> Contract:
    """Every field and metric that any phase's replies hold, in the order of the plan, without repeats."""
    found = (clauses(phase, wire, privacy) for phase in plan_of(algorithm, config, scoring))
    return tuple(dict.fromkeys(itertools.chain.from_iterable(found)))


def clauses(phase: Phase[C, S], wire: Wire, privacy: Privacy | None) -> Iterator[Clause]:
    step = phase.step
    if step is None:
        return
    place = phase.name, step.name
    for leaf in leaves(step.gives):
        assert leaf.exposure is not None
        form = form_up(wire, leaf, leaf.kind)
        yield Clause(
            *place,
            leaf.path,
            leaf.dims,
            exposure=leaf.exposure,
            audience=leaf.audience,
            doc=leaf.doc,
            wire=form.words if form else leaf.form,
            private=made_of(leaf.private, privacy),
        )
    for name in step.reports if privacy else step.metrics:
        yield Clause(
            *place,
            f"metrics.{name}",
            dims="",
            exposure=Exposure.METRIC,
            audience=TO_COORDINATOR,
            doc="one number per reply",
            private=made_of(NOISED, privacy),
        )


NOISED = "worked out from numbers with noise"


def made_of(said: str, privacy: Privacy | None) -> str:
    """What a field or metric is made of in a run that protects rows, or units."""
    if privacy is None or not said:
        return ""
    return said if privacy.unit is None else f"{said}, each {privacy.unit} as one"


def rounds_of(plan: Plan[C, S]) -> tuple[int, ...]:
    """For each place in a plan, 1 + the number of earlier phases of the same name."""
    count: defaultdict[str, Iterator[int]] = defaultdict(lambda: itertools.count(1))
    return tuple(next(count[phase.name]) for phase in plan)


def round_of(plan: Plan[C, S], cursor: int) -> int:
    """1 + the number of earlier phases of the same name."""
    return 1 + sum(1 for phase in plan[:cursor] if phase.name == plan[cursor].name)


Methods = tuple[tuple[str, str], ...]
REHEARSAL = "rehearsal"
OF_RUNS: Methods = ((REHEARSAL, "tideline.learning.rehearsal:rehearsal"),)  # what runs do beside methods; no list shows them


def resolve(methods: Methods, name: str) -> AnyAlgorithm:
    """The method of a name. Raises NotFound with the names that exist, ConfigRefused where its place holds no method."""
    places = dict((*methods, *OF_RUNS))
    if name not in places:
        known = sorted(dict(methods))
        raise NotFound(f"There is no method {name!r}", f"Use one of: {', '.join(known)}{nearest(name, known)}", path="method")
    found = attribute(places[name], f"The method {name!r}")
    if not isinstance(found, Algorithm):
        raise ConfigRefused(f"The method {name!r}: {places[name]} is no Algorithm", "Correct the registry tuple", path="method")
    return found


def attribute(place: str, whose: str, path: str = "method", todo: str = "Write it as MODULE:NAME, importable here") -> object:
    """What stands at "module:attribute". Raises ConfigRefused with the reason."""
    module, _, name = place.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as cause:
        itself = cause.name is not None and f"{module}.".startswith(f"{cause.name}.")
        found = "Start the command in the folder where the module is, or install it. " + todo
        todo = found if itself else "Install what the module imports, or correct the module"
        raise ConfigRefused(f"{whose}: {place}: {cause}", todo, path=path) from cause
    except (ImportError, AttributeError, ValueError, TypeError) as cause:
        raise ConfigRefused(f"{whose}: {place}: {cause}", todo, path=path) from cause
    except Exception as cause:
        what = f"{whose}: {place}: the module raises {type(cause).__name__}: {cause}"
        raise ConfigRefused(what, "Correct the module", path=path) from cause


def import_from_here() -> None:
    """Have this process find modules in the current folder, whichever command started it."""
    if not {"", str(Path.cwd())} & set(sys.path):
        sys.path.insert(0, str(Path.cwd()))


def file_of_module(module: str) -> Path | None:
    """The file that a module is read from, without loading it; None where there is none."""
    import_from_here()
    importlib.invalidate_caches()  # of folders that have changed since
    try:
        found = importlib.util.find_spec(module)
    except Exception:  # noqa: BLE001 - a package around it may raise anything; whoever loads it says so
        return None
    return Path(found.origin) if found is not None and found.origin and found.has_location else None


def unload_module(module: str) -> None:
    """Have the next import read a module's file again."""
    sys.modules.pop(module, None)
    importlib.invalidate_caches()


REGISTRY = "tideline.algorithms:METHODS"  # the built-in methods
CANDIDATES = "tideline.algorithms:CANDIDATES"  # adaptations by the kind of data


def candidates_of(world: World) -> Sequence[Mapping[str, Plain]]:
    """What is rehearsed in a world unless an experiment names candidates, as it would write them."""
    features = len(world.inputs) == 1 and not world.tokens
    kind = "encoder" if world.frozen else "features" if features else "images"
    named: Mapping[str, Sequence[Mapping[str, Plain]]] = attribute(CANDIDATES, "The candidates")  # type: ignore[assignment]
    return named[kind]


def load_methods(place: str = REGISTRY) -> Methods:
    """The built-in methods, and those of a tuple that an operator adds with `--methods MODULE:TUPLE`. Raises ConfigRefused."""
    known = rows_at(REGISTRY)
    if place == REGISTRY:
        return known
    import_from_here()
    added = tuple(row for row in rows_at(place) if row not in known)
    if taken := sorted(dict((*known, *OF_RUNS)).keys() & dict(added).keys()):
        what = f"--methods {place} adds {taken[0]!r}, and there is such a method: methods are added, never replaced"
        raise ConfigRefused(what, "Give it a name of its own")
    return (*known, *added)


def rows_at(place: str) -> Methods:
    """The rows of a registry tuple. Raises ConfigRefused."""
    found = attribute(place, "--methods")
    shape = (tuple, str, str)  # of a row
    if not isinstance(found, tuple) or any((type(row), *map(type, row)) != shape for row in found):
        raise ConfigRefused(f"--methods {place} is not a tuple of (name, 'module:attribute')", "See tideline.algorithms.METHODS")
    names = [name for name, _ in found]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise ConfigRefused(f"--methods {place} names {twice[0]!r} twice", "Give each method a name of its own")
    return found
