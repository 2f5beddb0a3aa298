"""Commands by which a site's owner sees what private runs have cost the site's rows, and says what the ledger cannot know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from tideline.cli.guard import output, print_json
from tideline.cli.options import Json
from tideline.cli.site.approval import Run, confirm
from tideline.cli.site.site import Home, show_rows
from tideline.cli.site.standing import Yes
from tideline.client.output import clean, counted
from tideline.core.errors import ConfigRefused
from tideline.core.settings import plain
from tideline.engine.site.rules import PrivacyRules

if TYPE_CHECKING:
    from tideline.engine.epsilon.budget import Standing
    from tideline_agent.home.budget.shown import Shown

NONE = "No budget is set, and nothing was charged. Your policy's section [privacy] sets one."


def show_budget(home: Home, as_json: Json = False) -> None:
    """Show what private runs have spent of your rows' epsilon, what is reserved, and what is left."""
    from tideline_agent.home.budget.shown import shown
    from tideline_agent.home.words import check_home

    check_home(home)
    found = shown(home)
    if as_json:
        print_json(plain(found))
        return
    show_rows([row(each) for each in found.budgets], NONE)
    runs = [run_row(each) for each in found.budgets]
    if mine := [one for each in runs for one in each]:
        show_rows(mine, "")
    for line in warnings(found):
        typer.echo(clean(line))


def row(each: Standing) -> dict[str, str]:
    limit = "none" if each.epsilon is None else f"{each.epsilon:g}"
    left = "unknown" if each.lost else "" if each.left is None else down(each.left)
    return {
        "population": each.population,
        "of each": each.unit,
        "spent": up(each.spent),
        "reserved": up(each.reserved),
        "left": left,
        "of": limit,
        "delta": f"{each.delta:g}",
    }


def run_row(each: Standing) -> list[dict[str, str]]:
    own = (one for one in each.runs if one.spent or one.reserved)
    return [
        {"population": each.population, "run": one.run, "spent alone": up(one.spent), "reserved alone": up(one.reserved)}
        for one in own
    ]


def up(epsilon: float | None) -> str:
    return "unbounded" if epsilon is None else f"{epsilon + 0.0005:.3f}" if epsilon else "0"


def down(epsilon: float) -> str:
    return f"{max(epsilon - 0.0005, 0.0):.3f}"


def warnings(found: Shown) -> Iterator[str]:
    """What an owner should know beside the numbers."""
    yield f"Limits are those of {found.words}."
    stated = [f"{each.stated:g} of {each.population}" for each in found.budgets if each.stated]
    if stated:
        yield f"Of what is spent, you stated {', '.join(stated)}."
    if found.uncharged:
        yield f"Charged to no budget: {counted(found.uncharged, 'run')}, which were not private, or worked before there was one."
    if found.behind:
        yield "The ledger lacks entries that the coordinator was told of: no private run works here. Restore the newest home."
    if any(each.lost for each in found.budgets):
        yield "Entries of the ledger are gone: no private run works here until you say what was spent (tideline site spent)."


def state_spent(
    epsilon: Annotated[float, typer.Argument(metavar="EPSILON", help="The epsilon; 0 if nothing was spent.")],
    delta: Annotated[float, typer.Argument(metavar="DELTA", help="The delta that it holds at; 0 if nothing was spent.")],
    home: Home,
    population: Annotated[
        str, typer.Option("--population", metavar="NAME", help="Whose, as the policy names them.")
    ] = PrivacyRules().population,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Say what private runs have spent that this ledger does not tell of. It stands in the place of what you said before."""
    from tideline_agent.home.budget.shown import state
    from tideline_agent.home.words import check_home

    check_home(home)
    if not yes:
        if as_json:
            raise ConfigRefused("--json does not ask for confirmation", "Add --yes to state it", path="yes")
        confirm(f"State that {clean(population)} spent epsilon {epsilon:g} beside what the ledger tells? Less is left by that")
    state(home, epsilon, delta, population)
    text = f"Stated: {clean(population)} spent epsilon {epsilon:g} at delta {delta:g} beside what the ledger tells."
    output({"population": population, "epsilon": epsilon, "delta": delta}, as_json, text)


def release_run(run: Run, home: Home, as_json: Json = False) -> None:
    """Free what a run reserved and was not charged. Agents do so by themselves when they hear that a run is over."""
    from tideline_agent.home.budget.shown import release
    from tideline_agent.home.words import check_home

    check_home(home)
    release(home, run)
    output({"run": run, "released": True}, as_json, f"Run {clean(run)} reserves nothing any more.")


def add_to(site: typer.Typer) -> None:
    """Have these commands among those of a site's owner."""
    for name, command in (("budget", show_budget), ("spent", state_spent), ("release", release_run)):
        site.command(name)(command)
