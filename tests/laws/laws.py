"""The laws that every method keeps, as functions of a case, so that a method outside the registry can be held to them too."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.laws.case import ALSO_SENT, SAME_SHAPE, SENDS_ROWS, Case
from tests.laws.stage import Cuts, Stage, ready, registered
from tests.laws.trace import answered, asked
from tests.laws.values import leaves, like, raw, repeated, seen, survives
from tests.synthetic import CLASSES, TRAIN, Rows, rows
from tideline.archive.checks import LAX
from tideline.archive.layout import parse
from tideline.archive.reader import decode
from tideline.core.algorithm import contract
from tideline.core.asked.scoring import Scoring
from tideline.core.asked.world import World
from tideline.core.errors import Refused
from tideline.core.privacy import Audience, Exposure
from tideline.core.record import leaves as declared_leaves
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId, Role, RunId
from tideline.core.step import Data
from tideline.engine.model.orders import Order, OrderRow
from tideline.engine.model.runs import JOIN, Status
from tideline.engine.ports.site import Head
from tideline.engine.simulation.federation import SimSite
from tideline.learning.rows.decoded import DecodedRows

EVERYTHING = frozenset((e, a) for e in Exposure for a in Audience)
Host = tuple[int, int, int]  # the seed of its generators, its threads, rounds between checkpoints
HOSTS: tuple[Host, ...] = ((1, 2, 1), (2, 1, 2), (3, 2, 3))
WINDOW = 32  # bytes that are recognised: eight float32
HEAD = 8  # bytes by which a piece is told from most others


def ending(stage: Stage, run: RunId) -> tuple[Any, ...]:
    """What must be equal: the final state, every order, every reply, every memory."""
    row = stage.row(run)
    assert row.status is Status.COMPLETED, row.cause
    return row.state_digest, asked(stage.journal, run), answered(stage.journal, run), stage.memories(run)


# Law 1


def archive_keeps_all(case: Case) -> None:
    """State, memory and every message come back from the archive bit for bit, and the files say what the values said."""
    shown: list[str] = []

    def look(kind: str, value: Any) -> None:
        shown.append(kind)
        survives(value)

    stage, run = case.played(case.stage(registered(seen(case.algorithm, look))))
    assert stage.row(run).status is Status.COMPLETED, stage.row(run).cause
    assert {"state", "order", "reply", "memory"} <= set(shown)
    files_hold_records(case, stage, run)


def files_hold_records(case: Case, stage: Stage, run: RunId) -> None:
    """Every recorded file is one of its declared type, and survives too."""
    plan = case.plan
    for order in stage.journal.orders(run):
        if order.cursor != JOIN:
            step = plan[order.cursor].step
            assert step is not None
            survives(decode(step.takes, order.files[0][0], stage.parts, LAX))
            survives(reply_of(case, stage, order))
    for closed in stage.journal.rounds(run):
        if closed.state:
            survives(decode(case.in_world.state, closed.state[0][0], stage.parts, LAX))
    for name, files in stage.memories(run).items():
        survives(decode(case.in_world.memory, files[0][0], stage.vaults[name].parts(run), LAX))


# Law 2


def functions_are_pure(case: Case) -> None:
    """begin, prepare, ask, fold and step give equal bytes when they are called again, and leave their arguments alone."""
    stage, run = case.played(case.stage(registered(repeated(case.algorithm))))
    plain, other = case.played()
    # Being called twice changes nothing either.
    assert ending(stage, run) == ending(plain, other)


# Law 3


@contextmanager
def another_process(seed: int, threads: int) -> Iterator[None]:
    """The host process has other global generators and another number of threads."""
    before, kept = torch.get_num_threads(), (random.getstate(), np.random.get_state(), torch.get_rng_state())
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        torch.set_rng_state(kept[2])


def arrival_does_not_matter(case: Case, hosts: Iterable[Host] = HOSTS) -> None:
    """Any order of arrival, any duplicate, any global seed, number of threads and pace of checkpoints: the same ending."""
    expected = ending(*case.played())
    for seed, threads, every in hosts:
        with another_process(seed, threads):
            stage = case.stage()
            run = stage.start(case.experiment(checkpoint_every=every))
            shuffled(stage, run, random.Random(seed))
        assert ending(stage, run) == expected


def shuffled(stage: Stage, run: RunId, rng: random.Random) -> None:
    """Play a run with replies in random order, everything delivered twice, old orders again among the new."""
    old: list[Order] = []

    def choose(orders: list[Order]) -> list[Order]:
        old.extend(orders)
        chosen = [*orders, *orders, *rng.sample(old, min(len(old), 3))]
        rng.shuffle(chosen)
        return chosen

    stage.play(run, choose)
    assert len(stage.jobs) == len(set(stage.jobs)), "a step was run twice"


# Law 4


def restarts_change_nothing(case: Case, **more: Any) -> None:
    """Restarting every process before any one action, or at every place in one run, changes no byte of the ending.

    more: of the experiment; with one round fewer actions are cut.
    """
    whole = case.stage()
    run = whole.start(case.experiment(**more))
    length = sum(1 for action in whole.actions(run) if action() or True)
    expected = ending(whole, run)
    for at in range(length):
        stage = case.stage()
        run = stage.start(case.experiment(**more))
        for i, action in enumerate(stage.actions(run)):
            if i == at:
                stage.rebuild()
            action()
        assert ending(stage, run) == expected, f"cut before action {at}"
    for every in (1, 2):
        cuts = Cuts(every=True)
        stage, run = case.played(case.stage(cuts=cuts), checkpoint_every=every, **more)
        assert {place[0] for place in cuts.reached} >= {"commit", "committed", "report", "reported", "advance", "advanced"}
        assert ending(stage, run) == expected


def old_memory_is_noticed(case: Case) -> None:
    """A site restored to before its last commit: a method that keeps memory stalls and says so, any other goes on."""
    expected = ending(*case.played())
    stage = case.stage()
    run = stage.start(case.experiment())
    keeps = stage.row(run).spec.keeps
    victim = busiest(case)
    for action in stage.actions(run):
        action()
        if len(stage.vaults[victim].past) == 2:
            break
    joined, worked = stage.vaults[victim].past
    stage.vaults[victim].restore(run, joined)
    row = stage.play(run)
    if not keeps:
        assert ending(stage, run) == expected
        return
    assert row.status is Status.STALLED
    assert victim in row.cause
    assert "memory" in row.cause
    assert kinds(stage, run, victim) == ["MemoryLost"]
    # The owner puts the right home back, and the run goes on as if nothing had been.
    stage.vaults[victim].restore(run, worked)
    stage.run_service.resume(run)
    stage.play(run)
    assert ending(stage, run) == expected


def lost_reply_is_noticed(case: Case) -> None:
    """A site that worked but whose reply is gone cannot work again from the wrong memory: the run stalls and says so."""
    cuts = Cuts()
    stage = case.stage(cuts=cuts)
    run = stage.start(case.experiment())
    victim = busiest(case)
    vault = stage.vaults[victim]
    for action in stage.actions(run):
        action()
        if any(o.cursor != JOIN for o in stage.agent_service.orders(victim)):
            break
    (order,) = stage.agent_service.orders(victim)
    head = ready(stage.agents[victim], order)
    for digest, _ in head.reply:
        vault.parts(run).drop(digest)
    row = stage.play(run)
    assert row.status is Status.STALLED
    assert victim in row.cause
    assert kinds(stage, run, victim) == ["MemoryAhead"]


def busiest(case: Case) -> ClientId:
    """The site that is asked most often, the first of them."""
    stage, run = case.played()
    names = [o.client for o in stage.journal.orders(run)]
    return max(sorted(set(names)), key=names.count)


def kinds(stage: Stage, run: RunId, client: str) -> list[str]:
    """The kinds of a site's failures."""
    found = next(c for c in stage.result(run)["clients"] if c["name"] == client)
    return [f["kind"] for f in found["failures"]]


