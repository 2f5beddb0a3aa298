"""The groups and the tables that a closed round told. Rounds of before have none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add the columns."""
    for name in ("groups", "tables"):
        op.add_column("rounds", sa.Column(name, sa.JSON(none_as_null=True), nullable=True))
