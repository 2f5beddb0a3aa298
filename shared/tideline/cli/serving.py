"""The commands that serve: coordinator and agent; doctor, which tries an agent's options; invite, which lets an agent in."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tideline.cli.guard import DONE, UNSOUND, print_json
from tideline.cli.options import (
    Connect,
    Json,
    LogJson,
    LogLevel,
    Options,
    grouped,
    parameter,
    remote,
    settings_given,
    settings_options,
)
from tideline.client.output import clean
from tideline.core.errors import ConfigRefused, Refused, Unreachable
from tideline.core.run import Role
from tideline.core.settings import nearest, read_scalar
from tideline_agent.settings import AgentSettings
from tideline_server.settings import CoordinatorSettings

if TYPE_CHECKING:
    from structlog.typing import Processor

PREFIX = "TIDELINE_"  # of the coordinator's variables
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
TOKEN = typer.Option("--token", envvar="TIDELINE_TOKEN", help="Token from `tideline invite`; needed the first time.")
ROLE = typer.Option("--role", help="A role that you allow at this site: source, target or peer. Repeatable.")
QUIET = typer.Option("--no-notes", help="Do not report to the coordinator how work goes here.")
AGENT_OPTIONS = [
    *settings_options(AgentSettings, coordinator="", name=""),
    parameter("role", Annotated[list[str], ROLE], inspect.Parameter.empty),
    parameter("token", Annotated[str, TOKEN], ""),
    parameter("token_file", Annotated[Path | None, typer.Option(help="A file with the token.")]),
    parameter("no_notes", Annotated[bool, QUIET], False),
]


def coordinator_settings(options: Options) -> CoordinatorSettings:
    """Settings from options over the environment. Raises ConfigRefused."""
    return CoordinatorSettings(**settings_given(CoordinatorSettings, options, PREFIX))


def agent_settings(options: Options) -> AgentSettings:
    """An agent's settings from the options of its command. Raises ConfigRefused, Refused."""
    fields = {field.name for field in dataclasses.fields(AgentSettings) if field.metadata.get("doc")}
    values = settings_given(AgentSettings, {name: options[name] for name in fields})
    values["name"] = options["name"] or name_of_home(options["home"]) or host_name()
    values["token"] = options["token"] or token_in(options["token_file"])
    values["roles"] = tuple(dict.fromkeys(read_scalar(Role, word, "--role") for word in options["role"]))
    return AgentSettings(**values, notes=not options["no_notes"])


@grouped(settings_options(CoordinatorSettings, PREFIX), coordinator_settings)
def coordinator(settings: CoordinatorSettings, log_json: LogJson = False, log_level: LogLevel = "info") -> None:
    """Run the coordinator until you interrupt it.

    You can set every option in the environment too. Options override the environment.
    """
    from tideline_server.main import run_coordinator
    from tideline_server.store import StoreAway

    configure_log(log_json, log_level)
    try:
        run_coordinator(settings)
    except StoreAway as error:  # a supervisor that starts it again may find the database there
        raise Unreachable(error.what, error.todo, **error.context) from None


@grouped(AGENT_OPTIONS, agent_settings)
def agent(settings: AgentSettings, log_json: LogJson = False, log_level: LogLevel = "info") -> None:
    """Run an agent beside its data until you interrupt it. It calls the coordinator; nothing calls it."""
    from tideline_agent.main import run_agent

    configure_log(log_json, log_level)
    run_agent(settings)


@grouped(AGENT_OPTIONS, agent_settings)
def doctor(settings: AgentSettings, log_json: LogJson = False, log_level: LogLevel = "info", as_json: Json = False) -> None:
    """Check whether an agent with these options would work, and what to do if it would not.

    It changes nothing, at either end: it does not use up the token and makes no keys.
    """
    from tideline_agent.doctor import State, checkup

    findings = []
    for finding in checkup(settings):
        findings.append(finding)
        if not as_json:
            typer.echo(f"{finding.state.value:<9}  {finding.check:<8}  {clean(finding.found)}")
            typer.echo(f"{'':<21}What to do: {clean(finding.todo)}") if finding.todo else None
    sound = all(f.state is not State.FAILED for f in findings)
    if as_json:
        print_json({"sound": sound, "checks": [f.__dict__ | {"state": f.state.value} for f in findings]})
    else:
        typer.echo(f"\n{'An agent can work with these options.' if sound else 'An agent could not work with these options.'}")
    raise typer.Exit(DONE if sound else UNSOUND)


def configure_log(as_json: bool, level: str = "info") -> None:
    """Send our log from a level on, and warnings of libraries, to stderr. Colours only on a terminal. Raises ConfigRefused."""
    import structlog

    from tideline.cli.throttle import Throttle, left_out

    if level.lower() not in LEVELS:
        guess = nearest(level.lower(), list(LEVELS))
        raise ConfigRefused(f"--log-level is {level!r}", f"Use one of: {', '.join(LEVELS)}{guess}", path="--log-level")
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # Tracebacks without the values of variables: those may hold data.
    plain = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)
    tail: list[Processor] = [plain]
    if as_json:
        tail = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    throttle = Throttle(left_out)
    structlog.configure(
        processors=[throttle, *shared, *tail],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level.lower()]),
    )
    handler = logging.StreamHandler(sys.stderr)
    drop = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=[drop, *tail], foreign_pre_chain=shared))
    handler.addFilter(throttle)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)