# Law 6


def site_data_stay(case: Case) -> None:
    """Rows, runs of labels and memory never appear among the bytes that pass a link, and nothing has a row per sample."""
    stage = case.stage(**{name: planted(i, site) for i, (name, site) in enumerate(case.sites().items())})
    run = stage.start(case.experiment())
    stage.play(run)
    assert stage.row(run).status is Status.COMPLETED, stage.row(run).cause
    wire = stage.wire.all()
    assert len(wire) > 0
    exposed = {c.exposure for c in contract(case.in_world, case.config, Scoring())} & {Exposure.FEATURES, Exposure.SAMPLES}
    open_rows = case.name in SENDS_ROWS
    assert open_rows == bool(exposed), "a method that declares rows or features has a line in SENDS_ROWS, and no other has"
    assert not among(() if open_rows else canaries(case), wire)
    up = b"|".join(b for _, _, b in stage.wire.up) + repr(stage.wire.words).encode()
    kept = {window: field for field, tensor in memory_tensors(case, stage, run) for window in windows(tensor)}
    assert not (left := {kept[window] for window in among(kept, up)}), f"memory's {left} left the site"
    no_shape_of_memory(case, stage, run, open_rows)


def planted(domain: int, site: SimSite) -> SimSite:
    """A site whose first rows, and the order of whose labels, are recognisable."""
    return replace(site, open_site_data=lambda world, role: canary_rows(domain, world))


