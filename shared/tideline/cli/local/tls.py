"""Commands that make certificates for a federation without a certificate authority of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tideline.cli.guard import group_of, output
from tideline.cli.options import Json

app = group_of("Make certificates: an authority (CA), the coordinator's, and the agents'. Nothing is sent.")
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of the CA; created if it is missing.")]


@app.command("init")
def init(
    out: Out,
    host: Annotated[list[str], typer.Option(help="A host name or IP address of the coordinator. Repeatable.")],
    as_json: Json = False,
) -> None:
    """Make a CA and the coordinator's certificate. Run it again to renew the certificate; the CA stays."""
    from tideline.client.certificates import issue_coordinator

    show_files(issue_coordinator(out, host), as_json)


@app.command("client")
def client(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The client's name, as in its invitation.")],
    out: Out,
    as_json: Json = False,
) -> None:
    """Make an agent's certificate with the CA that `tideline tls init` made in the same folder."""
    from tideline.client.certificates import issue_client

    show_files(issue_client(out, name), as_json)


def show_files(files: dict[str, str], as_json: bool) -> None:
    output(files, as_json, "\n".join(f"{what}: {path}" for what, path in files.items()))
