"""Parts: which are known, who refers to them, who may be told that they are here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam, delete, exists, func, insert, or_, select, update

from tideline.core.run import ClientId, Digest, RunId
from tideline.engine.model.orders import Files, OrderRow
from tideline.engine.model.transitions import REMEMBERED_SECONDS
from tideline_server.store.database.dialect import upsert
from tideline_server.store.listings import BATCH, Listed, batches, digests_in
from tideline_server.store.schema import dropped, listings, loose, members, orders, parts, pushed, refs, store_marker

OF_RUN = refs.c.run == bindparam("of")
OLD = OF_RUN & (refs.c.cursor < bindparam("before"))
LAST_STATE = select(func.max(refs.c.cursor)).where(OF_RUN, refs.c.kind == "state")
REPLY = OF_RUN & (refs.c.cursor == bindparam("at")) & refs.c.kind.in_(("reply", "sealed")) & (refs.c.owner == bindparam("by"))
NOT_LAST = OF_RUN & or_(refs.c.kind != "state", refs.c.cursor != bindparam("last"))

FRESH_SECONDS = 1.0  # a part touched so lately need not be touched again
# A client's own parts: pushed for the answer at hand, or named by a live order to it or a live reply of it.
PUSHED = exists().where(pushed.c.digest == parts.c.digest, pushed.c.run == bindparam("of"), pushed.c.client == bindparam("by"))
NAMED = (
    exists()
    .select_from(members.join(refs, refs.c.listing == members.c.listing).join(orders, orders.c.id == refs.c.owner))
    .where(members.c.digest == parts.c.digest, refs.c.run == bindparam("of"), orders.c.client == bindparam("by"))
)
SOME = parts.c.digest.in_(bindparam("digests", expanding=True))
KNOWN = select(parts.c.digest).where(SOME)
LIVE = exists().select_from(members.join(refs, refs.c.listing == members.c.listing)).where(members.c.digest == parts.c.digest)
HELD = select(parts.c.digest, parts.c.touched, parts.c.once_referred).where(SOME, or_(PUSHED, NAMED))
FREE = select(parts.c.digest).where(SOME, or_(parts.c.once_referred, parts.c.touched < bindparam("before")), ~LIVE)
LEFT = select(parts.c.digest).where(SOME, parts.c.once_referred, ~LIVE)
WAITING = select(parts.c.digest).where(~parts.c.once_referred, parts.c.touched < bindparam("before"), ~LIVE)
NOTED = select(loose).where(loose.c.id > bindparam("after")).order_by(loose.c.id).limit(BATCH).with_for_update(skip_locked=True)
STRIKE = delete(loose).where(loose.c.id.in_(bindparam("ids", expanding=True)))
PRESENT = select(parts.c.digest).where(SOME).order_by(parts.c.digest).with_for_update()
DOUBTFUL = select(dropped.c.digest).where(dropped.c.digest.in_(bindparam("digests", expanding=True)))
VOUCH = delete(dropped).where(dropped.c.digest.in_(bindparam("digests", expanding=True)))
PAST = select(dropped.c.digest).where(dropped.c.at < bindparam("before")).limit(BATCH).with_for_update(skip_locked=True)
TOUCH = update(parts).where(SOME).values(touched=bindparam("at"), once_referred=False)


@dataclass(frozen=True)
class Claim:
    """Somebody's reference to files: an order's message, a reply, a run's state, or what these name for peers."""

    kind: str
    run: RunId
    cursor: int
    files: Files
    owner: str = ""


def lay(connection: Connection, claims: Iterable[Claim], now: float) -> None:
    """Write a row for every part that the claims name. From here on no collection takes one, until this transaction ends.

    Before any listing is looked at: a collection that was first has emptied those of its parts.
    """
    named = sorted(digests_in({claim.files: None for claim in claims}))
    touched = [{"digest": digest, "touched": now, "once_referred": True} for digest in named]
    upsert(connection, parts, touched, "touched", "once_referred")


def refer(connection: Connection, claims: Iterable[Claim], known: Listed) -> None:
    """Write references to parts that are laid. `known`: the files' listings, kept."""
    real = [claim for claim in claims if claim.files]
    rows = [{"run": c.run, "cursor": c.cursor, "kind": c.kind, "owner": c.owner, "listing": known[c.files]} for c in real]
    if rows:
        connection.execute(insert(refs), rows)


def trim(connection: Connection, run: RunId, retain_from: int) -> None:
    """Let go of what lies before a cursor."""
    let_go(connection, OLD, {"of": run, "before": retain_from})


def leave(connection: Connection, order: OrderRow) -> None:
    """Let go of an order's reply, and of what it brought for peers."""
    let_go(connection, REPLY, {"of": order.run, "at": order.cursor, "by": order.id})


def release(connection: Connection, run: RunId) -> None:
    """Let go of all but the last state."""
    last = connection.scalar(LAST_STATE, {"of": run}) or 0
    let_go(connection, NOT_LAST, {"of": run, "last": last})


def let_go(connection: Connection, which: ColumnElement[bool], values: Mapping[str, Any]) -> None:
    """End references, and note their parts for the next collection. Rows are added and no part's row is touched: nobody waits."""
    named = select(members.c.digest).distinct().join(refs, refs.c.listing == members.c.listing).where(which)
    connection.execute(insert(loose).from_select(["digest"], named), values)
    connection.execute(delete(refs).where(which), values)


def add(connection: Connection, digests: Iterable[Digest], run: RunId, client: ClientId, now: float) -> None:
    """Note pushed parts. They wait for the report that names them, whatever they were before."""
    rows = [{"digest": digest, "touched": now, "once_referred": False} for digest in sorted(set(digests))]
    upsert(connection, parts, rows, "touched", "once_referred")
    upsert(connection, pushed, [{"digest": row["digest"], "run": run, "client": client} for row in rows])


