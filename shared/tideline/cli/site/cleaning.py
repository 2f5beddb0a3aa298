"""Commands by which a site's owner cleans an agent's home by the policy, and says what stays. They send nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tideline.cli.guard import output
from tideline.cli.options import REGISTRY, Json, Methods
from tideline.cli.site.approval import PolicyFile, confirm, judge_of
from tideline.cli.site.site import Home, check_home
from tideline.client.output import clean, counted, day, size
from tideline.core.errors import ConfigRefused
from tideline.core.run import RunId

if TYPE_CHECKING:
    from tideline_agent.home.retention.cleaning import Due

Run = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, see `tideline site list`.")]


def clean_home(
    home: Home,
    file: PolicyFile = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="Show what would go, and delete nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    alone: Annotated[
        bool, typer.Option("--by-itself", help="Delete what the policy lets go without asking, and nothing else.")
    ] = False,
    methods: Methods = REGISTRY,
    as_json: Json = False,
) -> None:
    """Delete runs by the policy's table [retention]: old ones, and such that were deleted at the coordinator."""
    from tideline_agent.home.retention.cleaning import delete, due_in

    check_home(home)
    found = due_in(home, judge_of(home, file).policy, methods)
    if alone:
        found = [each for each in found if not each.asked]
    if dry or not found:
        show_due(found, as_json)
        return
    if not (yes or alone):
        if as_json:
            raise ConfigRefused("--json does not ask for confirmation", "Add --yes to delete them", path="yes")
        show_due(found, as_json)
        confirm("Delete them, with their models and pictures? You cannot undo this")
    gone, freed = delete(home, found)
    busy = f"; {counted(len(found) - len(gone), 'run')} in use stayed" if len(gone) < len(found) else ""
    output(
        {"forgotten": [each.run.run for each in gone], "bytes": freed, "in_use": len(found) - len(gone)},
        as_json,
        f"Forgot {counted(len(gone), 'run')}, {size(freed)}{busy}.",
    )


def show_due(found: list[Due], as_json: bool) -> None:
    rows = [
        {"run": each.run.run, "why": each.why, "model": each.run.model, "last": each.run.last, "bytes": each.run.bytes}
        for each in found
    ]
    if as_json:
        output({"due": rows}, as_json, "")
    elif not rows:
        typer.echo("Nothing is due.")
    else:
        from tideline.cli.tables import show, table

        cells = [
            [clean(each.run.run), each.why, "yes" if each.run.model else "no", day(each.run.last), size(each.run.bytes)]
            for each in found
        ]
        show(table("", ["run", "why", "own model", "last written", "size"], cells, right=(4,)))


def spare_run(
    run: Run,
    home: Home,
    undo: Annotated[bool, typer.Option("--undo", help="Let rules delete it again.")] = False,
    as_json: Json = False,
) -> None:
    """Let no rule delete a run's files here, whatever the policy or the coordinator says."""
    from tideline_agent.home.runs import spare

    check_home(home)
    spare(home, RunId(run), undo)
    text = f"Rules may delete run {clean(run)} again." if undo else f"No rule deletes run {clean(run)} here."
    output({"run": run, "spared": not undo}, as_json, text)


def add_to(site: typer.Typer) -> None:
    """Have these commands among those of a site's owner."""
    for name, command in (("clean", clean_home), ("spare", spare_run)):
        site.command(name)(command)
