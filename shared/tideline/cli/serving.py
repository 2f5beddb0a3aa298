"""The commands that serve: coordinator and agent; and the invitation that brings them together."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tideline.cli.guard import say_json
from tideline.cli.options import REGISTRY, Door, Json, Methods, at_door

if TYPE_CHECKING:
    from tideline.core.errors import ConfigRefused
    from tideline.core.run import Role
    from tideline_agent.settings import AgentSettings

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
LOG_JSON = typer.Option("--log-json", envvar="TIDELINE_LOG_JSON", help="Log JSON lines instead of text.")
LogLevel = Annotated[
    str, typer.Option("--log-level", envvar="TIDELINE_LOG_LEVEL", help="The least that is logged: debug, info, warning, error.")
]


def coordinator(
    home: Annotated[Path | None, typer.Option(help="Database, parts and key. [default: ~/.tideline/coordinator]")] = None,
    database: Annotated[str | None, typer.Option(metavar="URL", help="Postgres. [default: SQLite in the home]")] = None,
    parts: Annotated[str | None, typer.Option(metavar="WHERE", help="Directory or s3://... [default: in the home]")] = None,
    parts_cache: Annotated[float | None, typer.Option(help="GB of a bucket's parts kept in the home. [default: 10]")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. [default: 127.0.0.1]")] = None,
    lease: Annotated[
        float | None, typer.Option(help="Seconds of silence after which another replica conducts the runs. [default: 15]")
    ] = None,
    wait: Annotated[float | None, typer.Option(help="Seconds to wait at the start for a database. [default: 60]")] = None,
    redis: Annotated[str | None, typer.Option(metavar="URL", help="Redis through which replicas wake each other.")] = None,
    rate: Annotated[int | None, typer.Option(help="Requests a minute from one address; 0: any number. [default: 3000]")] = None,
    rate_wrong_keys: Annotated[int | None, typer.Option(help="The same without the right key. [default: 30]")] = None,
    rate_enrol: Annotated[int | None, typer.Option(help="Enrolments a minute from one address. [default: 1200]")] = None,
    connections: Annotated[
        int | None, typer.Option(help="Connections from one address at the HTTP API; 0: any number. [default: 256]")
    ] = None,
    admin_key_file: Annotated[Path | None, typer.Option(help="A file with an admin key that replicas share.")] = None,
    grpc_port: Annotated[int | None, typer.Option(help="The gRPC port for agents; 0: a free one. [default: 7800]")] = None,
    http_port: Annotated[int | None, typer.Option(help="The port of the HTTP API; 0: a free one. [default: 7880]")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain (PEM) for both ports.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None,
    tls_client_ca: Annotated[Path | None, typer.Option(help="Certificate (PEM) that must vouch for each agent's own.")] = None,
    advertise: Annotated[
        str | None, typer.Option(metavar="HOST:PORT,...", help="What agents call. [default: host, port]")
    ] = None,
    insecure: Annotated[bool | None, typer.Option("--insecure", help="Listen beyond this machine without TLS.")] = None,
    weights_limit: Annotated[float | None, typer.Option(help="GB of weights that may be uploaded at once. [default: 4]")] = None,
    methods: Annotated[str | None, typer.Option(metavar="MODULE:TUPLE", help="The registry of methods.")] = None,
    log_json: Annotated[bool, LOG_JSON] = False,
    log_level: LogLevel = "info",
) -> None:
    """Run the coordinator until it is interrupted.

    Every option may also be given by the environment: TIDELINE_HOME, TIDELINE_GRPC_PORT and so on; options win.
    """
    from tideline.cli import logs
    from tideline.core.errors import Unreachable
    from tideline_server.main import run_coordinator
    from tideline_server.store import StoreAway

    given = {
        "home": home,
        "database": database,
        "parts": parts,
        "parts_cache": parts_cache,
        "host": host,
        "redis": redis,
        "lease": lease,
        "wait": wait,
        "rate": rate,
        "rate_wrong_keys": rate_wrong_keys,
        "rate_enrol": rate_enrol,
        "connections": connections,
        "admin_key_file": admin_key_file,
        "grpc_port": grpc_port,
        "http_port": http_port,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "tls_client_ca": tls_client_ca,
        "advertise": advertise,
        "insecure": insecure,
        "weights_limit": weights_limit,
        "methods": methods,
    }
    settings = coordinator_settings({name: value for name, value in given.items() if value is not None})
    logs.configure(log_json, log_level)
    try:
        run_coordinator(settings)
    except StoreAway as error:  # who starts it again may find the database there
        raise Unreachable(error.what, error.todo, **error.context) from None


def coordinator_settings(given: dict[str, Any]) -> Any:
    """Settings from options over the environment. Raises ConfigRefused."""
    from pydantic import ValidationError

    from tideline.core.errors import ConfigRefused
    from tideline_server.settings import CoordinatorSettings

    try:
        return CoordinatorSettings(**given)
    except ValidationError as cause:
        first = cause.errors()[0]
        name = str(first["loc"][0]).removeprefix("TIDELINE_").removeprefix("tideline_")
        option = f"--{name.replace('_', '-')}"
        place = option if name in given else f"TIDELINE_{name.upper()}"
        raise ConfigRefused(f"{place} is {first['input']!r}: {first['msg']}", f"Correct {place}", path=name) from None


def agent(
    data: Annotated[Path, typer.Option(metavar="DIR", help="The folder of the site's data, see `tideline data check`.")],
    role: Annotated[list[str], typer.Option(help="A role that this site allows: source, target or peer. Repeatable.")],
    coordinator: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The coordinator's door for agents. [default: the token's, or the home's]")
    ] = "",
    token: Annotated[str, typer.Option(envvar="TIDELINE_TOKEN", help="From `tideline invite`; needed the first time.")] = "",
    token_file: Annotated[Path | None, typer.Option(help="A file with the token.")] = None,
    name: Annotated[str | None, typer.Option(help="The client's name. [default: the home's, or the host's]")] = None,
    home: Annotated[Path | None, typer.Option(help="Keys and memory. [default: ~/.tideline/agents/NAME]")] = None,
    policy: Annotated[Path | None, typer.Option(help="What this site lets out (TOML).")] = None,
    device: Annotated[str, typer.Option(help="Where steps compute: auto, cpu, cuda, ...")] = "auto",
    ca: Annotated[Path | None, typer.Option(help="Certificate (PEM) that vouches for the coordinator's.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="The agent's own certificate (PEM), where one is asked for.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Call beyond this machine without TLS.")] = False,
    rotate: Annotated[bool, typer.Option("--rotate", help="Make new keys once it is enrolled.")] = False,
    parallel: Annotated[int, typer.Option(min=1, help="Runs served at once.")] = 4,
    trainer_idle: Annotated[float, typer.Option(min=0, help="Seconds after which an idle trainer ends.")] = 60.0,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for a coordinator at the start.")] = 60.0,
    metrics: Annotated[str | None, typer.Option(metavar="[HOST:]PORT", help="Tell Prometheus its numbers there.")] = None,
    methods: Methods = REGISTRY,
    no_notes: Annotated[bool, typer.Option("--no-notes", help="Tell the coordinator nothing of how work goes here.")] = False,
    log_json: Annotated[bool, LOG_JSON] = False,
    log_level: LogLevel = "info",
) -> None:
    """Run an agent beside its data until it is interrupted. It calls the coordinator; nothing calls it."""
    given = dict(locals())  # the options, by their names

    from tideline.cli import logs
    from tideline_agent.main import run_agent

    settings = agent_settings(given)
    logs.configure(log_json, log_level)
    run_agent(settings)


def agent_settings(given: Mapping[str, Any]) -> AgentSettings:
    """An agent's settings from the options of its command. Raises ConfigRefused, Refused."""
    from tideline_agent.settings import AgentSettings

    same = {f.name: given[f.name] for f in dataclasses.fields(AgentSettings) if f.name in given}
    name = given["name"] or name_of_home(given["home"]) or host_name()
    token = given["token"] or token_in(given["token_file"])
    return AgentSettings(
        **same | {"token": token, "roles": read_roles(given["role"]), "name": name, "notes": not given["no_notes"]}
    )


