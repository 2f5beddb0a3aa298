"""A process that opens a journal with another set of migrations: `python migrating.py MIGRATIONS WHERE`.

`later` makes such a set: those of this tree, and one more that adds a column and a table, or that dies in the middle of it.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tideline_server.store import SqlJournal
from tideline_server.store.database import revisions

LATER = "9001"
WORDS = """
import os
from alembic import op
from tideline_server.store.columns import text, whole

revision = "{later}"
down_revision = "{newest}"


def upgrade():
    op.add_column("runs", whole("colour", null=True))
    {between}
    op.create_table("colours", text("id", key=True))
    op.execute("INSERT INTO colours (id) VALUES ('red')")


def downgrade():
    op.drop_table("colours")
    {between}
    op.drop_column("runs", "colour")
"""
DIE = "os._exit(9)"


def later(folder: Path, between: str = "") -> Path:
    """Migrations with one more revision, as a version to come has them. between: what it does in its middle."""
    made = Path(shutil.copytree(revisions.MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__")))
    add_later(made, between)
    return made


def add_later(migrations: Path, between: str = "") -> None:
    """Put one more revision behind the newest."""
    text = WORDS.format(later=LATER, newest=revisions.newest(), between=between or "pass")
    (migrations / "versions" / f"r{LATER}_colours.py").write_text(text)


def use(migrations: Path) -> None:
    """Have this process know these migrations, of a version that it calls 99.0.0."""
    revisions.MIGRATIONS, revisions.__version__ = migrations, "99.0.0"
    revisions.known.cache_clear()


def main(migrations: str, where: str, *target: str) -> None:
    """Open the journal, which brings it up to date; or take it back to a revision."""
    use(Path(migrations))
    if target:
        from tideline_server.store.database.standing import downgrade

        downgrade(where, *target)
    else:
        SqlJournal(where).close()


if __name__ == "__main__":
    main(*sys.argv[1:])
