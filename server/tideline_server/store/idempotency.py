"""Idempotency records: what people asked for under a key. A writer locks the record's row, so that two tries take turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, null, select, update

from tideline.core.run import Digest
from tideline.engine.coordinator.idempotency import KEPT_SECONDS, free, overtaken
from tideline.engine.model.access.once import Answer, IdempotencyRecord
from tideline.engine.model.orders import OrderRow
from tideline.engine.model.runs import RunRow
from tideline_server.store import runs, transitions
from tideline_server.store.database.address import GaveWay
from tideline_server.store.database.dialect import upsert
from tideline_server.store.schema import idempotency_records

ONE = select(idempotency_records).where(idempotency_records.c.key == bindparam("of"))
LOCKED = ONE.with_for_update()
THIS = update(idempotency_records).where(idempotency_records.c.key == bindparam("of"))
TAKE = THIS.values(worker=bindparam("by"))
CHOOSE = THIS.where(idempotency_records.c.chosen.is_(null())).values(chosen=bindparam("plan"))
CONCLUDE = THIS.values(answer=bindparam("new_answer"), worker="")
LEAVE = THIS.where(idempotency_records.c.worker == bindparam("by")).values(worker="")
FORGET = delete(idempotency_records).where(idempotency_records.c.made < bindparam("before"))


def record_of(row: Row[Any]) -> IdempotencyRecord:
    return IdempotencyRecord(**{**row._mapping, "answer": answer_of(row.answer) if row.answer else None})


def answer_of(fields: Mapping[str, Any]) -> Answer:
    return Answer(fields["status"], tuple((name, value) for name, value in fields["headers"]), fields["body"])


def find(connection: Connection, wanted: IdempotencyRecord) -> IdempotencyRecord | None:
    """The record under the same key, unless it is too old."""
    row = connection.execute(ONE, {"of": wanted.key}).one_or_none()
    return record_of(row) if row and row.made >= wanted.made - KEPT_SECONDS else None


def reserve(connection: Connection, wanted: IdempotencyRecord, over: str) -> IdempotencyRecord:
    """Write a record, or take the known one if it is free. Forgets old ones."""
    connection.execute(FORGET, {"before": wanted.made - KEPT_SECONDS})
    upsert(connection, idempotency_records, [asdict(wanted)])
    row = connection.execute(LOCKED, {"of": wanted.key}).one_or_none()
    if row is None:
        raise GaveWay("The record of this key was removed a moment ago", "Ask again")
    known = record_of(row)
    if not free(known, wanted, over):
        return known
    connection.execute(TAKE, {"of": wanted.key, "by": wanted.worker})
    return replace(known, worker=wanted.worker)


def choose(connection: Connection, key: str, plan: Mapping[str, int]) -> Mapping[str, int]:
    """Write what a record goes by, unless that was chosen before; what was chosen."""
    connection.execute(CHOOSE, {"of": key, "plan": dict(plan)})
    return record_of(connection.execute(ONE, {"of": key}).one()).chosen or {}


def locked(connection: Connection, key: str, worker: str) -> IdempotencyRecord:
    """Lock a record that is answered or this worker's. Raises Unreachable if it is another's."""
    row = connection.execute(LOCKED, {"of": key}).one_or_none()
    if row is None or (row.answer is None and row.worker != worker):
        raise overtaken()
    return record_of(row)


def create_once(
    connection: Connection,
    ours: tuple[str, str],
    new: tuple[RunRow, ...],
    asked: Iterable[OrderRow],
    by: str,
    here: Callable[[Digest], bool],
) -> bool:
    """Write new runs as `create` does, unless the first is known (False). `ours`: the record's key and worker."""
    if locked(connection, *ours).answer is not None:
        raise overtaken()
    if runs.is_known(connection, new[0].id):
        return False
    transitions.create(connection, new, asked, by, here)
    return True


def conclude(connection: Connection, key: str, worker: str, answer: Answer) -> Answer:
    """Write a record's answer, unless there is one; the answer that stands."""
    known = locked(connection, key, worker)
    if known.answer is None:
        connection.execute(CONCLUDE, {"of": key, "new_answer": asdict(answer)})
    return known.answer or answer


def leave(connection: Connection, key: str, worker: str) -> None:
    """Leave a record, if it is still this worker's."""
    connection.execute(LEAVE, {"of": key, "by": worker})
