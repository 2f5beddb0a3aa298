"""The commands about keys of the HTTP API."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tideline.cli.guard import clean, say_json
from tideline.cli.options import Door, Json, at_door

app = typer.Typer(help="Give people keys to the coordinator, and take them back.", no_args_is_help=True, rich_markup_mode=None)
ROLES = "What its holder may do: viewer (look), operator (run experiments, let agents in) or admin (everything)."


@app.command("add")
@at_door
def add(
    door: Door,
    name: Annotated[str, typer.Option(help="What the holder is called in lists and events.")],
    role: Annotated[str, typer.Option(help=ROLES)],
    ttl: Annotated[str | None, typer.Option(help="How long it is good for: 30m, 1h, 90d. [default: until revoked]")] = None,
    as_json: Json = False,
) -> None:
    """Make a key. It is printed once, and kept only as a hash."""
    from tideline.cli.serving import read_seconds
    from tideline.client.http import Client

    asked = {"name": name, "role": role, "ttl_seconds": None if ttl is None else read_seconds(ttl)}
    with Client.of(door) as there:
        made = there.post("/keys", asked)
        url = there.base_url
    if as_json:
        say_json(made)
        return
    until = f", until {moment(made['expires'])}" if made["expires"] else ""
    typer.echo(f"Key of {clean(made['name'])}, {made['role']}{until}; it is not shown again:\n\n  {made['key']}\n")
    typer.echo(f"Its holder keeps it with:\n\n  tideline login --url {url}")


@app.command("list")
@at_door
def list_keys(door: Door, as_json: Json = False) -> None:
    """List the keys, oldest first: whose they are, their roles, when they were last used, and whether they are good."""
    from tideline.client.http import Client

    with Client.of(door) as there:
        rows = there.get("/keys")
    if as_json:
        say_json(rows)
        return
    from tideline.cli.tables import show, table

    head = ["name", "role", "made", "by", "last used", "state"]
    show(table("", head, [[clean(str(each)) for each in line(row)] for row in rows]))


@app.command("revoke")
@at_door
def revoke(
    door: Door, name: Annotated[str, typer.Argument(metavar="NAME", help="See `tideline keys list`.")], as_json: Json = False
) -> None:
    """End a key. It opens nothing any more, at replicas within five seconds; its name is free again."""
    from urllib.parse import quote

    from tideline.client.http import Client

    with Client.of(door) as there:
        row = there.delete(f"/keys/{quote(name, safe='')}")
    if as_json:
        say_json(row)
    else:
        typer.echo(f"The key of {clean(row['name'])} is revoked")


def line(row: dict[str, Any]) -> list[str]:
    """A key's cells."""
    state = (
        f"revoked {moment(row['revoked'])}" if row["revoked"] else f"until {moment(row['expires'])}" if row["expires"] else "good"
    )
    used = moment(row["last_used"]) if row["last_used"] else "-"
    return [row["name"], row["role"], moment(row["created"]), row["created_by"] or "-", used, state]


def moment(at: float) -> str:
    """A moment, to the minute, on this machine's clock."""
    import time

    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