def canary_rows(domain: int, world: World) -> Rows:
    """Rows with canaries: random numbers that nothing else holds, and labels in a random order."""
    plain = rows(domain, world)

    def plant(data: Data, seed: int) -> Data:
        rng = torch.Generator().manual_seed(seed)
        x = data.x.all().clone()
        x[:4] = torch.rand(x[:4].shape, generator=rng)
        return replace(data, x=MemoryRows(x), y=torch.randint(CLASSES, (len(data),), generator=rng))

    return Rows(plant(plain.train, 99 + domain), plant(plain.held_out, 199 + domain))


def canaries(case: Case) -> list[bytes]:
    """The planted rows and label runs of every site, in the types that a message may have, and their numbers as text."""
    found = []
    world = World(**{k: tuple(v) if isinstance(v, list) else v for k, v in case.experiment()["world"].items()})
    for i in range(len(case.roster)):
        both = canary_rows(i, world)
        for data in (both.train, both.held_out):
            assert data.y is not None
            found += [repr(float(value)).encode() for value in data.x.all()[:4].flatten()]
            for dtype in (torch.float32, torch.float64):
                found += [raw(row.to(dtype))[:WINDOW] for row in data.x.all()[:4]]
            for dtype in (torch.int64, torch.uint8, torch.float32):
                found.append(raw(data.y[:32].to(dtype)))
    return found


def windows(tensor: Tensor) -> Iterator[bytes]:
    """Pieces of a tensor that are long and varied enough to be recognised."""
    data = raw(tensor)
    for at in range(0, len(data) - WINDOW + 1, WINDOW):
        piece = data[at : at + WINDOW]
        if tensor.is_floating_point() and len(set(piece)) > 8:
            yield piece


