"""Notes of the parts that were let go; runs and parts by age."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")
COUNTED = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the table; of the parts that are there, the next collection looks at every one."""
    op.create_table(
        "loose",
        sa.Column("id", COUNTED, primary_key=True),
        sa.Column("digest", TEXT, nullable=False),
    )
    op.execute("INSERT INTO loose (digest) SELECT digest FROM parts")
    op.create_index("parts_by_age", "parts", ["once_referred", "touched"])
    op.create_index("runs_by_age", "runs", ["created", "id"])