@remote
def invite(
    connect: Connect,
    name: Annotated[str, typer.Option(help="The only client name that the token admits.")],
    labels: Annotated[str, typer.Option(metavar="KEY=VALUE,...", help="Labels by which experiments can select the client.")] = "",
    ttl: Annotated[str, typer.Option(help="How long the token is valid: 90s, 30m, 1h, 2d.")] = "24h",
    hold: Annotated[bool, typer.Option("--hold", help="Make the client wait for `tideline clients approve`.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the token to this file, not to the screen.")] = None,
    address: Annotated[
        list[str] | None, typer.Option(help="HOST:PORT or https://HOST that the agent calls, where you know a better one.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a one-use token that lets an agent in.

    The token names the coordinator's address and its CA. It is printed with the command that uses it.
    """
    body: dict[str, object] = {"name": name, "labels": read_labels(labels), "ttl_seconds": read_seconds(ttl)}
    if out is not None:
        write_token("", out)  # before there is a token to lose
    with connect() as client:
        body["addresses"] = address or [client.grpc_address().partition("://")[2]]
        invited = client.post("/invites", body | ({"hold": True} if hold else {}))
    if address and invited["addresses"] != address:
        typer.echo(
            f"The coordinator announces its own addresses, which the token names: {', '.join(invited['addresses'])}", err=True
        )
    invited["command"] = command = agent_command(name, invited["token"], out)
    where = invited["token"] if out is None else str(out)
    if out is not None:
        write_token(invited.pop("token"), out)
        invited["token_file"] = where
    if as_json:
        print_json(invited)
        return
    typer.echo(f"Token for {name}, valid once, within {ttl}:\n\n  {where}\n\nRun this on the machine beside the data:\n")
    typer.echo("  " + command.replace(" --", " \\\n    --"))
    if hold:
        typer.echo(f"\nThen compare the fingerprint in its log with `tideline clients list`: tideline clients approve {name}")


def write_token(token: str, file: Path) -> None:
    """Write a token where only its owner may read it. Raises Refused."""
    from tideline.client.logins import write_private

    try:
        write_private(file, token + "\n")
    except OSError as cause:
        raise Refused(f"The token cannot be written to {file}: {cause.strerror}", "Give another --out") from None


def token_in(file: Path | None) -> str:
    """The token in a file; empty where no file is named. Raises ConfigRefused."""
    if file is None:
        return ""
    try:
        return file.read_text("ascii").strip()
    except (OSError, ValueError) as cause:
        why = getattr(cause, "strerror", None) or "it is not text"
        raise wrong("--token-file", str(file), f"It cannot be read ({why}); make it with: tideline invite --out FILE") from None


def name_of_home(home: Path | None) -> str:
    """The name of the agent whose home it is; empty if none has enrolled from it. Raises Refused."""
    from tideline_agent.home.identity import recall

    memo = recall(home.expanduser()) if home is not None else None
    return memo.name if memo else ""


def host_name() -> str:
    """This host's name, as far as it can name a client."""
    import socket

    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).lstrip(".")[:64] or "agent"


def read_labels(text: str) -> dict[str, str]:
    """`a=1,b=2` as a mapping. Raises ConfigRefused."""
    pairs = [each.partition("=") for each in text.split(",") if each.strip()]
    for key, equals, _ in pairs:
        if not equals or not key.strip():
            raise wrong("--labels", text, "Write it as KEY=VALUE,KEY=VALUE, such as site=a,gpu=1")
    return {key.strip(): value.strip() for key, _, value in pairs}


def read_seconds(text: str, option: str = "--ttl") -> float:
    """`90s`, `30m`, `1h`, `2d`, or seconds. Raises ConfigRefused."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhd]?)", text.strip())
    if match is None:
        raise wrong(option, text, "Write a number and a unit, such as 90s, 30m, 1h or 2d")
    return float(match[1]) * SECONDS[match[2] or "s"]


def wrong(option: str, text: str, todo: str) -> ConfigRefused:
    return ConfigRefused(f"{option} is {text!r}", todo, path=option)


def agent_command(name: str, token: str, file: Path | None = None) -> str:
    """The command that the owner of the data types, who fills in DIR and the role."""
    from tideline.core.tokens import Trust, place_of, read_token

    content = read_token(token)
    extra = "" if content.addresses else " --coordinator HOST:PORT"
    far = any(not place.here and place.scheme != "https" for place in map(place_of, content.addresses))
    extra += " --insecure" if content.trust is Trust.PLAIN and far else ""
    given = f"--token {token}" if file is None else f"--token-file {shlex.quote(file.name)}"
    return f"tideline agent {given} --name {name} --data DIR --role source{extra}"
