"""Sessions of users who sign in with a browser."""

from __future__ import annotations

from alembic import op

from tideline_server.store.columns import plain, seconds, text

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the table, empty."""
    op.create_table(
        "user_sessions",
        text("id", key=True),
        *map(text, ("token_hash", "state_hash", "issuer", "subject", "name")),
        plain("claimed"),
        *map(seconds, ("created", "expires")),
        seconds("last_used", null=True),
        seconds("ended", null=True),
    )
    op.create_index("user_sessions_by_token", "user_sessions", ["token_hash"], unique=True)
    op.create_index("user_sessions_by_state", "user_sessions", ["state_hash"], unique=True)
