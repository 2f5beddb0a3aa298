"""What a closed round did with single sites. Rounds of before have no such words."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the column."""
    op.add_column("rounds", sa.Column("marks", sa.JSON(none_as_null=True), nullable=True))
