"""A run as it is played: its first state, what each phase asks, and the folds that lead from one to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch

from tideline.core.algorithm import AnyAlgorithm
from tideline.core.asked.computing import Computing
from tideline.core.asked.sampling import Last, Sampling
from tideline.core.asked.world import World
from tideline.core.errors import FederationError, RosterRefused, StepFailed
from tideline.core.phase import AnyPhase, AnyPlan, Each, Folded, Replies, Table, Turn, folded
from tideline.core.record import Record, Weights
from tideline.core.run import ClientId, Roster, RunId, Shares
from tideline.core.settings import EMPTY, Settings
from tideline.engine.compute.configured import Configured
from tideline.engine.compute.turns.cohort import drawn, least_of
from tideline.engine.compute.turns.reproducible import reproducible
from tideline.engine.model.fold_report import checked_report
from tideline.engine.model.orders import Files, Purpose, seed_for
from tideline.nets.computing import CPU, computing_at


@dataclass(frozen=True)
class Game:
    """A run with its method resolved: everything that never changes while it is played.

    world: as the method sees it. base: the file that every order and every state has beside its own. masks: whether sums that
    nobody is to see single values of are masked.
    """

    method: Configured
    world: World
    roster: Roster
    seed: int
    threads: int = 1
    sampling: Sampling | None = None
    base: Files = ()
    shares: Shares = Shares()
    computing: Computing | None = None
    run: RunId = RunId("")
    masks: bool = True

    @property
    def algorithm(self) -> AnyAlgorithm:
        return self.method.algorithm

    @property
    def config(self) -> Settings:
        return self.method.config

    @property
    def plan(self) -> AnyPlan:
        return self.method.plan

    @property
    def sizes(self) -> Mapping[str, int]:
        return self.algorithm.dims(self.config, self.world)


@dataclass(frozen=True)
class Turned:
    """The state, the cursor that waits for replies (the plan's length when it has ended), and what each client is asked.

    marks, groups, tables: what the fold that led here reports (core.phase.Folded).
    """

    state: Record
    cursor: int
    orders: Mapping[ClientId, Record]
    marks: Mapping[str, tuple[ClientId, ...]] = field(default_factory=lambda: EMPTY)
    groups: Mapping[str, tuple[ClientId, ...]] = field(default_factory=lambda: EMPTY)
    tables: Mapping[str, Table] = field(default_factory=lambda: EMPTY)


NOBODY: Set[ClientId] = frozenset()


def begin(game: Game, weights: Weights | None = None, first: Set[ClientId] = NOBODY) -> Turned:
    """The first state, from the user's weights if there are any, and what is asked first. Raises RosterRefused, ConfigRefused.

    first: who is drawn before others, where cohorts are drawn by availability; so in what follows.
    """
    method = game.algorithm
    assert weights is None or method.initial_weights is not None, "a run with initial weights is refused where none are taken"
    with reproducible(seed_for(game.seed, Purpose.BEGIN, 0), game.threads) as rng, named("begin"):
        given = (game.config, game.world, game.roster, rng)
        if weights is None or method.initial_weights is None:
            state: Record = method.begin(*given)
        else:
            state = method.initial_weights.begin(*given, weights)
    return enter(game, state, 0, first)


def enter(game: Game, state: Record, cursor: int, first: Set[ClientId] = NOBODY) -> Turned:
    """Ask onward until somebody is asked, or the plan ends. Phases without a step are computed on the way."""
    while cursor < len(game.plan):
        phase = game.plan[cursor]
        if not phase.skip(state) and (game.masks or not phase.masks):
            orders = ask(game, phase, state, cursor, first)
            if orders:
                return Turned(state, cursor, orders)
            if phase.step is None:
                state = fold(game, phase, state, cursor, Replies(EMPTY)).state
        cursor += 1
    return Turned(state, cursor, EMPTY)


def close(game: Game, state: Record, cursor: int, replies: Replies[Record], first: Set[ClientId] = NOBODY) -> Turned:
    folded = fold(game, game.plan[cursor], state, cursor, replies)
    turned = enter(game, folded.state, cursor + 1, first)
    return replace(turned, marks={**folded.marks, **replies.marks}, groups=folded.groups, tables=folded.tables)


def ask(game: Game, phase: AnyPhase, state: Record, cursor: int, first: Set[ClientId]) -> Mapping[ClientId, Record]:
    """The messages by client: of the cohort alone, where one is drawn."""
    if phase.step is None:
        return EMPTY
    seed, half = seed_for(game.seed, Purpose.ASK, cursor), f"ask of {phase.name}"
    with reproducible(seed, game.threads) as rng, named(half):
        orders = phase.ask(state, turn(game, cursor, rng))
    strangers = sorted(set(orders) - {m.id for m in game.roster})
    if strangers:
        raise RosterRefused(f"The phase {phase.name} asks {strangers[0]!r}, who is no member", "Ask members of turn.roster only")
    asked = cohort(game, phase, cursor, orders, first)
    if isinstance(orders, Each):
        return Each(asked, later(orders, seed, half, game.threads))
    return {client: orders[client] for client in sorted(asked)}


def cohort(game: Game, phase: AnyPhase, cursor: int, named: Iterable[ClientId], first: Set[ClientId]) -> Iterable[ClientId]:
    """Whom an exchange asks of those that it names: a part, if the run has a sampling and the phase may be sampled."""
    sampling = game.sampling
    if sampling is None or not phase.sampled or (sampling.last is Last.ALL and cursor == game.method.last_scoring):
        return named
    return drawn(sampling, named, least=least_of(phase)[0], seed=game.seed, cursor=cursor, first=first)


def later(orders: Each[Record], seed: int, half: str, threads: int) -> Callable[[ClientId], Record]:
    """A message that is made later, as it would have been in the `ask`: with its threads and seed, its errors named."""

    def make(client: ClientId) -> Record:
        with reproducible(seed, threads), named(half):
            return orders[client]

    return make


def fold(game: Game, phase: AnyPhase, state: Record, cursor: int, replies: Replies[Record]) -> Folded[Record]:
    seed = seed_for(game.seed, Purpose.FOLD, cursor)
    # A network that the coordinator trains computes as those at sites do.
    with reproducible(seed, game.threads) as rng, computing_at(game.computing, CPU), named(f"fold of {phase.name}"):
        return checked_report(
            folded(phase.fold(state, replies, turn(game, cursor, rng))), phase.name, [m.id for m in game.roster]
        )


def turn(game: Game, cursor: int, rng: torch.Generator) -> Turn[Settings]:
    at = game.method.rounds[cursor]
    return Turn(config=game.config, world=game.world, roster=game.roster, round=at, rng=rng, run=game.run)


@contextmanager
def named(half: str) -> Iterator[None]:
    """A foreign error of the coordinator's half becomes one that ends the run with a cause. It saw no site's data."""
    try:
        yield
    except FederationError:
        raise
    except Exception as cause:
        words = f"{type(cause).__name__}: {cause}"[:300]
        raise StepFailed(f"The method's {half} raised {words}", "Mend the method, or begin again with other settings") from cause
