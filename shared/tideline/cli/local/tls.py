"""Commands that make certificates for a federation that has no authority of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tideline.cli.guard import say_json
from tideline.cli.options import Json

app = typer.Typer(
    help="Make certificates: an authority, the coordinator's, and agents' own. Nothing is sent.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of the authority; made if it is missing.")]


@app.command("init")
def init(
    out: Out,
    host: Annotated[list[str], typer.Option(help="A name or IP address by which the coordinator is called. Repeatable.")],
    as_json: Json = False,
) -> None:
    """Make an authority and the coordinator's certificate; done again, the authority stays and the certificate is renewed."""
    from tideline.client.certificates import issue_coordinator

    told(issue_coordinator(out, host), as_json)


@app.command("client")
def client(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The client's name, as in its invitation.")],
    out: Out,
    as_json: Json = False,
) -> None:
    """Make an agent's own certificate, by the authority that `tideline tls init` made in the same folder."""
    from tideline.client.certificates import issue_client

    told(issue_client(out, name), as_json)


def told(files: dict[str, str], as_json: bool) -> None:
    """What was written."""
    if as_json:
        say_json(files)
        return
    for what, path in files.items():
        typer.echo(f"{what}: {path}")
