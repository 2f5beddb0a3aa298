"""The coordinator's numbers: decode, advance, encode. Files in, files out, so that they may be in a process of their own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from tideline.archive.checks import LAX, Rules
from tideline.archive.parts import Parts
from tideline.archive.reader import decode, decode_order
from tideline.archive.readings import Checked
from tideline.archive.watching import Watched, watching
from tideline.archive.writer import Memo, Message, encode
from tideline.core.algorithm import Methods, resolve
from tideline.core.asked.scoring import Selection
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, Diverged, Malformed, NotFound, StepFailed, Unreachable
from tideline.core.handle import AnyHandle
from tideline.core.phase import Each, Replies
from tideline.core.record import Record
from tideline.core.run import ClientId, Digest, Roster, RunSpec
from tideline.engine.compute.configured import Configured, configured, scores
from tideline.engine.compute.drafts import Drafts
from tideline.engine.compute.initial_weights import seen, to_begin_from
from tideline.engine.compute.shares import agree, shared_out
from tideline.engine.compute.turns.game import Game, Turned, begin, close
from tideline.engine.compute.turns.reproducible import fingerprint
from tideline.engine.model.experiment import base_files
from tideline.engine.ports import compute
from tideline.nets import registry

LIVE_RUNS = 16  # runs whose state is held between checkpoints: nobody tells of one that was cancelled there
Made = tuple[compute.Checkpoint, tuple[compute.RecordedRound, ...]]  # what a live state was computed from


@dataclass(frozen=True)
class Live:
    """A state between checkpoints. over: the mapped files that it may lie over."""

    made_of: Made
    state: Record
    over: Watched


class InlineCompute:
    """The port Compute over a store of parts. One call at a time: torch's global generator is not safe across threads.

    masks: whether secure sums are masked; a simulation, which is one owner's, has no use for that.
    """

    def __init__(self, parts: Parts, methods: Methods, masks: bool = True) -> None:
        self.parts, self._methods, self._drafts, self._masks = parts, methods, Drafts(parts, methods), masks
        # The state of a run between checkpoints and the rounds that made it, so that a quiet round is not computed again.
        self._live: dict[str, Live] = {}
        self._asked: tuple[tuple[Configured, World, int, Digest], Rules] | None = None
        self._checked = Checked()

    def methods(self) -> tuple[compute.MethodSummary, ...]:
        return self._drafts.methods()

    def describe(self, method: str, preset: str | None = None, secure_sums: bool = False) -> compute.MethodFacts:
        return self._drafts.describe(method, preset, secure_sums)

    def draft(self, asked: compute.DraftRequest) -> compute.Draft:
        """Check an experiment before anybody is asked. Raises Refused errors with `context["path"]`."""
        return self._drafts.draft(asked)

    def begin(self, asked: compute.BeginRequest) -> compute.NextRound:
        game = self.game(asked.spec, asked.roster)
        with watching():
            weights = to_begin_from(self.parts, asked.spec, game.world, game.algorithm.initial_weights is not None)
            self._drafts.fits(game.algorithm, weights is not None)(game.config, game.world, game.roster)
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
        asked = spec.scoring, spec.world, spec.wire, spec.privacy, spec.secure_sums
        method = configured(self._methods, spec.method, spec.config, *asked)
        return Game(
            method=method,
            world=seen(self.parts, spec.world, spec.initial_weights or ""),
            roster=roster,
            seed=spec.seed,
            threads=spec.threads,
            sampling=spec.sampling,
            base=base_files(spec),
            shares=spec.shares,
            computing=spec.computing,
            run=spec.id,
            masks=self._masks,
        )

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
            ours = Rules(game.sizes, finite=False, packing=game.method.packing)  # checked when it was written
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
        made, rules = {}, Rules(game.sizes, packing=game.method.packing_at(game.seed, turned.cursor))
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
