"""Commands by which a site's owner pauses the agent, decides for more than one run, and opens the page again."""

from __future__ import annotations

from typing import Annotated

import typer

from tideline.cli.guard import output, print_json
from tideline.cli.options import Json
from tideline.cli.site.approval import Run, confirm
from tideline.cli.site.site import Home
from tideline.client.output import clean, day
from tideline.core.errors import ConfigRefused
from tideline.core.settings import plain

standing = typer.Typer(
    help="Decide once for all runs that are alike, and take it back.", no_args_is_help=True, rich_markup_mode=None
)
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


@standing.command("list")
def list_decisions(home: Home, as_json: Json = False) -> None:
    """List the decisions that hold for more than one run."""
    from tideline_agent.home.ledger import FileLedger
    from tideline_agent.home.words import check_home

    check_home(home)
    found = FileLedger(home).standing()
    if as_json:
        print_json([plain(each) for each in found])
        return
    for each in found:
        what = f" for runs of {each.by}, {each.words}" if each.intent else ""
        typer.echo(clean(f"{each.number:>6}  {each.answer.value}  {each.method}{what}  (since {day(each.at)}, by {each.owner})"))
    if not found:
        typer.echo("No decision holds for more than one run.")


@standing.command("always")
def allow_always(run: Run, home: Home, yes: Yes = False, as_json: Json = False) -> None:
    """Approve a run, and from now on all that ask for exactly the same."""
    from tideline_agent.home import words

    asked = words.question(home, run)
    if not yes:
        if as_json:
            raise ConfigRefused("--json does not ask for confirmation", "Add --yes to approve such runs", path="yes")
        for line in asked.words():
            typer.echo(clean(line))
        confirm(f"Let run {clean(run)}, and all that ask for exactly the same, work at this site?")
    words.approve_always(home, asked)
    output({"run": run, "always": True}, as_json, f"Run {clean(run)}, and all that ask for the same, may work at this site.")


@standing.command("never")
def refuse_always(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="The method's name, such as fedavg.")],
    home: Home,
    as_json: Json = False,
) -> None:
    """Let no run of a method work at this site, whatever was approved before."""
    from tideline_agent.home.words import never

    never(home, method)
    output({"method": method, "never": True}, as_json, f"No run of {method} works at this site from now on.")


@standing.command("end")
def end_standing(
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="Its number, see `tideline site standing list`.")],
    home: Home,
    as_json: Json = False,
) -> None:
    """Take a decision back: such runs are judged as your policy says again."""
    from tideline_agent.home.words import end_decision

    found = end_decision(home, number)
    output({"ended": number}, as_json, f"Ended: {found.answer.value} for {clean(found.method)}.")


def pause_site(home: Home, as_json: Json = False) -> None:
    """Have the agent begin nothing more, also after a restart, until you resume. What is under way is finished."""
    from tideline_agent.home.words import pause

    pause(home, on=True)
    output({"paused": True}, as_json, "Paused: nothing new begins at this site. Go on with `tideline site resume`.")


def resume_site(home: Home, as_json: Json = False) -> None:
    """Go on after a pause."""
    from tideline_agent.home.words import pause

    pause(home, on=False)
    output({"paused": False}, as_json, "The site goes on.")


def open_page(home: Home, as_json: Json = False) -> None:
    """Print a new link to the agent's page, valid once, for ten minutes. The agent has to run with --page."""
    from tideline_agent.page.link import new_link

    link = new_link(home)
    output({"link": link}, as_json, f"Open this on the agent's machine, within ten minutes. It works once:\n\n  {link}")


def add_to(site: typer.Typer) -> None:
    """Have these commands among those of a site's owner."""
    for name, command in (("pause", pause_site), ("resume", resume_site), ("page", open_page)):
        site.command(name)(command)
    site.add_typer(standing, name="standing")
