"""Commands for the database of a coordinator that does not run: at which revision it stands, and back to an older one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tideline.cli.guard import group_of, output
from tideline.cli.options import Home, Json
from tideline.client.output import clean, day
from tideline.core.errors import Unreachable

if TYPE_CHECKING:
    from tideline_server.store.database.standing import Standing

database = group_of("See at which revision a coordinator's database stands, and take it back to an older one.")
Database = Annotated[
    str | None,
    typer.Option("--database", envvar="TIDELINE_DATABASE", help="URL of the database. [default: the SQLite file in the home]"),
]


@database.command("show")
def show(home: Home = None, database: Database = None, as_json: Json = False) -> None:
    """Show the database's schema revision, and which versions of Tideline brought it there. Changes nothing."""
    from tideline_server.store.database.standing import standing

    said(answered(lambda: standing(database or file_in(home))), as_json)


@database.command("downgrade")
def downgrade(
    revision: Annotated[str, typer.Argument(metavar="REVISION", help="The older revision, such as 0006; see docs/releases.md.")],
    home: Home = None,
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Take the database back to an older revision, so that an older Tideline opens it. What newer revisions added is lost.

    Stop every coordinator first, and make a backup. It is done completely or not at all.
    """
    from tideline_server.store.database.standing import downgrade

    said(answered(lambda: alone(home, database, lambda where: downgrade(where, revision))), as_json)


def file_in(home: Path | None) -> Path:
    """The SQLite file of a home."""
    from tideline_server.settings import CoordinatorSettings

    given = CoordinatorSettings() if home is None else CoordinatorSettings(home=home)
    return given.folder / "coordinator.db"


def alone(home: Path | None, database: str | None, work: Callable[[Path | str], Standing]) -> Standing:
    """Do something while no coordinator has the home. Raises Refused."""
    from tideline_server.main import only_one

    file = file_in(home)
    if not file.parent.is_dir():
        return work(database or file)  # there is no home whose coordinator could run
    with only_one(file.parent):
        return work(database or file)


def answered(work: Callable[[], Standing]) -> Standing:
    """What a database says. Raises Unreachable where it does not answer, and Refused."""
    from tideline_server.store import StoreAway

    try:
        return work()
    except StoreAway as error:
        raise Unreachable(error.what, error.todo, **error.context) from None


def said(found: Standing, as_json: bool) -> None:
    """Print how a database stands."""
    lines = [f"{clean(found.name)} stands at revision {found.revision or 'none: it is empty'}; the newest here is {found.newest}"]
    lines += [f"{each.revision} by tideline {clean(each.version)} on {day(each.at)}" for each in found.upgrades]
    output({**asdict(found), "upgrades": [asdict(each) for each in found.upgrades]}, as_json, "\n".join(lines))
