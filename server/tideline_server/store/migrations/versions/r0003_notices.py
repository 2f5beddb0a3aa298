"""Targets of notices, and notices on their way. What stands in the log before is news to nobody."""

from __future__ import annotations

from alembic import op
from sqlalchemy import ForeignKey

from tideline_server.store.columns import plain, seconds, text, whole

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the tables, with the log read up to its end."""
    op.create_table(
        "notice_targets",
        text("id", key=True),
        *map(text, ("name", "project", "url", "form")),
        plain("kinds"),
        text("secret"),
        seconds("created"),
        text("created_by"),
        seconds("ended", null=True),
        text("reason"),
        seconds("last_sent", null=True),
        seconds("tested"),
        whole("left_out"),
    )
    op.create_index("notice_targets_by_name", "notice_targets", ["project", "name"], unique=True)
    op.create_table(
        "notices",
        text("id", key=True),
        text("target", ForeignKey("notice_targets.id")),
        *map(text, ("cause", "run")),
        plain("content"),
        whole("more"),
        seconds("slot"),
        seconds("due", null=True),
        whole("attempts"),
        text("claim"),
    )
    op.create_index("notices_due", "notices", ["due"])
    op.create_index("notices_of_cause", "notices", ["target", "cause", "slot"])
    op.create_index("notices_of_run", "notices", ["run"])
    op.create_table("notice_mark", whole("id", key=True), whole("seq"))
    op.execute("INSERT INTO notice_mark (id, seq) SELECT 1, seq FROM audit_tip")
