"""`tideline join`: from an address and a token to a working agent, or to a service that runs one."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated

import typer

from tideline.cli.options import LogJson, LogLevel, Options, grouped, parameter
from tideline.cli.serving import AGENT_OPTIONS, agent_settings, configure_log
from tideline.core.errors import ConfigRefused, Refused
from tideline.core.tokens import PREFIX, place_of
from tideline_agent.settings import AgentSettings

URL = typer.Argument(metavar="URL", help="Where the coordinator is: https://HOST, or HOST:PORT of its gRPC port.")
TOKEN = typer.Argument(metavar="[TOKEN]", envvar="TIDELINE_TOKEN", help="Token from `tideline invite`; or see --token-file.")
SERVICE = typer.Option(
    "--service", metavar="FILE", help="Enrol, and write a systemd unit that runs the agent instead of running it; - prints it."
)
OPTIONS = [
    parameter("coordinator", Annotated[str, URL], inspect.Parameter.empty),
    parameter("token", Annotated[str, TOKEN], ""),
    *(each for each in AGENT_OPTIONS if each.name not in ("coordinator", "token")),
]


def joining(options: Options) -> AgentSettings:
    """An agent's settings. Raises ConfigRefused for what is no address or no token, before anything is sent."""
    url = options["coordinator"]
    if url.startswith(PREFIX):
        raise ConfigRefused("The token stands where the address should", "Write tideline join https://HOST TOKEN", path="URL")
    for each in url.split(","):
        try:
            place_of(each.strip())
        except ConfigRefused as error:
            raise ConfigRefused(error.what, error.todo, path="URL") from None
    return agent_settings(options)


@grouped(OPTIONS, joining)
def join(
    settings: AgentSettings,
    service: Annotated[str | None, SERVICE] = None,
    log_json: LogJson = False,
    log_level: LogLevel = "info",
) -> None:
    """Enrol with a token and run the agent until you interrupt it; or, with --service, set a service up that does.

    The token is needed once: afterwards the agent's home knows the coordinator, and the agent proves itself by its keys.
    """
    from tideline_agent.joining import enrolled
    from tideline_agent.main import run_agent

    configure_log(log_json, log_level)
    if service is None:
        run_agent(settings)
        return
    from tideline_agent.unit import unit_of

    text = unit_of(settings)  # what it cannot hold is said before a token is used up
    standing = enrolled(settings)
    if service == "-":
        typer.echo(text, nl=False)
    else:
        write_unit(Path(service), text)
        name = Path(service).name
        typer.echo(f"Wrote {service}. Start it, now and at each boot: systemctl daemon-reload && systemctl enable --now {name}")
    if standing != "approved":
        typer.echo(
            f"{settings.name} waits: an operator of the coordinator approves it: tideline clients approve {settings.name}",
            err=True,
        )


def write_unit(path: Path, text: str) -> None:
    """Raises Refused for a place that cannot be written."""
    try:
        path.write_text(text)
        path.chmod(0o644)
    except OSError as cause:
        todo = "Choose another FILE, or become root; - prints the unit. The agent has enrolled; the token is not needed again"
        raise Refused(f"The unit cannot be written to {path}: {cause.strerror}", todo) from None
