"""The coordinator's numbers: decode, advance, encode. Plain data in and out, so that it may run in a process of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch

from tideline.archive import layout
from tideline.archive.codec import Memo, Message, Rules, decode, decode_order, encode
from tideline.archive.parts import Parts
from tideline.core.algorithm import Algorithm, contract, nothing_of_note, rounds_of
from tideline.core.errors import ConfigRefused, Diverged, Malformed, NotFound, StepFailed
from tideline.core.handle import Handle
from tideline.core.phase import Each, Replies
from tideline.core.privacy import contract_digest, to_json
from tideline.core.record import Nothing
from tideline.core.registry import Methods, resolve
from tideline.core.run import ClientId, Digest, Member, Role, Roster, World, plain_world, world_in
from tideline.core.settings import parse, plain
from tideline.engine import advance
from tideline.engine.advance import Game, Turned
from tideline.engine.weights import check_brought, read_brought

LIVE_RUNS = 16  # runs whose state is held between checkpoints: nobody tells of one that was cancelled there


class NumericMill:
    """Plays turns over a store of parts. One call at a time: torch's global generator is not safe across threads.

    methods()                                    names and summaries
    describe(method)                             settings, presets, contract
    draft(method, preset, config, world, roster, weights) the checked config, the plan's facts, the contract
    begin(spec, roster, keep)                    the first state and what is asked first
    close(spec, roster, checkpoint, history, closing, keep)   the next state and what is asked next
    check(spec, cursor, asked, reply)            nothing, or a Malformed error
    """

    def __init__(self, parts: Parts, methods: Methods) -> None:
        self.parts = parts
        self.methods = methods
        self._calls: Mapping[str, Callable[..., dict[str, Any]]] = {
            "methods": self.list_methods,
            "describe": self.describe,
            "draft": self.draft,
            "begin": self.begin,
            "close": self.close,
            "check": self.check,
        }
        # The state of a run between checkpoints and the rounds that made it, so that a quiet round is not computed again.
        self._live: dict[str, tuple[Any, Any]] = {}

    def call(self, name: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """One call by name. Raises NotFound for an unknown one, else what the call raises."""
        if name not in self._calls:
            raise NotFound(f"The mill has no call {name!r}")
        return self._calls[name](**payload)

    def list_methods(self) -> dict[str, Any]:
        """Every method with its summary and source."""
        found = [resolve(self.methods, name) for name, _ in self.methods]
        return {"methods": [{"name": a.name, "summary": a.summary, "paper": a.paper} for a in found]}

    def describe(self, method: str, preset: str | None = None) -> dict[str, Any]:
        """One method's settings with their bounds, its presets, and the contract of its defaults or a preset."""
        algorithm = resolve(self.methods, method)
        config = algorithm.configure({}, preset)
        clauses = contract(algorithm, config)
        return {
            "name": algorithm.name,
            "summary": algorithm.summary,
            "paper": algorithm.paper,
            "settings": settings_of(algorithm.config),
            "presets": {k: dict(v) for k, v in algorithm.presets.items()},
            "cast": [role.value for role in algorithm.cast],
            "network": algorithm.network,
            "contract": to_json(clauses),
            "sentences": [c.sentence() for c in clauses],
            "claims": list(algorithm.claims),
            "weights": algorithm.supplied is not None,
            "digest": contract_digest(clauses),
        }

    def draft(self, method: str, preset: str | None, config: Any, world: Any, roster: Any, weights: str = "") -> dict[str, Any]:
        """Check an experiment before anybody is asked. Raises Refused errors with `context["path"]`.

        weights: digest of the file that it begins from, if it brings one; then it comes back with the file's bytes.
        """
        algorithm = resolve(self.methods, method)
        settings = algorithm.configure(config, preset)
        place = world_in(world)
        self.fits(algorithm, weights)(settings, place, members_of(roster))
        noted = algorithm.supplied.notes if weights and algorithm.supplied else nothing_of_note
        brought = {"weights": weights, "weights_bytes": check_brought(self.parts, place, Digest(weights))} if weights else {}
        clauses = contract(algorithm, settings)
        plan = algorithm.plan(settings)
        facts = [
            {"phase": p.name, "step": p.step.name if p.step else "", "round": r, "floor": p.floor, "needs": p.needs}
            for p, r in zip(plan, rounds_of(plan), strict=True)
        ]
        return {
            "config": plain(settings),
            "world": plain_world(place),
            "plan": facts,
            "contract": to_json(clauses),
            "digest": contract_digest(clauses),
            "keeps": algorithm.memory is not Nothing,
            "notes": [*algorithm.notes(settings, place), *noted(settings, place, members_of(roster))],
            "admins": algorithm.admins,
            "kept": [f.name for f in dataclasses.fields(algorithm.config) if f.metadata.get("kept")],
            **brought,
        }

    def fits(self, algorithm: Algorithm, weights: str) -> Callable[[Any, World, Roster], None]:
        """What holds world and roster to the method, with weights or without. Raises ConfigRefused where it takes none."""
        if not weights:
            return algorithm.fits
        if algorithm.supplied is None:
            takers = [name for name, _ in self.methods if resolve(self.methods, name).supplied is not None]
            instead = f", or use one of: {', '.join(takers)}" if takers else ""
            what = f"{algorithm.name} begins from no weights that a person brings"
            raise ConfigRefused(what, f"Leave weights out{instead}", path="weights")
        return algorithm.supplied.fits

    def begin(self, spec: Any, roster: Any, keep: bool) -> dict[str, Any]:
        """The first state and the first orders."""
        game, digest = self.game(spec, roster), spec.get("weights", "")
        self.fits(game.algorithm, digest)(game.config, game.world, game.roster)
        weights = read_brought(self.parts, game.world, Digest(digest)) if digest else None
        return self.encoded(game, advance.begin(game, weights), keep) | {"fingerprint": fingerprint(game.threads)}

    def close(self, spec: Any, roster: Any, checkpoint: Any, history: Any, closing: Any, keep: bool) -> dict[str, Any]:
        """Fold the closing round; rounds since the checkpoint are computed again where the mill does not hold their state."""
        game = self.game(spec, roster)
        state = self.state_at(spec["id"], game, checkpoint, history, closing)
        turned = advance.close(game, state, closing["cursor"], self.replies(game, closing))
        made = self.encoded(game, turned, keep)
        if not made["state"]:
            self._live[spec["id"]] = ((checkpoint, [*history, closing]), turned.state)
            self._live = dict(list(self._live.items())[-LIVE_RUNS:])
        return made

    def check(self, spec: Any, cursor: int, asked: Digest, reply: Digest) -> dict[str, Any]:
        """Hold a reply to its declaration."""
        game = self.game(spec, ())
        self.reply(game, cursor, asked, reply)
        return {}

    def game(self, spec: Any, roster: Any) -> Game:
        """A run's plain data with its method resolved."""
        algorithm = resolve(self.methods, spec["method"])
        config = algorithm.configure(spec["config"])
        world = parse(World, spec["world"], "world")
        return Game(algorithm, config, world, algorithm.plan(config), members_of(roster), spec["seed"], spec["threads"])

    def state_at(self, run: str, game: Game, checkpoint: Any, history: Any, closing: Any) -> Any:
        """The state that waits at the closing cursor: live, from the checkpoint, or computed again from there."""
        made_by, live = self._live.pop(run, (None, None))
        # Another coordinator may have closed a round with other replies than this mill did: the journal's history decides.
        if made_by == (checkpoint, list(history)):
            return live
        state = decode(game.algorithm.state, checkpoint["state"], self.parts)
        for i, past in enumerate(history):
            turned = advance.close(game, state, past["cursor"], self.replies(game, past))
            expected = history[i + 1] if i + 1 < len(history) else closing
            self.compare(game, turned, expected)
            state = turned.state
        return state

    def compare(self, game: Game, turned: Turned, expected: Any) -> None:
        """What a recomputed round asks must be what was asked."""
        asked = {c: m.digest for c, m in self.messages(game, turned, Memo()).items()}
        if turned.cursor != expected["cursor"] or asked != dict(expected["asked"]):
            raise Diverged(
                f"Round {expected['cursor']} computed again differs from the recorded one",
                "The machine's numerics changed (torch version, processor, threads); begin the run again",
            )

    def replies(self, game: Game, closing: Any) -> Replies[Any]:
        """The recorded replies, each decoded when it is looked at."""
        at, asked = closing["cursor"], closing["asked"]
        load = {ClientId(c): partial(self.reply, game, at, asked[c], reply) for c, reply in sorted(closing["replies"].items())}
        return Replies(load, closing["metrics"])

    def reply(self, game: Game, cursor: int, asked: Digest, digest: Digest) -> Any:
        """One reply, held to its declaration, to the order's names, shapes and dims, and to the method's and world's sizes."""
        step = game.plan[cursor].step
        assert step is not None
        ours = Rules(game.sizes, finite=False)  # checked when it was written
        _, rules = decode_order(step.takes, asked, self.parts, ours)
        return decode(step.gives, digest, self.parts, rules)

    def encoded(self, game: Game, turned: Turned, keep: bool) -> dict[str, Any]:
        """A turn as plain data: state (if it is kept, or the last) and orders, with their files."""
        done = turned.cursor == len(game.plan)
        memo = Memo()
        try:
            state = encode(turned.state, self.parts, memo=memo) if keep or done else None
            orders = self.messages(game, turned, memo)
        except Malformed as cause:
            raise StepFailed(
                f"What the method made cannot be kept or sent: {cause.what}", "Look at the sites' metrics, and begin again"
            ) from cause
        return {
            "cursor": turned.cursor,
            "done": done,
            "state": state.files if state else (),
            "sealed": told_handles(state.handles if state else ()),
            "orders": {client: message.files for client, message in orders.items()},
            "handles": {client: told_handles(message.handles) for client, message in orders.items() if message.handles},
            "marks": plain(turned.marks),
            "groups": plain(turned.groups),
            "tables": plain(turned.tables),
        }

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


def told_handles(handles: Iterable[Handle[Any]]) -> list[list[Any]]:
    """Handles as plain data."""
    return [layout.handle_node(each) for each in handles]


def members_of(roster: Any) -> Roster:
    """A roster from plain data."""
    return tuple(Member(ClientId(m["id"]), Role(m["role"]), bool(m["labelled"])) for m in roster)


def settings_of(config: type[Any]) -> list[dict[str, Any]]:
    """A config's settings: name, default, bounds, choices and their sentence."""
    return [
        {"name": f.name, "type": str(f.type), "default": plain(default(f)), **described(f.metadata)}
        for f in dataclasses.fields(config)
    ]


def default(setting: dataclasses.Field[Any]) -> Any:
    """What a setting is where nobody says."""
    return setting.default if setting.default_factory is dataclasses.MISSING else setting.default_factory()


def described(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What people are told of a setting."""
    return {k: plain(v) for k, v in metadata.items() if k not in ("late", "kept")}


def fingerprint(threads: int) -> str:
    """What equal bytes depend on: torch, the processor's instructions, the number of threads."""
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {threads} threads"
