"""Entries of the audit log cannot be replaced either: SQLite lets INSERT OR REPLACE past the triggers of a deletion."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"

LITE = (
    "CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit WHEN NEW.seq <= (SELECT max(seq) FROM audit)"
    " BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END"
)


def upgrade() -> None:
    """Let a new entry be behind all others. In Postgres, what replaces a row is an update, which is refused already."""
    if op.get_bind().dialect.name == "sqlite":
        op.execute(LITE)
