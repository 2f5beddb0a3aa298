"""How many replies are enough for a run since somebody resumed it with fewer."""

from __future__ import annotations

from alembic import op

from tideline_server.store.columns import whole

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the column. None: as many as the experiment says."""
    op.add_column("runs", whole("quorum", null=True))


def downgrade() -> None:
    """Take it away: the experiment's own rule holds again. In place, for SQLite lets no table go that others point at."""
    op.drop_column("runs", "quorum")