def token_in(file: Path | None) -> str:
    """The token in a file; none where no file is named. Raises ConfigRefused."""
    if file is None:
        return ""
    try:
        return file.read_text("ascii").strip()
    except (OSError, ValueError) as cause:
        why = getattr(cause, "strerror", None) or "it is no text"
        raise wrong("--token-file", str(file), f"It cannot be read ({why}); make it with: tideline invite --out FILE") from None


def read_roles(words: list[str]) -> tuple[Role, ...]:
    """The roles that were named, each once. Raises ConfigRefused."""
    from tideline.core.run import Role
    from tideline.core.settings import read_scalar

    return tuple(dict.fromkeys(read_scalar(Role, word, "--role") for word in words))


def name_of_home(home: Path | None) -> str:
    """The name of the agent whose home it is; empty if none has enrolled from it. Raises Refused."""
    from tideline_agent.home.identity import recall

    memo = recall(home.expanduser()) if home is not None else None
    return memo.name if memo else ""


def host_name() -> str:
    """This host's name, as far as it can name a client."""
    import socket

    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).lstrip(".")[:64] or "agent"


@at_door
def invite(
    door: Door,
    name: Annotated[str, typer.Option(help="The only name that the token admits.")],
    labels: Annotated[str, typer.Option(metavar="KEY=VALUE,...", help="What experiments may select the client by.")] = "",
    ttl: Annotated[str, typer.Option(help="How long the token can be used: 90s, 30m, 1h, 2d.")] = "24h",
    hold: Annotated[bool, typer.Option("--hold", help="The client waits for `tideline clients approve`.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the token there, and not to the screen.")] = None,
    as_json: Json = False,
) -> None:
    """Make a one-use token that lets an agent in.

    It says where the coordinator is and who vouches for it, and is printed with the command that uses it.
    """
    from tideline.client.http import Client

    asked: dict[str, Any] = {"name": name, "labels": read_labels(labels), "ttl_seconds": read_seconds(ttl)}
    if out is not None:
        hidden("", out)  # before there is a token to lose
    with Client.of(door) as there:
        asked["addresses"] = [there.agents_door().partition("://")[2]]
        made = there.post("/invites", asked | ({"hold": True} if hold else {}))
        made["command"] = command = agent_command(name, made["token"], out)
    if out is not None:
        made["token_file"] = hidden(made.pop("token"), out)
    if as_json:
        say_json(made)
        return
    where = str(out) if out is not None else made["token"]
    typer.echo(f"Token for {name}, good once, within {ttl}:\n\n  {where}\n\nOn the machine beside the data:\n")
    typer.echo("  " + command.replace(" --", " \\\n    --"))
    if hold:
        typer.echo(f"\nThen compare its fingerprint in its log and in `tideline clients list`: tideline clients approve {name}")


