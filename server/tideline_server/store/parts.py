"""Parts: which are known, who refers to them, and who may learn that they are here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam, delete, exists, func, insert, or_, select, update

from tideline.core.run import ClientId, Digest, RunId
from tideline.core.settings import Plain
from tideline.engine.model.orders import Files, OrderRow
from tideline.engine.model.transitions import REMEMBERED_SECONDS
from tideline_server.store.database.dialect import upsert
from tideline_server.store.database.prepared import prepared
from tideline_server.store.listings import BATCH, Listed, batches, digests_in, in_batches
from tideline_server.store.schema import dropped, listings, loose, members, parts, pushed, refs, store_marker

OF_RUN = refs.c.run == bindparam("of")
BEST = "best"  # what refers to the state of a run's best round, at the cursor of that scoring
OLD = OF_RUN & (refs.c.cursor < bindparam("before")) & (refs.c.kind != BEST)
FORMER_BEST = OF_RUN & (refs.c.cursor < bindparam("before")) & (refs.c.kind == BEST)
LAST_STATE = select(func.max(refs.c.cursor)).where(OF_RUN, refs.c.kind == "state")
REPLY = OF_RUN & (refs.c.cursor == bindparam("at")) & refs.c.kind.in_(("reply", "sealed")) & (refs.c.owner == bindparam("by"))
NOT_LAST = OF_RUN & (refs.c.kind != BEST) & or_(refs.c.kind != "state", refs.c.cursor != bindparam("last"))

CLAIMED = ("run", "cursor", "kind", "owner", "client")
FRESH_SECONDS = 1.0  # for which a touched part is not touched again
# A client's own parts: pushed for the answer at hand, or named by a live order to it or a live reply of it.
PUSHED = exists().where(pushed.c.digest == parts.c.digest, pushed.c.run == bindparam("of"), pushed.c.client == bindparam("by"))
NAMED = (
    exists()
    .select_from(members.join(refs, refs.c.listing == members.c.listing))
    .where(members.c.digest == parts.c.digest, refs.c.run == bindparam("of"), refs.c.client == bindparam("by"))
)
SOME = parts.c.digest.in_(bindparam("digests", expanding=True))
KNOWN = select(parts.c.digest).where(SOME)
LIVE = exists().select_from(members.join(refs, refs.c.listing == members.c.listing)).where(members.c.digest == parts.c.digest)
HELD = prepared(select(parts.c.digest, parts.c.touched, parts.c.once_referred).where(SOME, or_(PUSHED, NAMED)))
FREE = select(parts.c.digest).where(SOME, or_(parts.c.once_referred, parts.c.touched < bindparam("before")), ~LIVE)
LEFT = select(parts.c.digest).where(SOME, parts.c.once_referred, ~LIVE)
WAITING = select(parts.c.digest).where(~parts.c.once_referred, parts.c.touched < bindparam("before"), ~LIVE)
NOTED = select(loose).where(loose.c.id > bindparam("after")).order_by(loose.c.id).limit(BATCH).with_for_update(skip_locked=True)
STRIKE = delete(loose).where(loose.c.id.in_(bindparam("ids", expanding=True)))
PRESENT = prepared(select(parts.c.digest).where(SOME).order_by(parts.c.digest).with_for_update())
DOUBTFUL = prepared(select(dropped.c.digest).where(dropped.c.digest.in_(bindparam("digests", expanding=True))))
VOUCH = delete(dropped).where(dropped.c.digest.in_(bindparam("digests", expanding=True)))
PAST = select(dropped.c.digest).where(dropped.c.at < bindparam("before")).limit(BATCH).with_for_update(skip_locked=True)
TOUCH = prepared(update(parts).where(SOME).values(touched=bindparam("at"), once_referred=False))
REFER = prepared(insert(refs))
FORGET_PUSHED = prepared(delete(pushed).where(pushed.c.run == bindparam("of"), pushed.c.client == bindparam("by")))


@dataclass(frozen=True)
class Claim:
    """A reference to files: of an order's message, a reply, a run's state, or what these name for peers.

    owner, client: the order, and whose it is; empty where it is the run's own.
    """

    kind: str
    run: RunId
    cursor: int
    files: Files
    owner: str = ""
    client: str = ""


def lay(connection: Connection, claims: Iterable[Claim], now: float) -> None:
    """Write a row for every claimed part. No collection takes one until this transaction ends.

    Call it before you look at listings: a collection that was first has emptied those of its parts.
    """
    named = sorted(digests_in({claim.files: None for claim in claims}))
    touched: list[dict[str, Plain]] = [{"digest": digest, "touched": now, "once_referred": True} for digest in named]
    upsert(connection, parts, touched, "touched", "once_referred")


def refer(connection: Connection, claims: Iterable[Claim], known: Listed) -> None:
    """Write references to laid parts. `known`: the kept listings of their files."""
    real = [claim for claim in claims if claim.files]
    rows = [{name: getattr(c, name) for name in CLAIMED} | {"listing": known[c.files]} for c in real]
    if rows:
        connection.execute(REFER, rows)


def trim(connection: Connection, run: RunId, retain_from: int) -> None:
    let_go(connection, OLD, {"of": run, "before": retain_from})


def replace_best(connection: Connection, run: RunId, cursor: int) -> None:
    """Let go of the states of rounds that were the best before the one at this cursor."""
    let_go(connection, FORMER_BEST, {"of": run, "before": cursor})


def leave(connection: Connection, order: OrderRow) -> None:
    """Let go of an order's reply, and of what it brought for peers."""
    let_go(connection, REPLY, {"of": order.run, "at": order.cursor, "by": order.id})


