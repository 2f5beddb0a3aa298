"""The commands about the audit log."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tideline.cli.guard import clean, say_json
from tideline.cli.options import Door, Json, at_door

if TYPE_CHECKING:
    from tideline.engine.audit.log import Entry

app = typer.Typer(help="Read what was done, and check that nobody has changed it.", no_args_is_help=True, rich_markup_mode=None)
LONGEST = 60  # characters of what an entry tells


@app.command("verify")
@at_door
def verify(
    door: Door,
    file: Annotated[Path | None, typer.Option(help="An export, instead of a coordinator.")] = None,
    tip: Annotated[str, typer.Option(metavar="HASH", help="With --file: the hash of the last entry that it has to have.")] = "",
    forget: Annotated[bool, typer.Option("--forget", help="Begin anew: the database was restored, or is another.")] = False,
    as_json: Json = False,
) -> None:
    """Work out every hash of the log again. It is remembered how far it was good; what is cut off or rewritten is told."""
    from tideline.client.audit_check import day, verified, verified_file
    from tideline.client.http import Client

    check_tip(tip, file)
    if file is not None:
        found = verified_file(file, tip)
    else:
        with Client.of(door) as there:
            found = verified(there, forget)
    before = None if found.before is None else {"entries": found.before.seq, "at": found.before.at}
    if as_json:
        say_json({"entries": found.tip.seq, "hash": found.tip.hash, "before": before})
        return
    if file is not None:
        whole = f"The file is whole up to entry {found.tip.seq}, with hash {found.tip.hash}"
        typer.echo(whole if tip else f"{whole}. Whether more followed, it cannot tell: --tip HASH says where it has to end")
        return
    typer.echo(f"The log is whole: {found.tip.seq} entries, the last with hash {found.tip.hash}")
    if found.before is not None:
        typer.echo(f"The {found.before.seq} entries that were verified on {day(found.before.at)} are as they were")


@app.command("list")
@at_door
def list_entries(
    door: Door,
    run: Annotated[str, typer.Option(help="Entries of this run.")] = "",
    client: Annotated[str, typer.Option(help="Entries of this client.")] = "",
    kind: Annotated[str, typer.Option(help="Entries of this kind, such as enrolled or reply_accepted.")] = "",
    since: Annotated[str, typer.Option(help="Entries since then: 90m, 2h, 7d ago, or 2030-01-31.")] = "",
    as_json: Json = False,
) -> None:
    """List what was done, oldest first."""
    from dataclasses import asdict

    from tideline.client.audit_check import entries
    from tideline.client.http import Client

    with Client.of(door) as there:
        found = list(entries(there, run=run, client=client, kind=kind, since=read_since(since)))
    if as_json:
        say_json([asdict(entry) for entry in found])
    elif found:
        from tideline.cli.tables import show, table

        show(table("", ["entry", "when", "kind", "run", "client", "by", "what"], map(cells, found), right=[0]))
    else:
        typer.echo("No such entry")


@app.command("export")
@at_door
def export(
    door: Door,
    out: Annotated[Path, typer.Option(help="The file to write, a line an entry.")],
    as_json: Json = False,
) -> None:
    """Write the whole log into a file of this user alone, which `tideline audit verify --file` checks anywhere."""
    from tideline.client.audit_check import exported
    from tideline.client.http import Client

    with Client.of(door) as there:
        tip = exported(there, out)
    if as_json:
        say_json({"file": str(out), "entries": tip.seq, "hash": tip.hash})
    else:
        typer.echo(f"Wrote {tip.seq} entries to {clean(str(out))}, the last with hash {tip.hash}")


def check_tip(tip: str, file: Path | None) -> None:
    """Raises ConfigRefused for a hash that is none, or that no file is held to."""
    from tideline.core.errors import ConfigRefused

    if tip and file is None:
        raise ConfigRefused("--tip says where a file has to end", "Name the file with --file", path="--tip")
    if tip and not re.fullmatch("[0-9a-f]{64}", tip):
        todo = "Give all 64 digits of the hash that `tideline audit export` or `audit verify` printed"
        raise ConfigRefused(f"--tip is {tip[:80]!r}", todo, path="--tip")


def cells(entry: Entry) -> list[str]:
    """An entry in a line."""
    from tideline.client.audit_check import day

    details = ", ".join(f"{name} {value}" for name, value in entry.details.items() if value not in ("", None, [], {}))
    what = details if len(details) <= LONGEST else details[: LONGEST - 1] + "…"
    return [str(entry.seq), day(entry.at), entry.kind, entry.run, entry.client, entry.by, what]


def read_since(text: str) -> float | None:
    """The moment that is meant. Raises ConfigRefused."""
    import time
    from datetime import datetime

    from tideline.cli.serving import read_seconds
    from tideline.core.errors import ConfigRefused

    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        pass
    try:
        return time.time() - read_seconds(text)
    except ConfigRefused:
        todo = "Write a number and a unit, such as 90m, 2h or 7d, or a day such as 2030-01-31"
        raise ConfigRefused(f"--since is {text!r}", todo, path="--since") from None
