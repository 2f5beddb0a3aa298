"""Files of messages, stored once: a listing is found by the hash of all that it says, sizes included."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator
from typing import Any, TypeVar

from sqlalchemy import Connection, insert, select, update

from tideline.core.run import Digest
from tideline.engine.rows import Files
from tideline_server.store.dialect import to_json
from tideline_server.store.schema import listings, members

T = TypeVar("T")
BATCH = 500  # values that one statement may name


def batches(values: Collection[T]) -> Iterator[list[T]]:
    """The values, in lists that fit a statement."""
    listed = list(values)
    for at in range(0, len(listed), BATCH):
        yield listed[at : at + BATCH]


def files_of(stored: Any) -> Files:
    """Files from their column."""
    return tuple((Digest(digest), size) for digest, size in stored or ())


def digests_in(many: Iterable[Files]) -> list[Digest]:
    """Every digest that the files name, once, in order."""
    return list(dict.fromkeys(digest for files in many for digest, _ in files))


def interned(connection: Connection, many: Iterable[Files]) -> dict[Files, int | None]:
    """The listing of each of the files; new ones are written. No files have no listing."""
    names = {hashlib.sha256(to_json(files).encode()).hexdigest(): files for files in set(many) if files}
    found = ids(connection, names)
    new = [{"name": name, "kept": False, "files": files} for name, files in names.items() if name not in found]
    if new:
        connection.execute(insert(listings), new)
        found = ids(connection, names)
    return {(): None} | {files: found[name] for name, files in names.items()}


def ids(connection: Connection, names: Collection[str]) -> dict[str, int]:
    """The listings of these names."""
    found: dict[str, int] = {}
    for batch in batches(names):
        rows = connection.execute(select(listings.c.name, listings.c.id).where(listings.c.name.in_(batch)))
        found |= {row.name: row.id for row in rows}
    return found


def keep(connection: Connection, known: dict[Files, int | None]) -> None:
    """From here on these listings count as members' keepers."""
    wanted = {listing: files for files, listing in known.items() if listing is not None}
    for batch in batches(wanted):
        loose = connection.scalars(select(listings.c.id).where(listings.c.id.in_(batch), ~listings.c.kept)).all()
        if loose:
            rows = [{"listing": i, "digest": digest} for i in loose for digest in digests_in([wanted[i]])]
            connection.execute(insert(members), rows)
            connection.execute(update(listings).where(listings.c.id.in_(loose)).values(kept=True))
