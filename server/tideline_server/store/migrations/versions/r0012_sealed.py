"""What sites seal for each other, which orders name it, and how clients came to their keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the table and the columns."""
    op.create_table(
        "sealed",
        sa.Column("run", TEXT, sa.ForeignKey("runs.id"), primary_key=True),
        *(sa.Column(name, TEXT, primary_key=True) for name in ("holder", "phase")),
        sa.Column("round", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("digest", TEXT, primary_key=True),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("needed", sa.Integer(), nullable=False),
        sa.Column("cipher", TEXT, nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("keys", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("signature", TEXT, nullable=False),
    )
    op.add_column("orders", sa.Column("sealed", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("clients", sa.Column("handovers", sa.JSON(none_as_null=True), nullable=True))
