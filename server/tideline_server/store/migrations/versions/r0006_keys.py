"""Keys of the people's door."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")
GOOD = sa.text("revoked IS NULL")


def text(name: str, key: bool = False) -> sa.Column[str]:
    """A column of text."""
    return sa.Column(name, TEXT, primary_key=key, nullable=False)


def upgrade() -> None:
    """A table for keys; of those that are good, no two have the same name."""
    op.create_table(
        "api_keys",
        text("id", key=True),
        text("name"),
        text("key_hash"),
        text("role"),
        sa.Column("created", sa.Double, nullable=False),
        text("created_by"),
        sa.Column("last_used", sa.Double, nullable=True),
        sa.Column("expires", sa.Double, nullable=True),
        sa.Column("revoked", sa.Double, nullable=True),
    )
    op.create_index("api_keys_by_name", "api_keys", ["name"], unique=True, sqlite_where=GOOD, postgresql_where=GOOD)
