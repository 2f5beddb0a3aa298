"""Keys and standing of clients. Those that are there keep their credentials and are approved."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def text(name: str, default: str) -> sa.Column[Any]:
    """A column of text; its default is SQL."""
    return sa.Column(name, TEXT, nullable=False, server_default=sa.text(default))


def flag(name: str) -> sa.Column[Any]:
    """A column that says no."""
    return sa.Column(name, sa.Boolean, nullable=False, server_default=sa.false())


def upgrade() -> None:
    """Add the columns."""
    op.add_column("invites", flag("hold"))
    for column in (
        sa.Column("protocol", sa.Integer, nullable=False, server_default="1"),
        text("sign_key", "''"),
        text("receive_key", "''"),
        text("standing", "'approved'"),
        sa.Column("revoked", sa.Double, nullable=True),
        text("reason", "''"),
        flag("rotate"),
    ):
        op.add_column("clients", column)