def release(connection: Connection, run: RunId) -> None:
    """Let go of all but the last state and the best round's."""
    last = connection.scalar(LAST_STATE, {"of": run}) or 0
    let_go(connection, NOT_LAST, {"of": run, "last": last})


def let_go(connection: Connection, which: ColumnElement[bool], values: Mapping[str, str | int]) -> None:
    """End references, and note their parts for the next collection. It touches no part's row, so nobody waits."""
    named = select(members.c.digest).distinct().join(refs, refs.c.listing == members.c.listing).where(which)
    connection.execute(insert(loose).from_select(["digest"], named), values)
    connection.execute(delete(refs).where(which), values)


def add(connection: Connection, digests: Iterable[Digest], run: RunId, client: ClientId, now: float) -> None:
    """Note pushed parts, which wait for the report that names them."""
    names = sorted(set(digests))
    touched: list[dict[str, Plain]] = [{"digest": digest, "touched": now, "once_referred": False} for digest in names]
    upsert(connection, parts, touched, "touched", "once_referred")
    upsert(connection, pushed, [{"digest": digest, "run": run, "client": client} for digest in names])


def present(connection: Connection, digests: Collection[Digest], here: Callable[[Digest], bool]) -> bool:
    """Whether every part has a row and, if dropped lately, is here. They stay until this transaction ends."""
    if len(list(in_batches(connection, PRESENT, "digests", sorted(digests)))) < len(digests):
        return False
    found = doubtful(connection, digests)
    if not all(map(here, found)):
        return False
    vouch(connection, found)
    return True


def doubtful(connection: Connection, digests: Collection[Digest]) -> list[Digest]:
    """The parts that were dropped lately. Lock their rows first: then an earlier drop has been written."""
    return [Digest(row.digest) for row in in_batches(connection, DOUBTFUL, "digests", sorted(digests))]


def vouch(connection: Connection, digests: Collection[Digest]) -> None:
    """Forget that parts were dropped: they are here, and their rows are locked."""
    for some in batches(sorted(digests)):
        connection.execute(VOUCH, {"digests": some})


def held(
    connection: Connection, files: Files, run: RunId, client: ClientId, now: float
) -> tuple[frozenset[Digest], list[Digest]]:
    """The files that are here and the client's own in this run, and which of them to touch."""
    rows = list(in_batches(connection, HELD, "digests", digests_in([files]), of=run, by=client))
    stale = [row.digest for row in rows if row.once_referred or row.touched < now - FRESH_SECONDS]
    return frozenset(row.digest for row in rows), stale


def touch(connection: Connection, stale: Collection[Digest], now: float) -> None:
    """Put off the collection of parts."""
    for batch in batches(sorted(stale)):
        connection.scalars(PRESENT, {"digests": batch}).all()  # locked in order
        connection.execute(TOUCH, {"digests": batch, "at": now})


