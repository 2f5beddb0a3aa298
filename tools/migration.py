"""Begin a migration: what lies between the migrations and the tables of the code, as a file to be read and corrected."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from alembic import command
from sqlalchemy import create_engine

from tideline_server.store.database.revisions import MIGRATIONS, configured


def main() -> None:
    """Bring an empty database up to date, compare it with the tables, and write the difference down."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("revision", help="the next number, such as 0002")
    asked.add_argument("message", help="what changes, in a few words")
    given = asked.parse_args()
    path = MIGRATIONS / "versions" / f"r{given.revision}_{given.message.lower().replace(' ', '_')}.py"
    with create_engine("sqlite://").begin() as connection:
        config = configured(connection)
        command.upgrade(config, "head")
        made = command.revision(config, given.message, autogenerate=True, rev_id=given.revision)
    Path(made.path).rename(path)  # type: ignore[union-attr]
    sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
