"""What each site computes on, as its agent tells it when it enrols."""

from __future__ import annotations

from alembic import op

from tideline_server.store.columns import text

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the column. None: its agent has not told."""
    op.add_column("clients", text("device", null=True))


def downgrade() -> None:
    """Take it away: agents tell it again when they start."""
    with op.batch_alter_table("clients") as clients:
        clients.drop_column("device")
