"""The commands about runs of a coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tideline.cli.guard import clean, code_of_run, say_json, say_line
from tideline.cli.options import Door, ExperimentFile, Json, RunId, Settings, at_door

app = typer.Typer(help="Start runs, look at them, and fetch what they made.", no_args_is_help=True, rich_markup_mode=None)
WITH_HISTORY = "?history=true"


@app.command("start")
@at_door
def start(
    door: Door,
    file: ExperimentFile,
    watch: Annotated[bool, typer.Option("--watch", help="Watch it until it ends.")] = False,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Start an experiment. What is wrong in the file is told with its line."""
    from tideline.client.http import Client
    from tideline.experiments.files import read_file

    experiment = read_file(file).changed(settings or ())
    with Client.of(door) as there:
        with experiment.located():
            started = there.post("/runs", brought(experiment, there).value)
        for note in started["notes"]:
            typer.echo(f"Note: {clean(note)}", err=True)
        if watch:
            typer.echo(f"Run {started['run']}", err=True)
            finish(there, started["run"], as_json)
    if as_json:
        say_json(started)
    else:
        beside = f" and, to compare with, {started['reference']}" if started["reference"] else ""
        typer.echo(f"Started {started['run']}{beside}. Follow it: tideline run watch {started['run']}")


def brought(experiment: Any, there: Any) -> Any:
    """The experiment once its file of weights, if it names one, is at the coordinator."""
    if experiment.weights_file is None:
        return experiment
    from tideline.client.initial_weights import uploaded

    return uploaded(experiment, there)


@app.command("list")
@at_door
def list_runs(door: Door, as_json: Json = False) -> None:
    """List the runs, oldest first."""
    from tideline.client.http import Client

    with Client.of(door) as there:
        rows = there.get("/runs")
    if as_json:
        say_json(rows)
        return
    from tideline.cli.tables import runs_table, show

    show(runs_table(rows))


@app.command("show")
@at_door
def show_run(
    door: Door,
    run: RunId,
    history: Annotated[bool, typer.Option("--history", help="With --json: every metric that was ever told.")] = False,
    as_json: Json = False,
) -> None:
    """Show a run: what it is waiting for, or its result."""
    from tideline.client.http import Client

    with Client.of(door) as there:
        tell_result(there.get(f"/runs/{quoted(run)}{WITH_HISTORY if history else ''}"), as_json)


@app.command("watch")
@at_door
def watch_run(door: Door, run: RunId, as_json: Json = False) -> None:
    """Watch a run until it ends or stalls, then show its result. Interrupting the watch leaves the run alone."""
    from tideline.client.http import Client

    with Client.of(door) as there:
        finish(there, quoted(run), as_json)


def finish(there: Any, run: str, as_json: bool) -> None:
    """Watch a run to its end and leave with its code."""
    from tideline.client.following import follow
    from tideline.client.progress import Watcher

    with Watcher() as watcher:
        result = follow(there, run, watcher)
    tell_result(result, as_json)
    raise typer.Exit(code_of_run(result))


@app.command("logs")
@at_door
def run_logs(
    door: Door,
    run: RunId,
    client: Annotated[str | None, typer.Option(help="Only what this client did.")] = None,
    level: Annotated[str, typer.Option(help="The least that is shown: info, warning, error.")] = "info",
    follow: Annotated[bool, typer.Option("--follow", help="Go on until the run ends.")] = False,
    as_json: Json = False,
) -> None:
    """Show what happened in a run, here and at its sites, oldest first."""
    from tideline.client.events import Chosen
    from tideline.client.following import happened
    from tideline.client.http import Client

    chosen = Chosen.read(client, level)
    with Client.of(door) as there:
        for event in happened(there, quoted(run), follow):
            told = chosen.told(event)
            if told is not None:
                say_line(event) if as_json else typer.echo(clean(told.line))


@app.command("cancel")
@at_door
def cancel(door: Door, run: RunId, as_json: Json = False) -> None:
    """End a run. Its agents give up their steps within seconds."""
    ask(door, run, "cancel", as_json)


@app.command("resume")
@at_door
def resume(door: Door, run: RunId, as_json: Json = False) -> None:
    """Ask those sites again that did not answer a stalled run; what was answered stays."""
    ask(door, run, "resume", as_json)


def ask(door: Door, run: str, what: str, as_json: bool) -> None:
    """Ask for a run's status to change, and say what it is now."""
    from tideline.client.http import Client

    with Client.of(door) as there:
        row = there.post(f"/runs/{quoted(run)}/{what}")
    if as_json:
        say_json(row)
    else:
        typer.echo(f"Run {row['id']} is {row['status']}")


@app.command("export")
@at_door
def export(
    door: Door,
    run: RunId,
    out: Annotated[Path, typer.Option(metavar="FILE.safetensors", help="The file to write.")],
    as_json: Json = False,
) -> None:
    """Write a completed run's final state as one safetensors file."""
    from tideline.cli.coordinator.export import export_remote
    from tideline.client.http import Client

    with Client.of(door) as there:
        made = export_remote(there, quoted(run), out)
    if as_json:
        say_json(made)
    else:
        typer.echo(f"Wrote {made['tensors']} tensors, {made['bytes']} bytes, to {made['file']}")


@app.command("report")
@at_door
def report(
    door: Door,
    run: RunId,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The folder to write into. [default: report-ID]")] = None,
    as_json: Json = False,
) -> None:
    """Write what a run has come to: its result, a page to read, and the page's figures with their numbers."""
    from tideline.client.http import Client
    from tideline.report.page import write_all

    with Client.of(door) as there:
        result = there.get(f"/runs/{quoted(run)}{WITH_HISTORY}")
    made = write_all(result, out or Path(f"report-{run}"))
    if as_json:
        say_json(made)
        return
    typer.echo(f"result   {made['result']}\nreport   {made['report']}")
    for each in made["figures"]:
        typer.echo(f"figure   {each}")


def tell_result(result: Mapping[str, Any], as_json: bool) -> None:
    """A result, for people or programs."""
    if as_json:
        say_json(result)
        return
    from tideline.cli.guard import clean
    from tideline.cli.tables import groups_table, marks_table, result_table, show
    from tideline.client.progress import silences
    from tideline.engine.peers.relay import notes

    for each in filter(None, (result_table(result), marks_table(result), groups_table(result))):
        show(each)
    told = (*result.get("notes", ()), *notes(result), result["waits_for"], *silences(result), result["cause"])
    for note in dict.fromkeys(told):
        if note:
            typer.echo(clean(note))


def quoted(run: str) -> str:
    """A run's id as it stands in an address."""
    from urllib.parse import quote

    return quote(run, safe="")