def among(pieces: Iterable[bytes], passed: bytes) -> set[bytes]:
    """Those of the pieces that occur in the bytes, at whatever place."""
    wanted = set(pieces)
    long = [piece for piece in wanted if len(piece) >= HEAD]
    heads = np.unique(np.array([int.from_bytes(piece[:HEAD], "little") for piece in long], np.dtype("<u8")))
    met: set[int] = set()
    for first in range(HEAD if len(heads) else 0):  # words that begin at every place
        words = np.frombuffer(passed, np.dtype("<u8"), max(len(passed) - first, 0) // HEAD, min(first, len(passed)))
        place = np.searchsorted(heads, words).clip(max=len(heads) - 1)
        met.update(words[heads[place] == words].tolist())
    maybe = [piece for piece in wanted if len(piece) < HEAD or int.from_bytes(piece[:HEAD], "little") in met]
    return {piece for piece in maybe if piece in passed}


def memory_tensors(case: Case, stage: Stage, run: RunId) -> Iterator[tuple[str, Tensor]]:
    """Every tensor that any site ever kept, outside the fields that the method also sends."""
    known = {c.field.split(".")[0] for c in contract(case.in_world, case.config, Scoring())}
    for vault in stage.vaults.values():
        for head in vault.past:
            if not vault.parts(run).has(head.memory[0][0]):
                continue
            memory = decode(case.in_world.memory, head.memory[0][0], vault.parts(run), LAX)
            for path, value in leaves(memory):
                if isinstance(value, Tensor) and path.split(".")[0] not in ALSO_SENT.get(case.name, ()):
                    yield f"{path} (reply fields: {sorted(known)})", value


def no_shape_of_memory(case: Case, stage: Stage, run: RunId, open_rows: bool) -> None:
    """No tensor of a reply has the shape of one that only memory holds, or an axis of a row per sample."""
    sent = {tuple(t.shape) for _, _, t in reply_tensors(case, stage, run)}
    like_it = (
        *SAME_SHAPE.get(case.name, ()),
        *(["normalised_by"] if case.normalise == "shared" else []),
        *(["corrected_by"] if case.prior == "em" else []),
    )  # the mean of what is sent; a number for each class
    kept = {tuple(t.shape): path for path, t in memory_tensors(case, stage, run) if re.split("[. ]", path)[0] not in like_it}
    assert not sent & kept.keys(), [kept[shape] for shape in sent & kept.keys()]
    assert open_rows or not any(TRAIN in shape for shape in sent)


def reply_tensors(case: Case, stage: Stage, run: RunId) -> Iterator[tuple[Any, str, Tensor]]:
    """(order row, field, tensor) of every reply."""
    for order in stage.journal.orders(run):
        if order.cursor != JOIN and order.reply:
            for path, value in leaves(reply_of(case, stage, order)):
                if isinstance(value, Tensor):
                    yield order, path, value


def peers_see_what_is_declared(case: Case) -> None:
    """One site's own value reaches no other site's order, unless its clause says so."""
    stage, run = case.played()
    plan = case.plan
    wire = stage.wire
    for order, path, tensor in reply_tensors(case, stage, run):
        step = plan[order.cursor].step
        assert step is not None
        declared = next(leaf for leaf in declared_leaves(step.gives) if path_fits(leaf.path, path))
        if Audience.PEERS in declared.audience:
            continue
        # What the site was sent, or what another site answered too (weights that no row reaches), is not its own.
        common = [b for name, cursor, b in wire.down if name == order.client and cursor <= order.cursor]
        common += [b for name, cursor, b in wire.up if name != order.client and cursor == order.cursor]
        others = b"|".join(b for name, cursor, b in wire.down if name != order.client and cursor > order.cursor)
        for window in among(windows(tensor), others):
            assert any(window in b for b in common), f"{order.client}'s {path} reached another site"


def reply_of(case: Case, stage: Stage, order: OrderRow) -> Any:
    """A recorded reply; what it must be like stands in the order, the first state or the site's memory."""
    step = case.plan[order.cursor].step
    assert step is not None
    parts = stage.parts
    asked_for = order_of(case, stage, order)
    state = decode(case.in_world.state, stage.journal.rounds(order.run)[0].state[0][0], parts, LAX)
    return decode(step.gives, order.reply[0][0], parts, like(asked_for, state))


def order_of(case: Case, stage: Stage, order: OrderRow) -> Any:
    """A recorded message to a site."""
    step = case.plan[order.cursor].step
    assert step is not None
    return decode(step.takes, order.files[0][0], stage.parts, LAX)


def path_fits(declared: str, path: str) -> bool:
    """Whether a value's place lies in a declared field; `*` stands for a key."""
    ours, theirs = declared.split("."), path.split(".")
    return all(a in ("*", b) for a, b in zip(ours, theirs, strict=False))


def stays_sealed(case: Case) -> int:
    """No piece of a sealed value is among the bytes that pass, but what its holder was sent or sent before: their number."""
    stage, run = case.played()
    wire, found = stage.wire.all(), 0
    for name, vault in stage.vaults.items():
        for head in vault.past:
            common = b"|".join(b for who, at, b in stage.wire.down if who == name and at <= head.cursor)
            common += b"|".join(b for who, at, b in stage.wire.up if who == name and at < head.cursor)
            for piece in pieces(stage, name, run, head):
                found += 1
                assert piece not in wire or piece in common, f"{name}'s value of exchange {head.cursor} passed unsealed"
    return found


def pieces(stage: Stage, name: str, run: RunId, head: Head) -> Iterator[bytes]:
    """Pieces of what a site gave its peers that are varied enough to be recognised."""
    parts = stage.vaults[name].parts(run)  # type: ignore[index]
    for envelope in head.sealed:
        view = parts.view(envelope.handle.digest)  # type: ignore[arg-type]
        data = bytes(view[parse(view).data_start :])
        for at in range(0, len(data) - WINDOW + 1, WINDOW):
            piece = data[at : at + WINDOW]
            if len(set(piece)) > 8:
                yield piece


# Law 7


def first_exchange(case: Case) -> tuple[int, list[ClientId]]:
    """The first cursor at which more than one site is asked, and who."""
    stage, run = case.played()
    orders = stage.journal.orders(run)
    for cursor in sorted({o.cursor for o in orders} - {JOIN}):
        names = sorted(o.client for o in orders if o.cursor == cursor)
        if len(names) > 1:
            return cursor, names
    raise AssertionError("the method never asks two sites at once: give it a case of its own")


def a_quorum_goes_on(case: Case) -> None:
    """One site is lost: with a quorum the round closes at the deadline without it, and the reason is recorded."""
    cursor, names = first_exchange(case)
    stage = case.stage()
    run = stage.start(case.experiment(waiting={"min_replies": 1, "deadline": 60.0}))
    row = stage.play(run, lose(stage, names[0], cursor))
    if row.status is not Status.COMPLETED:
        assert row.status in (Status.STALLED, Status.FAILED)
        assert row.cause
        return
    closed = next(r for r in stage.journal.rounds(run) if r.cursor == cursor)
    assert names[0] not in closed.folded
    assert closed.closed - closed.opened >= 60.0
    failures = next(c for c in stage.result(run)["clients"] if c["name"] == names[0])["failures"]
    assert failures[0]["kind"] == "Silent"
    assert failures[0]["phase"] == closed.phase
    assert failures[0]["what"]


def no_quorum_stalls(case: Case) -> None:
    """One site is lost without a quorum: the run stalls naming site and phase; resumed, it ends as if nothing had been."""
    expected = ending(*case.played())
    cursor, names = first_exchange(case)
    stage = case.stage()
    run = stage.start(case.experiment())
    row = stage.play(run, lose(stage, names[0], cursor))
    assert row.status is Status.STALLED
    assert names[0] in row.cause
    assert row.plan[cursor].phase in row.cause
    stage.run_service.resume(run)
    stage.play(run)
    assert ending(stage, run) == expected


def lose(stage: Stage, client: ClientId, cursor: int) -> Callable[[list[Order]], list[Order]]:
    """Everybody answers but one site, from an exchange on."""

    def choose(orders: list[Order]) -> list[Order]:
        silent = {o.id for o in stage.journal.open_orders(client) if o.cursor >= cursor}
        return [o for o in orders if o.id not in silent]

    return choose


def one_site_in_all(case: Case) -> None:
    """With a single site a method works, or refuses with a sentence that says what to do."""
    for name, role in case.roster.items():
        stage = case.stage()
        try:
            run = stage.start(case.experiment(roster={name: role}))
        except Refused as refusal:
            assert refusal.what
            assert refusal.todo
            continue
        row = stage.play(run)
        assert row.status is Status.COMPLETED or row.cause


def every_clause_can_be_forbidden(case: Case) -> None:
    """A site whose owner forbids a kind of clause joins no run: the run stalls before any step and names every such clause."""
    clauses = contract(case.in_world, case.config, Scoring())
    for exposure, audience in sorted({(clause.exposure, audience) for clause in clauses for audience in clause.audience}):
        name = min(case.roster)
        stage = case.stage(**{name: replace(case.sites()[name], policy=EVERYTHING - {(exposure, audience)})})
        row = stage.play(stage.start(case.experiment()))
        assert row.status is Status.STALLED
        assert row.cursor == JOIN
        assert name in row.cause
        forbidden = [clause for clause in clauses if clause.exposure is exposure and audience in clause.audience]
        assert all(clause.sentence() in row.cause for clause in forbidden), row.cause
        assert all(cursor == JOIN for _, cursor in stage.jobs)


# Law 5 within one process; tests/acceptance hold it over the network


def where_rows_lie_does_not_matter(case: Case) -> None:
    """Rows that are made when they are asked for give the bytes that rows in memory give."""
    lazy = {name: replace(site, open_site_data=Elsewhere(site.open_site_data)) for name, site in case.sites().items()}
    assert ending(*case.played(case.stage(**lazy))) == ending(*case.played())


@dataclass(frozen=True)
class Elsewhere:
    """A site's data, none of whose rows are in memory as a tensor that a method could take."""

    inner: Callable[[World, Role], Any]

    def __call__(self, world: World, role: Role) -> Rows:
        held = self.inner(world, role)
        return Rows(elsewhere(held.train), elsewhere(held.held_out))


def elsewhere(data: Data) -> Data:
    x = data.x.all()
    return replace(data, x=DecodedRows(len(x), data.x.shape, x.__getitem__, numbers=True))