def drop_pushed(connection: Connection, run: RunId, client: ClientId) -> None:
    """Forget what a client pushed: the answer has come, and refers to it."""
    connection.execute(FORGET_PUSHED, {"of": run, "by": client})


@dataclass(frozen=True)
class Collected:
    """What a transaction forgot, and the last note that it read if there may be more."""

    gone: tuple[Digest, ...]
    after: int | None


def collect(
    connection: Connection, before: float, drop: Callable[[Collection[Digest]], object], most: int, after: int
) -> Collected:
    """Forget some parts that nothing refers to: those that once had a reference at once, others if untouched since `before`.

    It looks at parts that were let go (some notes of `loose` after `after`), then at those that waited too long. It skips parts
    whose rows are locked, locks the others, and looks again: whoever referred to one meanwhile has held its row.
    """
    noted = connection.execute(NOTED, {"after": after}).all()
    gone = unused(connection, FREE.limit(most), {"digests": sorted({row.digest for row in noted}), "before": before})
    if len(gone) < most:
        gone |= unused(connection, WAITING.limit(most - len(gone)), {"before": before})
    forget(connection, sorted(gone), before, drop)
    strike(connection, noted)
    return Collected(tuple(map(Digest, sorted(gone))), noted[-1].id if len(noted) == BATCH else None)


def unused(connection: Connection, among: Select[Any], values: Mapping[str, Any]) -> set[str]:
    """The parts that nobody refers to, or can refer to until this transaction ends."""
    chosen = among.order_by(parts.c.digest).with_for_update(skip_locked=True, of=parts)
    found = connection.scalars(chosen, values).all()
    return set(connection.scalars(FREE, {"digests": found, "before": values["before"]})) if found else set()


def forget(connection: Connection, gone: list[str], before: float, drop: Callable[[Collection[Digest]], object]) -> None:
    """Drop parts and all records of them. That they were dropped is remembered for a while."""
    if gone:
        drop(tuple(map(Digest, gone)))
        connection.execute(delete(parts).where(parts.c.digest.in_(gone)))
        connection.execute(delete(pushed).where(pushed.c.digest.in_(gone)))
        retire(connection, gone)
        upsert(connection, dropped, [{"digest": digest, "at": before} for digest in gone], "at")
    past = connection.scalars(PAST, {"before": before - REMEMBERED_SECONDS}).all()
    vouch(connection, [Digest(digest) for digest in past])


def strike(connection: Connection, noted: Sequence[Row[Any]]) -> None:
    """End the notes that were acted on. Notes of free parts stay that were locked, or above the limit.

    A part with a reference needs no note: whoever ends that reference writes another one.
    """
    digests = sorted({row.digest for row in noted})
    left = {row.digest for row in in_batches(connection, LEFT, "digests", digests)}
    for ids in batches([row.id for row in noted if row.digest not in left]):
        connection.execute(STRIKE, {"ids": ids})


def marker(connection: Connection) -> Digest | None:
    found = connection.scalar(select(store_marker.c.digest))
    return Digest(found) if found else None


def mark(connection: Connection, ours: Digest) -> Digest | None:
    """Write the marker, unless one is there; the one that stands."""
    upsert(connection, store_marker, [{"id": 1, "digest": ours}])
    return marker(connection)


def adopt(connection: Connection, found: Mapping[Digest, float]) -> int:
    known = {row.digest for row in in_batches(connection, KNOWN, "digests", sorted(found))}
    new = sorted(set(found) - known)
    upsert(connection, parts, [{"digest": digest, "touched": found[digest], "once_referred": False} for digest in new])
    return len(new)


def retire(connection: Connection, gone: list[str]) -> None:
    """Empty the listings that lost a part: nothing refers to them, and the same files sent again refill them."""
    broken = connection.scalars(select(members.c.listing).distinct().where(members.c.digest.in_(gone))).all()
    for batch in batches(broken):
        connection.execute(delete(members).where(members.c.listing.in_(batch)))
        connection.execute(update(listings).where(listings.c.id.in_(batch)).values(kept=False))
