"""The coordinator's numbers: decode, advance, encode. Files in, files out, so that they may be in a process of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

import torch

from tideline.archive.checks import LAX, Rules
from tideline.archive.parts import Parts
from tideline.archive.reader import decode, decode_order
from tideline.archive.readings import Checked
from tideline.archive.watching import Watched, watching
from tideline.archive.writer import Memo, Message, encode
from tideline.core.algorithm import AnyAlgorithm, Methods, contract, resolve
from tideline.core.asked.computing import Computing
from tideline.core.errors import (
    ConfigRefused,
    Diverged,
    FederationError,
    Malformed,
    NotFound,
    Refused,
    RosterRefused,
    StepFailed,
    Unreachable,
)
from tideline.core.handle import AnyHandle
from tideline.core.phase import AnyPhase, AnyPlan, Each, Folded, Replies, Table, Turn, folded
from tideline.core.privacy import contract_digest
from tideline.core.record import Nothing, Record, Weights
from tideline.core.run import (
    EMPTY,
    ClientId,
    Digest,
    HeadWorld,
    Last,
    Roster,
    RunSpec,
    Sampling,
    Scoring,
    Selection,
    Shares,
    World,
    checked_world,
)
from tideline.core.settings import Settings, plain
from tideline.engine.compute.cohort import check_sampling, drawn, least_of, notes_of
from tideline.engine.compute.configured import Configured, check_computing, check_selection, configured, scores, taking
from tideline.engine.compute.facts import facts_of, settings_of
from tideline.engine.compute.initial_weights import check_start, read_base, to_begin_from
from tideline.engine.compute.shares import agree, shared_out
from tideline.engine.model.experiment import base_files
from tideline.engine.model.fold_report import checked_report
from tideline.engine.model.orders import Files, Purpose, seed_for
from tideline.engine.ports import compute
from tideline.learning.around.class_shares import check_prior
from tideline.learning.in_world import in_world, normalised_world
from tideline.learning.loading.augmented import check_augment
from tideline.nets import DRAWING, of_features, played, registry, settled
from tideline.nets.computing import CPU, computing_at
from tideline.nets.fingerprint import print_of


@dataclass(frozen=True)
class Game:
    """A run with its method resolved: everything that never changes while it is played.

    world: as the method sees it. base: the file that every order and every state has beside its own.
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
        if not phase.skip(state):
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
    return Turn(config=game.config, world=game.world, roster=game.roster, round=game.method.rounds[cursor], rng=rng)


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

    On the CPU no other device is asked: that would load and probe its driver, at every turn. No other thread draws meanwhile.
    """
    before = torch.get_num_threads()
    on_cpu = device == "cpu"
    with DRAWING, torch.random.fork_rng(() if on_cpu else range(torch.cuda.device_count())):
        seed_all = torch.default_generator.manual_seed if on_cpu else torch.manual_seed
        seed_all(seed)
        torch.set_num_threads(threads)
        try:
            yield torch.Generator().manual_seed(seed)
        finally:
            torch.set_num_threads(before)


@contextmanager
def of_a_part(whole: World, seen: World) -> Iterator[None]:
    """What a method refuses of a network of which a part is frozen says so."""
    try:
        yield
    except Refused as error:
        rest = "sees the features and the head alone" if isinstance(seen, HeadWorld) else "sees the tensors that train alone"
        what = f"With world.trains {' '.join(whole.trains)} a method {rest}: {error.what}"
        raise type(error)(what, f"{error.todo}; or write trains: all", **error.context) from None


LIVE_RUNS = 16  # runs whose state is held between checkpoints: nobody tells of one that was cancelled there
Made = tuple[compute.Checkpoint, tuple[compute.RecordedRound, ...]]  # what a live state was computed from


@dataclass(frozen=True)
class Live:
    """A state between checkpoints. over: the mapped files that it may lie over."""

    made_of: Made
    state: Record
    over: Watched


class InlineCompute:
    """The port Compute over a store of parts. One call at a time: torch's global generator is not safe across threads."""

    def __init__(self, parts: Parts, methods: Methods) -> None:
        self.parts, self._methods = parts, methods
        # The state of a run between checkpoints and the rounds that made it, so that a quiet round is not computed again.
        self._live: dict[str, Live] = {}
        self._asked: tuple[tuple[Configured, World, int, Digest], Rules] | None = None
        self._checked = Checked()

    def methods(self) -> tuple[compute.MethodSummary, ...]:
        found = [resolve(self._methods, name) for name, _ in self._methods]
        return tuple(compute.MethodSummary(a.name, a.summary, a.paper) for a in found)

    def describe(self, method: str, preset: str | None = None) -> compute.MethodFacts:
        """One method's settings with their bounds, its presets, and the contract of its defaults or a preset."""
        algorithm = resolve(self._methods, method)
        clauses = contract(algorithm, algorithm.configure({}, preset), Scoring())
        return compute.MethodFacts(
            name=algorithm.name,
            summary=algorithm.summary,
            paper=algorithm.paper,
            settings=settings_of(algorithm.config),
            presets=algorithm.presets,
            cast=algorithm.cast,
            unlike=algorithm.unlike,
            extra_rounds=algorithm.extra_rounds,
            network=algorithm.network,
            contract=clauses,
            sentences=tuple(c.sentence() for c in clauses),
            claims=algorithm.claims,
            weights=algorithm.initial_weights is not None,
            sample=Configured(algorithm, algorithm.configure({}, preset)).sampled,
            augments=algorithm.augments,
            digest=contract_digest(clauses),
        )

    def draft(self, asked: compute.DraftRequest) -> compute.Draft:
        """Check an experiment before anybody is asked. Raises Refused errors with `context["path"]`."""
        algorithm, whole = resolve(self._methods, asked.method), settled(checked_world(asked.world))
        settings = algorithm.configure(asked.config, asked.preset)
        whole = normalised_world(algorithm, settings, whole, asked.roster, bool(asked.initial_weights))
        check_prior(asked.scoring, asked.roster)
        check_augment(asked.augment, whole, of_features(played(whole)), algorithm)
        check_computing(asked.computing, algorithm)
        algorithm = in_world(algorithm, whole.scaling, asked.scoring.prior, whole.fills)
        roster, takes, world = asked.roster, algorithm.initial_weights is not None, self.seen(whole, asked.initial_weights)
        if not whole.frozen:
            self.fits(algorithm, bool(asked.initial_weights))(settings, world, roster)
        start = check_start(self.parts, whole, asked.initial_weights, takes)
        if whole.frozen:
            with of_a_part(whole, world):
                self.fits(algorithm, start.begins)(settings, world, roster)
        notes = (*algorithm.notes(settings, world), *start.notes)
        if start.begins and algorithm.initial_weights:
            notes = (*notes, *algorithm.initial_weights.notes(settings, world, roster))
        check_selection(method := Configured(algorithm, settings, asked.scoring))
        if asked.sampling:
            check_sampling(asked.sampling, method, roster, self.sampled_methods)
            notes = (*notes, *notes_of(asked.sampling, method.plan))
        clauses = method.contract
        return compute.Draft(
            config=plain(settings),
            world=whole,
            plan=facts_of(method),
            contract=clauses,
            digest=contract_digest(clauses),
            keeps=algorithm.memory is not Nothing,
            notes=notes,
            kept=tuple(f.name for f in dataclasses.fields(algorithm.config) if f.metadata.get("kept")),
            admins=algorithm.admins,
            initial_weights=Digest(asked.initial_weights) if asked.initial_weights else None,
            initial_weights_bytes=start.size,
            network=print_of(whole),
        )

    def sampled_methods(self) -> list[str]:
        """The names of the methods whose rounds may ask a part of the sites."""
        found = [resolve(self._methods, name) for name, _ in self._methods]
        return [each.name for each in found if Configured(each, each.configure({})).sampled]

    def fits(self, algorithm: AnyAlgorithm, weights: bool) -> Callable[[Settings, World, Roster], None]:
        """What holds world and roster to the method, with weights or without. Raises ConfigRefused where it takes none."""
        if not weights:
            return taking(algorithm, algorithm.fits, self._methods)
        if algorithm.initial_weights is None:
            takers = [name for name, _ in self._methods if resolve(self._methods, name).initial_weights is not None]
            instead = f", or use one of: {', '.join(takers)}" if takers else ""
            what = f"{algorithm.name} takes no initial weights"
            raise ConfigRefused(what, f"Leave weights out{instead}", path="weights")
        return taking(algorithm, algorithm.initial_weights.fits, self._methods)

    def begin(self, asked: compute.BeginRequest) -> compute.NextRound:
        game = self.game(asked.spec, asked.roster)
        with watching():
            weights = to_begin_from(self.parts, asked.spec, game.world, game.algorithm.initial_weights is not None)
            self.fits(game.algorithm, weights is not None)(game.config, game.world, game.roster)
            return self.encoded(game, begin(game, weights, asked.available), asked.with_checkpoint)

    def close(self, asked: compute.CloseRequest) -> compute.NextRound:
        game = self.game(asked.spec, asked.roster)
        with watching() as watched:  # before anything counts: a state may have lain over its file for many rounds
            state, replies = self.state_at(game, asked, watched), self.replies(game, asked.closing)
            turned = close(game, state, asked.closing.cursor, replies, asked.available)
            made = self.encoded(game, turned, asked.with_checkpoint or selects(game, turned))
        del state, replies
        if not made.state:
            made_of = asked.checkpoint, (*asked.history, asked.closing)
            self._live[asked.spec.id] = Live(made_of, turned.state, watched.living())
            self._live = dict(list(self._live.items())[-LIVE_RUNS:])
        return made

    def check(self, asked: compute.CheckRequest) -> None:
        gives, rules = self.declared(self.game(asked.spec, ()), asked.cursor, asked.asked)
        agree(self._checked.check(gives, asked.reply, self.parts, rules), asked.metrics)

    def game(self, spec: RunSpec, roster: Roster) -> Game:
        """Raises Unreachable where the method or network of a run that has begun is not known here."""
        self.known_here(spec)
        method = configured(self._methods, spec.method, spec.config, spec.scoring, spec.world)
        return Game(
            method=method,
            world=self.seen(spec.world, spec.initial_weights or ""),
            roster=roster,
            seed=spec.seed,
            threads=spec.threads,
            sampling=spec.sampling,
            base=base_files(spec),
            shares=spec.shares,
            computing=spec.computing,
        )

    def seen(self, world: World, file: str) -> World:
        """The world as a method sees it, over the frozen tensors of that file, which is read when their numbers are wanted."""
        return played(world, partial(read_base, self.parts, world, Digest(file)), file)

    def known_here(self, spec: RunSpec) -> None:
        """An operator who forgets an option ends no run: it waits until a coordinator that has its code conducts it."""
        try:
            resolve(self._methods, spec.method)
            registry.builder(spec.world.model)
        except (NotFound, ConfigRefused) as error:
            todo = "Start the coordinator again with the --methods, --networks and packages that it had when the run began"
            raise Unreachable(f"Run {spec.id} cannot go on here: {error.what}", todo) from error

    def state_at(self, game: Game, asked: compute.CloseRequest, watched: Watched) -> Record:
        """The state that waits at the closing cursor: live, from the checkpoint, or computed again from there.

        watched: gets the files that a live one lies over.
        """
        live = self._live.pop(asked.spec.id, None)
        # Another coordinator may have closed a round with other replies than were closed here: the journal's history decides.
        if live is not None and live.made_of == (asked.checkpoint, asked.history):
            watched.add(live.over)
            return live.state
        state: Record = decode(game.algorithm.state, asked.checkpoint.state, self.parts, LAX)  # held to its numbers when written
        for past, expected in zip(asked.history, (*asked.history, asked.closing)[1:], strict=True):
            # Who was available then is not known any more; who was drawn is.
            turned = close(game, state, past.cursor, self.replies(game, past), frozenset(expected.asked))
            self.compare(game, turned, expected)
            state = turned.state
        return state

    def compare(self, game: Game, turned: Turned, expected: compute.RecordedRound) -> None:
        """What a recomputed round asks must be what was asked. Raises Diverged."""
        asked = {c: m.digest for c, m in self.messages(game, turned, Memo()).items()}
        if turned.cursor != expected.cursor or asked != dict(expected.asked):
            what = f"Round {expected.cursor} computed again differs from the recorded one"
            raise Diverged(what, "The machine's numerics changed (torch version, processor, threads); begin the run again")

    def replies(self, game: Game, closing: compute.RecordedRound) -> Replies[Record]:
        at, asked = closing.cursor, closing.asked
        load = {c: partial(self.reply, game, at, asked[c], reply) for c, reply in sorted(closing.replies.items())}
        return shared_out(Replies(load, closing.metrics), game.shares)

    def reply(self, game: Game, cursor: int, asked: Digest, digest: Digest) -> Record:
        """One reply, held to what is declared of it."""
        gives, rules = self.declared(game, cursor, asked)
        return self._checked.take(gives, digest, self.parts, rules)

    def declared(self, game: Game, cursor: int, asked: Digest) -> tuple[type[Record], Rules]:
        """What a reply is held to: its type, the order's names, shapes and dims, and the method's and world's sizes."""
        step = game.plan[cursor].step
        assert step is not None
        # Mostly everybody was asked the same: what replies are held to is read once. A check may run beside a fold, so that what
        # is remembered is taken and put as a whole.
        known, key = self._asked, (game.method, game.world, cursor, asked)
        if known is None or known[0] != key:
            ours = Rules(game.sizes, finite=False)  # checked when it was written
            known = self._asked = key, decode_order(step.takes, asked, self.parts, ours)[1]
        return step.gives, known[1]

    def encoded(self, game: Game, turned: Turned, with_checkpoint: bool) -> compute.NextRound:
        done = turned.cursor == len(game.plan)
        memo = Memo()
        try:
            state = encode(turned.state, self.parts, memo=memo) if with_checkpoint or done else None
            orders = self.messages(game, turned, memo)
        except Malformed as cause:
            raise StepFailed(
                f"What the method made cannot be kept or sent: {cause.what}", "Look at the sites' metrics, and begin again"
            ) from cause
        return compute.NextRound(
            cursor=turned.cursor,
            done=done,
            state=(*state.files, *game.base) if state else (),
            sealed=bare(state.handles if state else ()),
            orders=MappingProxyType({client: (*message.files, *game.base) for client, message in orders.items()}),
            handles=MappingProxyType({client: bare(message.handles) for client, message in orders.items() if message.handles}),
            fingerprint=fingerprint(game.threads),
            marks=turned.marks,
            groups=turned.groups,
            tables=turned.tables,
        )

    def messages(self, game: Game, turned: Turned, memo: Memo) -> dict[ClientId, Message]:
        """What is asked, encoded: one object that goes to many is encoded once. Those that are made one by one are let go."""
        made, rules = {}, Rules(game.sizes)
        if isinstance(turned.orders, Each):
            return {client: encode(order, self.parts, rules, memo) for client, order in turned.orders.items()}
        once: dict[int, Message] = {}
        for client, order in turned.orders.items():
            if id(order) not in once:
                once[id(order)] = encode(order, self.parts, rules, memo)
            made[client] = once[id(order)]
        return made


def selects(game: Game, turned: Turned) -> bool:
    """Whether a state is scored next in a run that selects its best round: it may be the best, so it is written."""
    if game.method.scoring.selection is Selection.NONE or turned.cursor == len(game.plan):
        return False
    return scores(game.plan[turned.cursor])


def bare(handles: Iterable[AnyHandle]) -> tuple[AnyHandle, ...]:
    return tuple(each.bare() for each in handles)


def fingerprint(threads: int) -> str:
    """What equal bytes depend on: torch, the processor's instructions, the number of threads."""
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {threads} threads"