def present(connection: Connection, digests: Collection[Digest], here: Callable[[Digest], bool]) -> bool:
    """Whether every one of the parts has a row and, if it was dropped lately, is here. It stays until this transaction ends."""
    if any(len(connection.scalars(PRESENT, {"digests": some}).all()) < len(some) for some in batches(sorted(digests))):
        return False
    found = doubtful(connection, digests)
    if not all(map(here, found)):
        return False
    vouch(connection, found)
    return True


def doubtful(connection: Connection, digests: Collection[Digest]) -> list[Digest]:
    """Those of the parts that were dropped lately. Their rows are locked: a drop that was first has been written by now."""
    return [Digest(found) for some in batches(sorted(digests)) for found in connection.scalars(DOUBTFUL, {"digests": some})]


def vouch(connection: Connection, digests: Collection[Digest]) -> None:
    """Forget that these parts were dropped: they are there, and their rows are locked."""
    for some in batches(sorted(digests)):
        connection.execute(VOUCH, {"digests": some})


def held(
    connection: Connection, files: Files, run: RunId, client: ClientId, now: float
) -> tuple[frozenset[Digest], list[Digest]]:
    """Those of the files that are here and this client's own in this run; and those of them that should be touched."""
    here: dict[Digest, bool] = {}
    for batch in batches(digests_in([files])):
        rows = connection.execute(HELD, {"digests": batch, "of": run, "by": client})
        here |= {row.digest: row.once_referred or row.touched < now - FRESH_SECONDS for row in rows}
    return frozenset(here), [digest for digest, stale in here.items() if stale]


def touch(connection: Connection, stale: Collection[Digest], now: float) -> None:
    """Put off the collection of parts."""
    for batch in batches(sorted(stale)):
        connection.scalars(PRESENT, {"digests": batch}).all()  # locked in order
        connection.execute(TOUCH, {"digests": batch, "at": now})


def drop_pushed(connection: Connection, run: RunId, client: ClientId) -> None:
    """The answer has come: from here on its own reference speaks for what was pushed."""
    connection.execute(delete(pushed).where(pushed.c.run == run, pushed.c.client == client))


@dataclass(frozen=True)
class Collected:
    """What a transaction forgot, and the last note that it looked at if there may be more."""

    gone: tuple[Digest, ...]
    after: int | None


def collect(
    connection: Connection, before: float, drop: Callable[[Collection[Digest]], object], most: int, after: int
) -> Collected:
    """Forget some of the parts that nothing refers to: once referred to, at once; else if untouched since `before`.

    Asked about are parts that were let go (some notes of `loose` from `after` on) and those that have waited too long. One that
    somebody is writing a row for is left to the next collection. The others are locked first and looked at again then: who
    referred to one meanwhile has held its row.
    """
    noted = connection.execute(NOTED, {"after": after}).all()
    gone = unused(connection, FREE.limit(most), {"digests": sorted({row.digest for row in noted}), "before": before})
    if len(gone) < most:
        gone |= unused(connection, WAITING.limit(most - len(gone)), {"before": before})
    forget(connection, sorted(gone), before, drop)
    strike(connection, noted)
    return Collected(tuple(map(Digest, sorted(gone))), noted[-1].id if len(noted) == BATCH else None)


def unused(connection: Connection, among: Select[Any], values: Mapping[str, Any]) -> set[str]:
    """Those of the parts that nobody refers to or can refer to until this transaction ends."""
    chosen = among.order_by(parts.c.digest).with_for_update(skip_locked=True, of=parts)
    found = connection.scalars(chosen, values).all()
    return set(connection.scalars(FREE, {"digests": found, "before": values["before"]})) if found else set()


def forget(connection: Connection, gone: list[str], before: float, drop: Callable[[Collection[Digest]], object]) -> None:
    """Drop parts, and all that is known of them but that they were dropped; that, too, after a while."""
    if gone:
        drop(tuple(map(Digest, gone)))
        connection.execute(delete(parts).where(parts.c.digest.in_(gone)))
        connection.execute(delete(pushed).where(pushed.c.digest.in_(gone)))
        retire(connection, gone)
        upsert(connection, dropped, [{"digest": digest, "at": before} for digest in gone], "at")
    past = connection.scalars(PAST, {"before": before - REMEMBERED_SECONDS}).all()
    vouch(connection, [Digest(digest) for digest in past])


def strike(connection: Connection, noted: Sequence[Row[Any]]) -> None:
    """End the notes that were acted on. Those of parts that are free, but were somebody's just now or too many, stay.

    A part that is referred to needs none: who ends that reference writes another note, which we have not read.
    """
    digests = sorted({row.digest for row in noted})
    left = {digest for batch in batches(digests) for digest in connection.scalars(LEFT, {"digests": batch})}
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
    known = {digest for batch in batches(sorted(found)) for digest in connection.scalars(KNOWN, {"digests": batch})}
    new = sorted(set(found) - known)
    upsert(connection, parts, [{"digest": digest, "touched": found[digest], "once_referred": False} for digest in new])
    return len(new)


def retire(connection: Connection, gone: list[str]) -> None:
    """Empty the listings that have lost a part: nothing refers to them, and the same files sent again fill them anew."""
    broken = connection.scalars(select(members.c.listing).distinct().where(members.c.digest.in_(gone))).all()
    for batch in batches(broken):
        connection.execute(delete(members).where(members.c.listing.in_(batch)))
        connection.execute(update(listings).where(listings.c.id.in_(batch)).values(kept=False))
