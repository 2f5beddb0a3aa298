"""What people asked for under a key."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def text(name: str, key: bool = False) -> sa.Column[str]:
    """A column of text."""
    return sa.Column(name, TEXT, primary_key=key, nullable=False)


def plain(name: str) -> sa.Column[Any]:
    """A column of plain data."""
    return sa.Column(name, sa.JSON(none_as_null=True), nullable=True)


def upgrade() -> None:
    """A table for idempotency records, by age."""
    op.create_table(
        "errands",
        text("key", key=True),
        text("asked"),
        text("seed"),
        sa.Column("made", sa.Double, nullable=False),
        text("worker"),
        plain("chosen"),
        plain("answer"),
    )
    op.create_index("errands_by_age", "errands", ["made"])
