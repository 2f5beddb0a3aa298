"""A lease for every run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Make the table; runs that were begun before are free for the first scheduler that looks."""
    op.create_table(
        "leases",
        sa.Column("run", TEXT, sa.ForeignKey("runs.id"), primary_key=True, nullable=False),
        sa.Column("holder", TEXT, nullable=False),
        sa.Column("token", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("beats", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("seconds", sa.Double, nullable=False),
    )
    op.execute("INSERT INTO leases (run, holder, token, beats, seconds) SELECT id, '', 0, 0, 0 FROM runs")
