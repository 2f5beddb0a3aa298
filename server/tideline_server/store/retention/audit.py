"""Taking entries out of the audit log that stand in an archive. The database's triggers let nothing else go."""

from __future__ import annotations

from sqlalchemy import Connection, delete, select, update

from tideline.engine.audit.log import Tip
from tideline_server.store.audit import lock, tip
from tideline_server.store.schema import audit, audit_base


def base(connection: Connection) -> Tip:
    return Tip(*connection.execute(select(audit_base.c.seq, audit_base.c.hash)).one())


def trim(connection: Connection, before: Tip, last: Tip) -> bool:
    """Take out the entries behind a base up to one. False if the base is another, or the log has not this entry amid others."""
    lock(connection)
    there = connection.scalar(select(audit.c.hash).where(audit.c.seq == last.seq))
    if base(connection) != before or there != last.hash or last.seq >= tip(connection).seq:
        return False
    connection.execute(update(audit_base).values(seq=last.seq, hash=last.hash))
    connection.execute(delete(audit).where(audit.c.seq <= last.seq))
    return True
