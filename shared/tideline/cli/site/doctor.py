"""`tideline doctor`: an agent's command, with another word in it, tells what is in its way."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from tideline.cli.guard import DONE, UNSOUND, clean, say_json
from tideline.cli.options import Json
from tideline.cli.serving import agent, agent_settings

if TYPE_CHECKING:
    from tideline_agent.doctor import Finding
    from tideline_agent.settings import AgentSettings


def as_agent(command: Callable[[AgentSettings, bool], None]) -> Callable[..., None]:
    """Give a command the options of `tideline agent`, as its settings, and --json."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    own = [p.replace(kind=keyword) for p in inspect.signature(agent, eval_str=True).parameters.values()]
    params = [*own, inspect.Parameter("as_json", keyword, default=False, annotation=Json)]

    @functools.wraps(command)
    def wrapped(**given: Any) -> None:
        command(agent_settings(given), given["as_json"])

    del wrapped.__wrapped__
    wrapped.__signature__ = inspect.Signature(params)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in params}
    return wrapped


@as_agent
def doctor(settings: AgentSettings, as_json: bool) -> None:
    """Look for what would keep an agent with these options from working: a line for each check, with what to do.

    Nothing is changed, at either end: a token is not used up, and no keys are made.
    """
    from tideline_agent.doctor import State, checkup

    findings = []
    for finding in checkup(settings):
        findings.append(finding)
        if not as_json:
            tell(finding)
    sound = all(f.state is not State.FAILED for f in findings)
    if as_json:
        say_json({"sound": sound, "checks": [f.__dict__ | {"state": f.state.value} for f in findings]})
    else:
        typer.echo(f"\n{'An agent can work with these options.' if sound else 'An agent could not work with these options.'}")
    raise typer.Exit(DONE if sound else UNSOUND)


def tell(finding: Finding) -> None:
    """A check for people."""
    typer.echo(f"{finding.state.value:<9}  {finding.check:<8}  {clean(finding.found)}")
    if finding.todo:
        typer.echo(f"{'':<21}What to do: {clean(finding.todo)}")
