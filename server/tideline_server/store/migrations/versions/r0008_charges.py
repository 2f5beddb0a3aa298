"""How often a site said that it has charged its budget, at most, and when."""

from __future__ import annotations

from alembic import op

from tideline_server.store.columns import seconds, whole

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the columns. None: the site has told of no budget."""
    op.add_column("clients", whole("charged", null=True))
    op.add_column("clients", seconds("charged_at", null=True))


def downgrade() -> None:
    """Take them away: a home that is put back is then noticed by its ledger's end alone."""
    with op.batch_alter_table("clients") as clients:
        clients.drop_column("charged_at")
        clients.drop_column("charged")
