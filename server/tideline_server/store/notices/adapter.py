"""The port of notices on a database: each method is one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy import Connection

from tideline.engine.audit import entries
from tideline.engine.audit.log import AuditEvent
from tideline.engine.model.access.projects import EVERY
from tideline.engine.model.notices import Notice, Outgoing, Target
from tideline.engine.ports.notices import Pending
from tideline_server.store import audit
from tideline_server.store.database.transactions import Store
from tideline_server.store.notices import outbox, targets

T = TypeVar("T")


class SqlNotices:
    """Targets and notices beside a journal. Raises what the journal raises."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def targets(self, scope: str = EVERY) -> tuple[Target, ...]:
        with self._store.reading() as connection:
            return targets.every(connection, scope)

    def add_target(self, target: Target) -> bool:
        return self._recorded(lambda connection: targets.add(connection, target), entries.target_added(target))

    def remove_target(self, target: Target, by: str, now: float) -> bool:
        event = entries.target_removed(target, by, now)
        return self._recorded(lambda connection: targets.remove(connection, target.id), event)

    def end_target(self, target: Target, reason: str, now: float) -> None:
        event = entries.target_ended(target, reason, now)
        self._recorded(lambda connection: targets.end(connection, target.id, reason, now), event)

    def begin_test(self, target: Target, now: float, pause: float) -> float:
        return self._store.write(lambda connection: targets.begin_test(connection, target.id, now, pause))

    def pending(self, now: float) -> Pending:
        with self._store.reading() as connection:
            return outbox.pending(connection, now)

    def follow(self, now: float) -> bool:
        return self._store.write(lambda connection: outbox.follow(connection, now))

    def queue(self, notices: Sequence[Notice], now: float) -> None:
        self._store.write(lambda connection: outbox.queue(connection, notices, now))

    def claim(self, now: float, claim: str, seconds: float, most: int) -> tuple[tuple[Outgoing, Target], ...]:
        return self._store.write(lambda connection: outbox.claim(connection, now, claim, seconds, most))

    def sent(self, outgoing: Outgoing, now: float) -> None:
        def work(connection: Connection) -> None:
            outbox.note(connection, outgoing, None)
            outbox.note_target(connection, outgoing.target, last_sent=now, reason="")

        self._store.write(work)

    def put_off(self, outgoing: Outgoing, due: float, reason: str) -> None:
        def work(connection: Connection) -> None:
            if outbox.note(connection, outgoing, due):
                outbox.rest(connection, outgoing.target, due)
                outbox.note_target(connection, outgoing.target, reason=reason)

        self._store.write(work)

    def give_up(self, outgoing: Outgoing, target: Target, reason: str, now: float) -> None:
        def work(connection: Connection) -> bool:
            outbox.note_target(connection, target.id, reason=reason)
            return outbox.note(connection, outgoing, None)

        self._recorded(work, entries.notice_given_up(outgoing, target, reason, now))

    def _recorded(self, work: Callable[[Connection], bool], event: AuditEvent) -> bool:
        """Write, and note in the audit log that it was done."""

        def whole(connection: Connection) -> bool:
            done = work(connection)
            if done:
                audit.append(connection, [event])
            return done

        return self._store.write(whole)
