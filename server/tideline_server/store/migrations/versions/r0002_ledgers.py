"""What clients reported of their ledgers: the last entry, and how many there were when it was missing."""

from __future__ import annotations

from alembic import op

from tideline_server.store.columns import text, whole

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the columns. None: nothing was reported yet."""
    op.add_column("clients", whole("ledger_entries", null=True))
    op.add_column("clients", text("ledger_hash", null=True))
    op.add_column("clients", whole("ledger_now", null=True))
