"""The kernel's two numeric functions: enter and close. Pure: the same game, state and replies give the same result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch

from tideline.core.algorithm import AnyAlgorithm, round_of
from tideline.core.errors import FederationError, RosterRefused, StepFailed
from tideline.core.phase import AnyPhase, AnyPlan, Each, Folded, Replies, Table, Turn, folded
from tideline.core.record import Record, Weights
from tideline.core.run import EMPTY, ClientId, Roster, World
from tideline.core.settings import Settings
from tideline.engine.model.fold_report import checked
from tideline.engine.model.orders import Purpose, seed_for


@dataclass(frozen=True)
class Game:
    """A run with its method resolved: everything that never changes while it is played."""

    algorithm: AnyAlgorithm
    config: Settings
    world: World
    plan: AnyPlan
    roster: Roster
    seed: int
    threads: int = 1

    @property
    def sizes(self) -> Mapping[str, int]:
        """Named dims that every message is held to."""
        return self.algorithm.dims(self.config, self.world)


@dataclass(frozen=True)
class Turned:
    """The state, the cursor that waits for replies (the plan's length when it has ended), and what each client is asked.

    marks, groups, tables: what the fold that led here told people (core.phase.Folded).
    """

    state: Record
    cursor: int
    orders: Mapping[ClientId, Record]
    marks: Mapping[str, tuple[ClientId, ...]] = field(default_factory=lambda: EMPTY)
    groups: Mapping[str, tuple[ClientId, ...]] = field(default_factory=lambda: EMPTY)
    tables: Mapping[str, Table] = field(default_factory=lambda: EMPTY)


def begin(game: Game, weights: Weights | None = None) -> Turned:
    """The first state, from a person's weights if there are any, and what is asked first. Raises RosterRefused, ConfigRefused."""
    with reproducible(seed_for(game.seed, Purpose.BEGIN, 0), game.threads) as rng, named("begin"):
        state = first_state(game, rng, weights)
    return enter(game, state, 0)


def first_state(game: Game, rng: torch.Generator, weights: Weights | None) -> Record:
    """The method's own first state, or the one that it makes of a person's weights."""
    asked = (game.config, game.world, game.roster, rng)
    initial_weights = game.algorithm.initial_weights
    assert weights is None or initial_weights is not None, "a run that brings weights is refused where its method takes none"
    made: Record = (
        game.algorithm.begin(*asked) if weights is None or initial_weights is None else initial_weights.begin(*asked, weights)
    )
    return made


def enter(game: Game, state: Record, cursor: int) -> Turned:
    """Ask onward until somebody is asked, or the plan ends. Phases without a step are computed on the way."""
    while cursor < len(game.plan):
        phase = game.plan[cursor]
        if not phase.skip(state):
            orders = ask(game, phase, state, cursor)
            if orders:
                return Turned(state, cursor, orders)
            if phase.step is None:
                state = fold(game, phase, state, cursor, Replies(EMPTY)).state
        cursor += 1
    return Turned(state, cursor, EMPTY)


def close(game: Game, state: Record, cursor: int, replies: Replies[Record]) -> Turned:
    """Fold the replies of the phase at the cursor, then ask onward."""
    folded = fold(game, game.plan[cursor], state, cursor, replies)
    turned = enter(game, folded.state, cursor + 1)
    return replace(turned, marks=folded.marks, groups=folded.groups, tables=folded.tables)


def ask(game: Game, phase: AnyPhase, state: Record, cursor: int) -> Mapping[ClientId, Record]:
    """What the phase asks, in sorted client order."""
    if phase.step is None:
        return EMPTY
    seed, half = seed_for(game.seed, Purpose.ASK, cursor), f"ask of {phase.name}"
    with reproducible(seed, game.threads) as rng, named(half):
        orders = phase.ask(state, turn(game, cursor, rng))
    strangers = sorted(set(orders) - {m.id for m in game.roster})
    if strangers:
        raise RosterRefused(f"The phase {phase.name} asks {strangers[0]!r}, who is no member", "Ask members of turn.roster only")
    if isinstance(orders, Each):
        return Each(orders, later(orders, seed, half, game.threads))
    return {client: orders[client] for client in sorted(orders)}


def later(orders: Each[Record], seed: int, half: str, threads: int) -> Callable[[ClientId], Record]:
    """A message that is made later, as it would have been in the `ask`: with its threads and seed, its errors named."""

    def make(client: ClientId) -> Record:
        with reproducible(seed, threads), named(half):
            return orders[client]

    return make


def fold(game: Game, phase: AnyPhase, state: Record, cursor: int, replies: Replies[Record]) -> Folded[Record]:
    """The state after the phase's replies, and what people are told of the fold."""
    with reproducible(seed_for(game.seed, Purpose.FOLD, cursor), game.threads) as rng, named(f"fold of {phase.name}"):
        return checked(folded(phase.fold(state, replies, turn(game, cursor, rng))), phase.name, [m.id for m in game.roster])


def turn(game: Game, cursor: int, rng: torch.Generator) -> Turn[Settings]:
    """What `ask` and `tell` see."""
    return Turn(game.config, game.world, game.roster, round_of(game.plan, cursor), rng)


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


@contextmanager
def reproducible(seed: int, threads: int, device: str = "cpu") -> Iterator[torch.Generator]:
    """A fresh generator, torch's global ones forked and seeded alike, and a fixed number of threads (both change last digits).

    On the CPU no other device is asked: that would load and probe its driver, at every turn.
    """
    before = torch.get_num_threads()
    on_cpu = device == "cpu"
    with torch.random.fork_rng(() if on_cpu else range(torch.cuda.device_count())):
        seed_all = torch.default_generator.manual_seed if on_cpu else torch.manual_seed
        seed_all(seed)
        torch.set_num_threads(threads)
        try:
            yield torch.Generator().manual_seed(seed)
        finally:
            torch.set_num_threads(before)
