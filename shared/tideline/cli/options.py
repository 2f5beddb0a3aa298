"""Options that several commands share, and decorators that give a command a group of options as one value."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin

import typer

from tideline.cli.guard import JSON_WANTED
from tideline.core.algorithm import REGISTRY as REGISTRY
from tideline.core.settings import Settings, hints_of, read

if TYPE_CHECKING:
    from tideline.client.http import Client

T = TypeVar("T")
Options = Mapping[str, Any]  # values as typer converts them, by the names of a command's parameters
Connect = Callable[[], "Client"]
AUTO = "auto"
LEAST, MOST = 2, 64  # agents of a demonstration: one to learn from, one to learn for
SWITCH = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def remember(ctx: typer.Context, value: bool) -> bool:
    """Note that JSON is wanted, so that errors are printed as JSON too."""
    ctx.meta[JSON_WANTED] = value
    return value


Json = Annotated[bool, typer.Option("--json", help="Print JSON, errors included.", callback=remember)]
RunId = Annotated[str, typer.Argument(metavar="ID", help="The run's id, see `tideline run list`.")]
ExperimentFile = Annotated[Path, typer.Argument(metavar="FILE", help="The experiment, YAML or JSON.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, such as config.rounds=5. Repeatable.")
]
SitePolicyFile = Annotated[Path | None, typer.Option("--policy", metavar="FILE", help="What may leave the sites (TOML).")]
Device = Annotated[str, typer.Option(help="Where steps compute: cpu, cuda, ... auto is a GPU if there is one.")]
Address = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Of a Ray cluster: HOST:PORT, ray://HOST:PORT, auto. [default: a Ray of this machine]"),
]
Gpus = Annotated[float, typer.Option(metavar="SHARE", help="GPUs of each task on Ray, such as 0.25 with --device cuda.")]
ModelFormat = Annotated[
    str | None,
    typer.Option("--format", metavar="FORMAT", help="safetensors, torch or onnx. [default: by the file's suffix]"),
]
Which = Annotated[
    str, typer.Option("--which", metavar="WHICH", help="final, or best: that of the best round, in a run that selects.")
]
Methods = Annotated[str, typer.Option("--methods", metavar="MODULE:TUPLE", help="Methods beside the built-in ones.")]
Networks = Annotated[
    list[str] | None,
    typer.Option("--networks", metavar="MODULE:NAME", help="Networks beside the built-in ones. Repeatable."),
]
Url = Annotated[str | None, typer.Option("--url", envvar="TIDELINE_URL", help="The coordinator's HTTP address.")]
ApiKey = Annotated[str | None, typer.Option("--api-key", envvar="TIDELINE_API_KEY", help="Your API key for the coordinator.")]
Home = Annotated[
    Path | None, typer.Option("--home", envvar="TIDELINE_HOME", help="The coordinator's home. [default: ~/.tideline/coordinator]")
]
Authority = Annotated[
    Path | None, typer.Option("--ca", envvar="TIDELINE_CA", help="CA certificate (PEM) that signed the coordinator's.")
]
Project = Annotated[
    str | None, typer.Option("--project", envvar="TIDELINE_PROJECT", help="The project. [default: that of your login or key]")
]
LogJson = Annotated[bool, typer.Option("--log-json", envvar="TIDELINE_LOG_JSON", help="Log JSON lines instead of text.")]
LogLevel = Annotated[
    str, typer.Option("--log-level", envvar="TIDELINE_LOG_LEVEL", help="Lowest level to log: debug, info, warning, error.")
]


def device_of(device: str, on_ray: bool, gpus: float) -> str:
    """Where steps compute. auto: a GPU if there is one; on Ray, whose workers may be elsewhere, if tasks get a share of one."""
    if device != AUTO:
        return device
    if on_ray:
        return "cuda" if gpus else "cpu"
    from tideline.nets.computing.devices import chosen

    return chosen(device)


def use_networks(places: Sequence[str] | None) -> None:
    """Know these networks in this process; without any, torch is not loaded for them. Raises ConfigRefused."""
    if places:
        from tideline.nets import registry

        registry.use(places)


def parameter(name: str, annotation: object, default: object = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def grouped(
    options: Sequence[inspect.Parameter], build: Callable[[Options], T], last: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator that gives a command more options; what `build` makes of their values is the command's first argument."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
        parameters = [*own, *options] if last else [*options, *own]

        @functools.wraps(command)
        def wrapped(**given: Any) -> None:
            group = {each.name: given.pop(each.name) for each in options}
            command(build(group), **given)

        del wrapped.__wrapped__
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
        return wrapped

    return decorate


def connector(options: Options) -> Connect:
    def connect() -> Client:
        from tideline.client.http import Client, Endpoint

        return Client.of(Endpoint(**options))

    return connect


# The command's first argument is a function that connects to the coordinator.
ENDPOINT = {"url": Url, "api_key": ApiKey, "home": Home, "ca": Authority, "project": Project}
remote = grouped([parameter(*each) for each in ENDPOINT.items()], connector, last=True)


def settings_options(kind: type[Settings], environment: str = "", **defaults: object) -> list[inspect.Parameter]:
    """An option for each field of a settings class that has a `doc`, which is its help.

    environment: the prefix of variables that `settings_given` reads, too; then options have no defaults of their own, and the
    help says the field's. defaults: an option's default where it is not the field's.
    """
    made = []
    for field in dataclasses.fields(kind):
        if not (doc := field.metadata.get("doc")):
            continue
        hint, default = base_of(kind, field.name), defaults.get(field.name, field.default)
        if environment:
            fixed = (
                "" if default in (None, False, ()) else f"default: {default:g}; " if hint is float else f"default: {default}; "
            )
            doc, default = f"{doc} [{fixed}env: {environment}{field.name.upper()}]", None
        if get_origin(hint) is tuple or issubclass(hint, Enum):
            hint = list[str] if get_origin(hint) is tuple else str
        if default is dataclasses.MISSING:
            default = inspect.Parameter.empty
        option = typer.Option(option_of(field.name), help=doc, show_default=default not in ("", None, False, ()))
        made.append(parameter(field.name, Annotated[hint | None if default is None else hint, option], default))
    return made


def settings_given(kind: type[Settings], options: Options, environment: str = "") -> dict[str, Any]:
    """A settings class's values from options or else environment variables. Raises ConfigRefused, which names the one."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        hint, place = base_of(kind, field.name), option_of(field.name)
        value, variable = options.get(field.name), f"{environment}{field.name.upper()}"
        empty = hint is Path and not os.environ.get(variable)  # no file; an overlay of containers says so
        if value is None and environment and variable in os.environ and not empty:
            value, place = from_text(hint, os.environ[variable]), variable
        if get_origin(hint) is tuple:
            values |= {field.name: tuple(value)} if value else {}
        elif value is not None:
            values[field.name] = read(hint, value, place, field.metadata) if hint in (int, float, str, bool) else hint(value)
    return values


def option_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def base_of(kind: type[Settings], name: str) -> Any:
    """The type of a field where it is not None."""
    hint = hints_of(kind)[name]
    if get_origin(hint) is tuple:
        return hint
    return next((each for each in get_args(hint) if each is not type(None)), hint)


def from_text(hint: type, text: str) -> bool | float | str | list[str]:
    """A variable's text as the type of its field, a list's with commas; as it is, if it cannot be that."""
    if get_origin(hint) is tuple:
        return [each.strip() for each in text.split(",") if each.strip()]
    try:
        value: bool | float | str = SWITCH.get(text.lower(), text) if hint is bool else text
        value = hint(text) if hint in (int, float) else value
    except ValueError:
        return text
    return text if isinstance(value, float) and not math.isfinite(value) else value
