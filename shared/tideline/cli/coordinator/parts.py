"""The command about the coordinator's parts."""

from __future__ import annotations

import typer

from tideline.cli.guard import say_json
from tideline.cli.options import Door, Json, at_door

app = typer.Typer(help="Look after the coordinator's parts.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def parts() -> None:
    """Look after the coordinator's parts."""


@app.command("gc")
@at_door
def collect(door: Door, as_json: Json = False) -> None:
    """Drop the parts that nothing needs, those too that a killed process left. What an open run needs stays."""
    from tideline.client.http import Client

    with Client.of(door) as there:
        swept = there.post("/parts/sweep")
    if as_json:
        say_json(swept)
        return
    typer.echo(
        f"Dropped {swept['dropped']} parts, {size_of(swept['freed'])}; {swept['kept']} are kept, {size_of(swept['bytes'])}."
    )
    if swept["found"]:
        typer.echo(f"{swept['found']} were known to no record; such parts are dropped an hour after they were written.")


def size_of(count: int) -> str:
    """Bytes for people."""
    for size, word in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= size:
            return f"{count / size:.1f} {word}"
    return f"{count} bytes"
