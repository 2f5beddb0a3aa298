"""Commands about clients: who is enrolled, who is let in, and who is no more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from tideline.cli.guard import say_json
from tideline.cli.options import Door, Json, at_door

app = typer.Typer(
    help="See which agents are enrolled, approve them, revoke them, or ask them for new keys.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The client's name, see `tideline clients list`.")]


@app.command("list")
@at_door
def list_clients(door: Door, as_json: Json = False) -> None:
    """List the enrolled agents: standing, fingerprint of their keys, roles, labels, and when each was last heard."""
    from tideline.client.http import Client

    with Client.of(door) as there:
        rows: list[dict[str, Any]] = there.get("/clients")
    if as_json:
        say_json(rows)
    elif rows:
        from tideline.cli.tables import show, table

        columns = ["name", "standing", "fingerprint", "roles", "labels", "version", "last heard"]
        show(table("", columns, [cells(row) for row in rows]))
        for row in rows:
            if row["standing"] == "revoked":
                typer.echo(f"{row['name']}: revoked on {day(row['revoked'])}{': ' if row['reason'] else ''}{row['reason']}")
    else:
        typer.echo("No agent is enrolled. Invite one: tideline invite --name NAME")


@app.command("approve")
@at_door
def approve(door: Door, name: Name, as_json: Json = False) -> None:
    """Let an agent work that was invited with --hold. Compare its fingerprint with its own log first."""
    told(asked(door, name, "approve"), as_json, "approved")


@app.command("revoke")
@at_door
def revoke(
    door: Door,
    name: Name,
    reason: Annotated[str, typer.Option(help="Told to the agent, and in the results of its runs.")] = "",
    as_json: Json = False,
) -> None:
    """Let an agent in no more: what it was asked for ends as failed, and its runs go on with their quorum or stall."""
    told(asked(door, name, "revoke", {"reason": reason}), as_json, "revoked")


@app.command("rotate")
@at_door
def rotate(door: Door, name: Name, as_json: Json = False) -> None:
    """Ask an agent for new keys. It makes them at its next sign of life."""
    told(asked(door, name, "rotate"), as_json, "asked for new keys")


def asked(door: Door, name: str, what: str, body: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Have something done to a client; the client."""
    from urllib.parse import quote

    from tideline.client.http import Client

    with Client.of(door) as there:
        row: dict[str, Any] = there.post(f"/clients/{quote(name, safe='')}/{what}", None if body is None else dict(body))
    return row


def told(row: Mapping[str, Any], as_json: bool, word: str) -> None:
    """What was done."""
    if as_json:
        say_json(row)
    else:
        typer.echo(f"{row['name']} is {word}, fingerprint {row['fingerprint']}")


def cells(row: Mapping[str, Any]) -> list[str]:
    """A client in a line."""
    labels = ",".join(f"{key}={value}" for key, value in sorted(row["labels"].items()))
    standing = row["standing"] + (", new keys awaited" if row["rotate"] else "")
    known = [row["name"], standing, row["fingerprint"], ", ".join(row["roles"]), labels]
    return [*known, row["version"], day(row["seen"])]


def day(seconds: float) -> str:
    """A time for people."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
