"""Files of messages, stored once: a listing is named by the hash of its digests and sizes."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Select, bindparam, select, update

from tideline.core.run import Digest
from tideline.engine.model.orders import Files
from tideline_server.store.database.dialect import upsert
from tideline_server.store.database.plain_json import to_json
from tideline_server.store.database.prepared import prepared
from tideline_server.store.schema import listings, members

T = TypeVar("T")
Listed = Mapping[Files, int | None]  # files and their listing; no files have none
KEPT_FILES = 20_000  # files of listings that are remembered, some 200 bytes each: those of many runs
BATCH = 500  # values that one statement may name

FILES = prepared(select(listings.c.id, listings.c.files).where(listings.c.id.in_(bindparam("ids", expanding=True))))
NAMED = prepared(
    select(listings.c.name, listings.c.id, listings.c.kept)
    .where(listings.c.name.in_(bindparam("names", expanding=True)))
    .order_by(listings.c.id)
    .with_for_update(read=True, key_share=True)  # whoever refers to one keeps it from going with another run
)
SET_KEPT = prepared(update(listings).where(listings.c.id.in_(bindparam("ids", expanding=True))).values(kept=True))


class Library:
    """Listings read lately; they never change. Any number of threads.

    Only for readers: what a writer sees may be undone, and its id given to other files.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: dict[int, Files] = {}
        self._held = 0

    def files(self, connection: Connection, wanted: Iterable[int | None]) -> dict[int | None, Files]:
        ids = {listing for listing in wanted if listing is not None}
        with self._lock:
            found: dict[int | None, Files] = {listing: self._read[listing] for listing in ids if listing in self._read}
        unread = [listing for listing in ids if listing not in found]
        fresh = {int(row.id): files_of(row.files) for row in in_batches(connection, FILES, "ids", unread)}
        if fresh:
            self._remember(fresh)
        return found | fresh

    def _remember(self, fresh: Mapping[int, Files]) -> None:
        """Remember listings, and forget the oldest above the limit."""
        with self._lock:
            for listing, files in fresh.items():
                if listing not in self._read:
                    self._read[listing] = files
                    self._held += len(files)
            while self._held > KEPT_FILES and len(self._read) > 1:
                self._held -= len(self._read.pop(next(iter(self._read))))


def batches(values: Collection[T]) -> Iterator[list[T]]:
    """The values, in lists that fit a statement."""
    listed = list(values)
    for at in range(0, len(listed), BATCH):
        yield listed[at : at + BATCH]


def in_batches(
    connection: Connection, query: Select[Any], name: str, values: Collection[str | int], **more: str | float
) -> Iterator[Row[Any]]:
    """The rows of a query for all values of its list parameter `name`."""
    for batch in batches(values):
        yield from connection.execute(query, {name: batch, **more})


def files_of(stored: Iterable[tuple[str, int]] | None) -> Files:
    return tuple((Digest(digest), size) for digest, size in stored or ())


def digests_in(many: Iterable[Files]) -> list[Digest]:
    """Every digest of these files, once, in order."""
    return list(dict.fromkeys(digest for files in many for digest, _ in files))


def interned(connection: Connection, many: Iterable[Files], held: bool) -> Listed:
    """The listing of each of the files; writes new ones. `held`: a reference to them follows."""
    names = dict(sorted((hashlib.sha256(to_json(files).encode()).hexdigest(), files) for files in set(many) if files))
    found = named(connection, names)
    new = {name: files for name, files in names.items() if name not in found}
    if new:
        upsert(connection, listings, [{"name": n, "kept": False, "files": f} for n, f in new.items()], unless=listings.c.name)
        found |= named(connection, new)
    if held:
        join(connection, {found[name][0]: files for name, files in names.items() if not found[name][1]})
    return {(): None} | {files: found[name][0] for name, files in names.items()}


def named(connection: Connection, names: Collection[str]) -> dict[str, tuple[int, bool]]:
    return {row.name: (row.id, row.kept) for row in in_batches(connection, NAMED, "names", names)}


def join(connection: Connection, loose: Mapping[int, Files]) -> None:
    """Write the members of listings that have none. Two who do so at once write the same rows."""
    pairs = [(listing, digest) for listing, files in loose.items() for digest in digests_in([files])]
    upsert(connection, members, [{"listing": listing, "digest": digest} for listing, digest in pairs])
    for batch in batches(sorted(loose)):
        connection.execute(SET_KEPT, {"ids": batch})
