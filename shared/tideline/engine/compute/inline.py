"""The coordinator's numbers: decode, advance, encode. Files in, files out, so that they may be in a process of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from types import MappingProxyType

import torch

from tideline.archive.codec import Memo, Message, Rules, decode, decode_order, encode
from tideline.archive.parts import Parts
from tideline.core.algorithm import AnyAlgorithm, contract, rounds_of
from tideline.core.errors import ConfigRefused, Diverged, Malformed, StepFailed
from tideline.core.handle import AnyHandle
from tideline.core.phase import Each, Replies
from tideline.core.privacy import contract_digest
from tideline.core.record import Nothing, Record
from tideline.core.registry import Methods, resolve
from tideline.core.run import ClientId, Digest, Roster, RunSpec, World, checked_world
from tideline.core.settings import Settings, plain
from tideline.engine.compute import advance
from tideline.engine.compute.advance import Game, Turned
from tideline.engine.compute.initial_weights import check_initial_weights, read_initial_weights
from tideline.engine.model.runs import PhaseFact
from tideline.engine.ports.compute import (
    BeginRequest,
    Checkpoint,
    CheckRequest,
    CloseRequest,
    Draft,
    DraftRequest,
    MethodFacts,
    MethodSummary,
    NextRound,
    RecordedRound,
    SettingFacts,
)

LIVE_RUNS = 16  # runs whose state is held between checkpoints: nobody tells of one that was cancelled there
Made = tuple[Checkpoint, tuple[RecordedRound, ...]]  # what a live state was computed from


class InlineCompute:
    """The port Compute over a store of parts. One call at a time: torch's global generator is not safe across threads."""

    def __init__(self, parts: Parts, methods: Methods) -> None:
        self.parts, self._methods = parts, methods
        # The state of a run between checkpoints and the rounds that made it, so that a quiet round is not computed again.
        self._live: dict[str, tuple[Made, Record]] = {}

    def methods(self) -> tuple[MethodSummary, ...]:
        """Every method with its summary and source."""
        found = [resolve(self._methods, name) for name, _ in self._methods]
        return tuple(MethodSummary(a.name, a.summary, a.paper) for a in found)

    def describe(self, method: str, preset: str | None = None) -> MethodFacts:
        """One method's settings with their bounds, its presets, and the contract of its defaults or a preset."""
        algorithm = resolve(self._methods, method)
        clauses = contract(algorithm, algorithm.configure({}, preset))
        return MethodFacts(
            name=algorithm.name,
            summary=algorithm.summary,
            paper=algorithm.paper,
            settings=settings_of(algorithm.config),
            presets=algorithm.presets,
            cast=algorithm.cast,
            network=algorithm.network,
            contract=clauses,
            sentences=tuple(c.sentence() for c in clauses),
            claims=algorithm.claims,
            weights=algorithm.initial_weights is not None,
            digest=contract_digest(clauses),
        )

    def draft(self, asked: DraftRequest) -> Draft:
        """Check an experiment before anybody is asked. Raises Refused errors with `context["path"]`."""
        algorithm = resolve(self._methods, asked.method)
        settings, world, roster = algorithm.configure(asked.config, asked.preset), checked_world(asked.world), asked.roster
        self.fits(algorithm, asked.initial_weights)(settings, world, roster)
        notes = algorithm.notes(settings, world)
        if asked.initial_weights and algorithm.initial_weights:
            notes = (*notes, *algorithm.initial_weights.notes(settings, world, roster))
        clauses = contract(algorithm, settings)
        return Draft(
            config=plain(settings),
            world=world,
            plan=facts_of(algorithm, settings),
            contract=clauses,
            digest=contract_digest(clauses),
            keeps=algorithm.memory is not Nothing,
            notes=notes,
            kept=tuple(f.name for f in dataclasses.fields(algorithm.config) if f.metadata.get("kept")),
            admins=algorithm.admins,
            initial_weights=Digest(asked.initial_weights) if asked.initial_weights else None,
            initial_weights_bytes=check_initial_weights(self.parts, world, Digest(asked.initial_weights))
            if asked.initial_weights
            else 0,
        )

    def fits(self, algorithm: AnyAlgorithm, weights: str | None) -> Callable[[Settings, World, Roster], None]:
        """What holds world and roster to the method, with weights or without. Raises ConfigRefused where it takes none."""
        if not weights:
            return algorithm.fits
        if algorithm.initial_weights is None:
            takers = [name for name, _ in self._methods if resolve(self._methods, name).initial_weights is not None]
            instead = f", or use one of: {', '.join(takers)}" if takers else ""
            what = f"{algorithm.name} begins from no weights that a person brings"
            raise ConfigRefused(what, f"Leave weights out{instead}", path="weights")
        return algorithm.initial_weights.fits

    def begin(self, asked: BeginRequest) -> NextRound:
        """The first state and the first orders."""
        game, digest = self.game(asked.spec, asked.roster), asked.spec.initial_weights
        self.fits(game.algorithm, digest)(game.config, game.world, game.roster)
        weights = read_initial_weights(self.parts, game.world, digest) if digest else None
        return self.encoded(game, advance.begin(game, weights), asked.keep)

    def close(self, asked: CloseRequest) -> NextRound:
        """Fold the closing round; rounds since the checkpoint are computed again where their state is not at hand."""
        game = self.game(asked.spec, asked.roster)
        turned = advance.close(game, self.state_at(game, asked), asked.closing.cursor, self.replies(game, asked.closing))
        made = self.encoded(game, turned, asked.keep)
        if not made.state:
            self._live[asked.spec.id] = ((asked.checkpoint, (*asked.history, asked.closing)), turned.state)
            self._live = dict(list(self._live.items())[-LIVE_RUNS:])
        return made

    def check(self, asked: CheckRequest) -> None:
        """Hold a reply to its declaration. Raises Malformed errors."""
        self.reply(self.game(asked.spec, ()), asked.cursor, asked.asked, asked.reply)

    def game(self, spec: RunSpec, roster: Roster) -> Game:
        """A run with its method resolved."""
        algorithm = resolve(self._methods, spec.method)
        config = algorithm.configure(spec.config)
        return Game(algorithm, config, spec.world, algorithm.plan(config), roster, spec.seed, spec.threads)

    def state_at(self, game: Game, asked: CloseRequest) -> Record:
        """The state that waits at the closing cursor: live, from the checkpoint, or computed again from there."""
        made_by, live = self._live.pop(asked.spec.id, (None, None))
        # Another coordinator may have closed a round with other replies than were closed here: the journal's history decides.
        if live is not None and made_by == (asked.checkpoint, asked.history):
            return live
        state: Record = decode(game.algorithm.state, asked.checkpoint.state, self.parts)
        for past, expected in zip(asked.history, (*asked.history, asked.closing)[1:], strict=True):
            turned = advance.close(game, state, past.cursor, self.replies(game, past))
            self.compare(game, turned, expected)
            state = turned.state
        return state

    def compare(self, game: Game, turned: Turned, expected: RecordedRound) -> None:
        """What a recomputed round asks must be what was asked. Raises Diverged."""
        asked = {c: m.digest for c, m in self.messages(game, turned, Memo()).items()}
        if turned.cursor != expected.cursor or asked != dict(expected.asked):
            raise Diverged(
                f"Round {expected.cursor} computed again differs from the recorded one",
                "The machine's numerics changed (torch version, processor, threads); begin the run again",
            )

    def replies(self, game: Game, closing: RecordedRound) -> Replies[Record]:
        """The recorded replies, each decoded when it is looked at."""
        at, asked = closing.cursor, closing.asked
        load = {c: partial(self.reply, game, at, asked[c], reply) for c, reply in sorted(closing.replies.items())}
        return Replies(load, closing.metrics)

    def reply(self, game: Game, cursor: int, asked: Digest, digest: Digest) -> Record:
        """One reply, held to its declaration, to the order's names, shapes and dims, and to the method's and world's sizes."""
        step = game.plan[cursor].step
        assert step is not None
        ours = Rules(game.sizes, finite=False)  # checked when it was written
        _, rules = decode_order(step.takes, asked, self.parts, ours)
        reply: Record = decode(step.gives, digest, self.parts, rules)
        return reply

    def encoded(self, game: Game, turned: Turned, keep: bool) -> NextRound:
        """A turn as files: state (if it is kept, or the last) and orders."""
        done = turned.cursor == len(game.plan)
        memo = Memo()
        try:
            state = encode(turned.state, self.parts, memo=memo) if keep or done else None
            orders = self.messages(game, turned, memo)
        except Malformed as cause:
            raise StepFailed(
                f"What the method made cannot be kept or sent: {cause.what}", "Look at the sites' metrics, and begin again"
            ) from cause
        return NextRound(
            cursor=turned.cursor,
            done=done,
            state=state.files if state else (),
            sealed=bare(state.handles if state else ()),
            orders=MappingProxyType({client: message.files for client, message in orders.items()}),
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


def bare(handles: Iterable[AnyHandle]) -> tuple[AnyHandle, ...]:
    """Handles as others know them."""
    return tuple(each.bare() for each in handles)


def facts_of(algorithm: AnyAlgorithm, settings: Settings) -> tuple[PhaseFact, ...]:
    """What is known of each place in a method's plan."""
    plan = algorithm.plan(settings)
    rounds = zip(plan, rounds_of(plan), strict=True)
    return tuple(PhaseFact(p.name, p.step.name if p.step else "", r, p.floor, p.needs) for p, r in rounds)


def settings_of(config: type[Settings]) -> tuple[SettingFacts, ...]:
    """A config's settings with their defaults, bounds, choices and sentences."""
    return tuple(described(f) for f in dataclasses.fields(config))


def described(setting: dataclasses.Field[Settings]) -> SettingFacts:
    """One setting."""
    default = setting.default if setting.default_factory is dataclasses.MISSING else setting.default_factory()
    meta, choices = setting.metadata, setting.metadata.get("choices")
    return SettingFacts(
        name=setting.name,
        type=str(setting.type),
        default=plain(default),
        low=meta.get("low"),
        high=meta.get("high"),
        choices=None if choices is None else tuple(choices),
        doc=meta.get("doc", ""),
    )


def fingerprint(threads: int) -> str:
    """What equal bytes depend on: torch, the processor's instructions, the number of threads."""
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {threads} threads"
