"""What steps spend on computing, by day and by run, and quotas of it."""

from __future__ import annotations

from alembic import op
from sqlalchemy import ForeignKey

from tideline_server.store.columns import seconds, text, whole

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the tables, empty: of what was computed before nobody knows. No project has a quota of it."""
    for name in ("most_gpu_hours", "most_cpu_hours"):
        op.add_column("projects", seconds(name, null=True))
    op.create_table(
        "spent_by_day",
        text("project", key=True),
        whole("day", key=True),
        text("client", key=True),
        *map(seconds, ("gpu", "cpu")),
        *map(whole, ("reported", "unreported")),
    )
    op.create_table(
        "spent_by_run",
        text("run", ForeignKey("runs.id"), key=True),
        text("client", key=True),
        *map(seconds, ("gpu", "cpu")),
        *map(whole, ("reported", "unreported")),
    )


def downgrade() -> None:
    """Take the tables and the quotas away, with what was counted."""
    for table in ("spent_by_run", "spent_by_day"):
        op.drop_table(table)
    with op.batch_alter_table("projects") as projects:
        for name in ("most_gpu_hours", "most_cpu_hours"):
            projects.drop_column(name)