def hidden(token: str, file: Path) -> str:
    """Write a token where only its owner may read it; the file's name. Raises Refused."""
    from tideline.client.logins import written
    from tideline.core.errors import Refused

    try:
        written(file, token + "\n")
    except OSError as cause:
        raise Refused(f"The token cannot be written to {file}: {cause.strerror}", "Give another --out") from None
    return str(file)


def read_labels(text: str) -> dict[str, str]:
    """`a=1,b=2` as a mapping. Raises ConfigRefused."""
    pairs = [each.partition("=") for each in text.split(",") if each.strip()]
    for key, equals, _ in pairs:
        if not equals or not key.strip():
            raise wrong("--labels", text, "Write it as KEY=VALUE,KEY=VALUE, such as site=a,gpu=1")
    return {key.strip(): value.strip() for key, _, value in pairs}


def read_seconds(text: str, option: str = "--ttl") -> float:
    """`90s`, `30m`, `1h`, `2d`, or seconds. Raises ConfigRefused."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhd]?)", text.strip())
    if found is None:
        raise wrong(option, text, "Write a number and a unit, such as 90s, 30m, 1h or 2d")
    return float(found[1]) * SECONDS[found[2] or "s"]


def wrong(option: str, text: str, todo: str) -> ConfigRefused:
    """The refusal of an option's value."""
    from tideline.core.errors import ConfigRefused

    return ConfigRefused(f"{option} is {text!r}", todo, path=option)


def agent_command(name: str, token: str, file: Path | None = None) -> str:
    """What the owner of the data types. DIR and the role are for the owner to fill in."""
    from tideline.client.http import is_loopback
    from tideline.core.tokens import Trust, read_token, split_address

    told = read_token(token)
    extra = "" if told.addresses else " --coordinator HOST:PORT"
    far = any(not is_loopback(split_address(each)[0]) for each in told.addresses)
    extra += " --insecure" if told.trust is Trust.PLAIN and far else ""
    given = f"--token {token}" if file is None else f"--token-file {shlex.quote(file.name)}"
    return f"tideline agent {given} --name {name} --data DIR --role source{extra}"
