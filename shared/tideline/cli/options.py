"""Options that several commands share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tideline.cli.guard import JSON_WANTED

REGISTRY = "tideline.algorithms:METHODS"
LEAST, MOST = 2, 64  # agents of a demonstration: one to learn from, one to learn for


@dataclass(frozen=True)
class Door:
    """Where the coordinator is asked, and with which key. What is None is looked up (cli.client)."""

    url: str | None = None
    api_key: str | None = None
    home: Path | None = None
    ca: Path | None = None


def remember(ctx: typer.Context, value: bool) -> bool:
    """Note that JSON is wanted, so that errors are told that way too."""
    ctx.meta[JSON_WANTED] = value
    return value


Json = Annotated[bool, typer.Option("--json", help="Print JSON, errors included.", callback=remember)]
RunId = Annotated[str, typer.Argument(metavar="ID", help="The run's id, see `tideline run list`.")]
ExperimentFile = Annotated[Path, typer.Argument(metavar="FILE", help="The experiment, YAML or JSON.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, such as config.rounds=5. Repeatable.")
]
SitePolicyFile = Annotated[Path | None, typer.Option("--policy", metavar="FILE", help="What every site lets out (TOML).")]
Device = Annotated[str, typer.Option(help="Where steps compute: cpu, cuda, ...")]
Methods = Annotated[str, typer.Option("--methods", metavar="MODULE:TUPLE", help="The registry of methods.")]
Url = Annotated[str | None, typer.Option("--url", envvar="TIDELINE_URL", help="The coordinator's HTTP address.")]
ApiKey = Annotated[str | None, typer.Option("--api-key", envvar="TIDELINE_API_KEY", help="A key of the coordinator.")]
Home = Annotated[
    Path | None, typer.Option("--home", envvar="TIDELINE_HOME", help="The coordinator's home. [default: ~/.tideline/coordinator]")
]
Authority = Annotated[
    Path | None, typer.Option("--ca", envvar="TIDELINE_CA", help="Certificate (PEM) that vouches for the coordinator's.")
]
DOOR_OPTIONS = {"url": Url, "api_key": ApiKey, "home": Home, "ca": Authority}


def at_door(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that find the coordinator; it gets them as a Door, its first argument."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(n, keyword, default=None, annotation=hint) for n, hint in DOOR_OPTIONS.items()]
    params = [*(p.replace(kind=keyword) for p in own), *added]

    @functools.wraps(command)
    def wrapped(**given: Any) -> None:
        door = Door(**{name: given.pop(name) for name in DOOR_OPTIONS})
        command(door, **given)

    del wrapped.__wrapped__
    wrapped.__signature__ = inspect.Signature(params)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in params}
    return wrapped
