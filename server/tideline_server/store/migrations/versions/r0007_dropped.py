"""Which parts were dropped lately."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Make the table. What was dropped before has no row any more, and who writes one has put its bytes there since."""
    op.create_table(
        "dropped",
        sa.Column("digest", TEXT, primary_key=True),
        sa.Column("at", sa.Double(), nullable=False),
    )
    op.create_index("dropped_by_age", "dropped", ["at"])
