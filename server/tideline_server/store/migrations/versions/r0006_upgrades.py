"""Which version of Tideline brought the store to which revision. This is the first revision that can be taken back."""

from __future__ import annotations

from alembic import op

from tideline_server.store.columns import seconds, text

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the table, empty: who upgrades writes a row."""
    op.create_table("upgrades", text("revision", key=True), text("version"), seconds("at"))


def downgrade() -> None:
    """Take the table away."""
    op.drop_table("upgrades")
