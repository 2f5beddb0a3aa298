"""Which runs of an agent's home are forgotten: chosen by the site's owner, asked about, and told."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tideline.cli.guard import clean, say_json
from tideline.core.errors import ConfigRefused, NotFound, Refused
from tideline.core.settings import nearest

if TYPE_CHECKING:
    from tideline_agent.home.runs import StoredRun

GO_ON = "Forgotten, a run that goes on stalls with MemoryLost where its method keeps a memory; say --unfinished if it is over"


def choose(there: Iterable[StoredRun], runs: Sequence[str], older: str | None, unfinished: bool) -> list[StoredRun]:
    """The runs that are meant. Raises ConfigRefused, NotFound, and Refused for named ones that may go on."""
    from tideline.cli.serving import read_seconds

    if bool(runs) is (older is not None):
        raise ConfigRefused("Nothing says which runs" if not runs else "Runs are named, and --older is given", "Give either")
    if older is None:
        return named({str(each.run): each for each in there}, runs, unfinished)
    before = time.time() - read_seconds(older, "--older")
    return [each for each in there if each.last < before and (each.over or unfinished)]


def named(there: dict[str, StoredRun], runs: Sequence[str], unfinished: bool) -> list[StoredRun]:
    """The runs of these ids."""
    for run in runs:
        if run not in there:
            raise NotFound(f"This site remembers no run {run[:80]}", f"See `tideline site list`{nearest(run, list(there))}")
        if not (there[run].over or unfinished):
            raise Refused(f"Run {run} may go on: its last exchange was not asked here, as far as the home knows", GO_ON)
    return [there[run] for run in dict.fromkeys(runs)]


def confirm(chosen: Sequence[StoredRun], as_json: bool) -> None:
    """Ask. Raises Refused for any answer but yes."""
    if as_json:
        raise ConfigRefused("--json asks nothing", "Add --yes to forget what is meant", path="yes")
    tell(chosen)
    try:
        wanted = typer.confirm("Forget them, with their models and pictures? Nothing brings them back", err=True)
    except typer.Abort:
        wanted = False
    if not wanted:
        raise Refused("Nothing was forgotten: it was not confirmed", "Answer y, or add --yes")


def tell(chosen: Sequence[StoredRun]) -> None:
    """The runs in a table."""
    from tideline.cli.tables import day, show, size, table

    rows = [[clean(each.run), "over" if each.over else "may go on", day(each.last), size(each.bytes)] for each in chosen]
    show(table("", ["run", "state", "last written", "size"], rows, right=(3,)))


def forget_all(home: Path, chosen: Sequence[StoredRun], as_json: bool) -> None:
    """Forget them and say so. Raises Refused, once the others are gone, if the agent works for one of them."""
    from tideline.cli.tables import size
    from tideline_agent.home.runs import clear, forget

    gone: list[StoredRun] = []
    busy: list[Refused] = []
    for each in chosen:
        try:
            forget(home, each.run)
            gone.append(each)
        except Refused as error:
            busy.append(error)
    clear(home)
    freed = sum(each.bytes for each in gone)
    if busy:
        raise Refused("; ".join(error.what for error in busy), busy[0].todo, forgotten=len(gone), bytes=freed)
    if as_json:
        say_json({"forgotten": [each.run for each in gone], "bytes": freed})
    else:
        typer.echo(f"Forgot {len(gone)} {'run' if len(gone) == 1 else 'runs'}, {size(freed)}.")
