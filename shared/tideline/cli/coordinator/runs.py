"""The commands about runs of a coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn
from urllib.parse import quote

import typer

from tideline.cli.guard import code_of_run, group_of, output, print_json, print_line
from tideline.cli.options import (
    REGISTRY,
    Connect,
    ExperimentFile,
    Json,
    Methods,
    ModelFormat,
    Networks,
    Overrides,
    RunId,
    Which,
    remote,
    use_networks,
)
from tideline.client.answers import DeletedRun, RunLine, RunResult
from tideline.client.output import clean, day, warn
from tideline.core.errors import ConfigRefused, Refused
from tideline.core.settings import Plain

if TYPE_CHECKING:
    from tideline.client.http import Client
    from tideline.written.files import ExperimentText

app = group_of("Start runs, watch them, and fetch their results.")
WITH_HISTORY = "?history=true"


@app.command("start")
@remote
def start(
    connect: Connect,
    file: ExperimentFile,
    watch: Annotated[bool, typer.Option("--watch", help="Watch it until it ends.")] = False,
    settings: Overrides = None,
    networks: Networks = None,
    as_json: Json = False,
) -> None:
    """Start an experiment. Mistakes in the file are reported with their line."""
    from tideline.written.files import read_file

    start_text(connect, read_file(file).changed(settings or ()), watch, networks, as_json)


def start_text(connect: Connect, experiment: ExperimentText, watch: bool, networks: list[str] | None, as_json: bool) -> None:
    """Start an experiment that was read, and watch it if that is wanted."""
    with connect() as client:
        with experiment.located():
            if experiment.weights_file is not None:
                from tideline.experiments.initial_weights import upload

                use_networks(networks)
                experiment = upload(experiment, client)
            started = client.post("/runs", experiment.value)
        for note in started["notes"]:
            warn(f"Note: {note}")
        if watch:
            warn(f"Run {started['run']}")
            watch_to_end(client, started["run"], as_json)
    beside = f" and, to compare with, {started['reference']}" if started["reference"] else ""
    output(started, as_json, f"Started {started['run']}{beside}. Follow it: tideline run watch {started['run']}")


@app.command("list")
@remote
def list_runs(
    connect: Connect,
    everything: Annotated[
        bool, typer.Option("--all", help="Also the runs that belong to others: references, rehearsals.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the runs, oldest first."""
    with connect() as client:
        rows: list[RunLine] = client.get("/runs")
    if as_json:
        print_json(rows)
        return
    from tideline.cli.tables import runs_table, show

    shown = [row for row in rows if everything or row["parent"] is None]
    show(runs_table(shown))
    if left := len(rows) - len(shown):
        typer.echo(f"{left} more belong to these, as references or in rehearsals: --all shows them")


@app.command("show")
@remote
def show_run(
    connect: Connect,
    run: RunId,
    history: Annotated[bool, typer.Option("--history", help="With --json: include every metric of every reply.")] = False,
    as_json: Json = False,
) -> None:
    """Show a run: its result, or what it is waiting for."""
    with connect() as client:
        show_result(client.run(f"{quoted(run)}{WITH_HISTORY if history else ''}"), as_json)


@app.command("watch")
@remote
def watch_run(connect: Connect, run: RunId, as_json: Json = False) -> None:
    """Watch a run until it ends or stalls, then show its result. Ctrl-C ends the watch, not the run."""
    with connect() as client:
        watch_to_end(client, quoted(run), as_json)


def watch_to_end(client: Client, run: str, as_json: bool) -> NoReturn:
    """Watch a run to its end, show its result, and exit with its code."""
    from tideline.client.watching import Watcher, follow

    with Watcher() as watcher:
        result = follow(client, run, watcher)
    show_result(result, as_json)
    if result["status"] == "stalled":
        warn(f"It waits for you. When what the cause names is mended: tideline run resume {result['run']}")
    raise typer.Exit(code_of_run(result))


@app.command("logs")
@remote
def run_logs(
    connect: Connect,
    run: RunId,
    client: Annotated[str | None, typer.Option(help="Only events of this client.")] = None,
    level: Annotated[str, typer.Option(help="Lowest level to show: info, warning, error.")] = "info",
    follow: Annotated[bool, typer.Option("--follow", help="Wait for new events until the run ends.")] = False,
    as_json: Json = False,
) -> None:
    """Show what happened in a run, at the coordinator and at its sites, oldest first."""
    from tideline.client.events import happening, levels_from
    from tideline.client.watching import events_of

    levels = levels_from(level)
    with connect() as there:
        for event in events_of(there, quoted(run), follow):
            shown = happening(event)
            if shown.level in levels and client in (None, shown.client):
                print_line(event) if as_json else typer.echo(clean(shown.line))


@app.command("cancel")
@remote
def cancel(connect: Connect, run: RunId, as_json: Json = False) -> None:
    """Cancel a run. Its agents stop their steps within seconds."""
    change(connect, run, "cancel", as_json)


@app.command("resume")
@remote
def resume(
    connect: Connect,
    run: RunId,
    min_replies: Annotated[
        int | None, typer.Option(metavar="N", help="From now on N replies are enough in a round. [default: as before]")
    ] = None,
    as_json: Json = False,
) -> None:
    """Resume a stalled run: ask the sites again that did not reply. Replies that arrived are not lost."""
    change(connect, run, "resume", as_json, None if min_replies is None else {"min_replies": min_replies})


@app.command("delete")
@remote
def delete(
    connect: Connect,
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Ids of runs that are over, as `run list` shows them.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: Json = False,
) -> None:
    """Delete runs that are over, with those that belong to them and with their models. You cannot undo this."""
    with connect() as client:
        if not yes:
            confirm(runs, as_json)
        rows: list[DeletedRun] = [client.delete(f"/runs/{quoted(run)}") for run in dict.fromkeys(runs)]
    who = [f" by {clean(row['rule'] or row['by'])}" if row["rule"] or row["by"] else "" for row in rows]
    lines = [
        f"Run {row['run']} ({clean(row['name'])}) was deleted at {day(row['deleted'])}{by}"
        for row, by in zip(rows, who, strict=True)
    ]
    output({"deleted": rows}, as_json, "\n".join(lines))


def confirm(runs: list[str], as_json: bool) -> None:
    """Ask for confirmation. Raises Refused for any answer but yes."""
    if as_json:
        raise ConfigRefused("--json does not ask for confirmation", "Add --yes to delete the runs", path="yes")
    try:
        wanted = typer.confirm(f"Delete {clean(', '.join(runs))}, with all models and events? You cannot undo this", err=True)
    except typer.Abort:
        wanted = False
    if not wanted:
        raise Refused("Nothing was deleted: you did not confirm", "Answer y, or add --yes")


def change(connect: Connect, run: str, verb: str, as_json: bool, body: Mapping[str, Plain] | None = None) -> None:
    with connect() as client:
        row: RunLine = client.post(f"/runs/{quoted(run)}/{verb}", body)
    output(row, as_json, f"Run {row['id']} is {row['status']}")


@app.command("export")
@remote
def export(
    connect: Connect,
    run: RunId,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file to write: .safetensors, .pt or .onnx.")],
    site: Annotated[str | None, typer.Option(metavar="NAME", help="The model of this site, if each has its own.")] = None,
    kind: ModelFormat = None,
    which: Which = "final",
    state: Annotated[
        bool, typer.Option("--state", help="Write the coordinator's whole final state instead, which may be no model.")
    ] = False,
    methods: Methods = REGISTRY,
    networks: Networks = None,
    as_json: Json = False,
) -> None:
    """Write the model that a completed run ended in, or that of its best round, or say where it is."""
    from tideline.client.export import export_remote

    if state:
        if site or kind not in (None, "safetensors") or which != "final":
            what = "--state goes with neither --site nor --which nor another format"
            raise ConfigRefused(what, "Leave one of them out", path="state")
        with connect() as client:
            exported = export_remote(client, quoted(run), out)
        output(exported, as_json, f"Wrote {exported['tensors']} tensors, {exported['bytes']} bytes, to {exported['file']}")
        return
    from tideline.cli.models import show_model
    from tideline.core.algorithm import load_methods
    from tideline.experiments.results import remote_model
    from tideline.learning.exporting import check_which, export_model, format_of

    chosen = format_of(out, kind)
    use_networks(networks)
    with connect() as client:
        model, hint = remote_model(client, run, site, load_methods(methods), check_which(which))
    export_model(model, out, chosen)
    show_model(model, out, as_json, hint)


@app.command("report")
@remote
def report(
    connect: Connect,
    run: RunId,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The folder to write to. [default: report-ID]")] = None,
    as_json: Json = False,
) -> None:
    """Write a run's result, its report as a web page, and the report's figures with their numbers."""
    from tideline.report.page import write_all

    with connect() as client:
        result = client.run(f"{quoted(run)}{WITH_HISTORY}")
    files = write_all(result, out or Path(f"report-{run}"))
    lines = [f"result   {files['result']}", f"report   {files['report']}", *(f"figure   {each}" for each in files["figures"])]
    output(files, as_json, "\n".join(lines))


def show_result(result: RunResult, as_json: bool) -> None:
    """Print a result, its notes and what it waits for."""
    if as_json:
        print_json(result)
        return
    from tideline.cli.tables import result_tables, show
    from tideline.cli.verdicts import verdict_lines
    from tideline.client.watching import guesses, silences
    from tideline.engine.peers.relay import notes

    for each in result_tables(result):
        show(each)
    lines = (
        *verdict_lines(result),
        *result.get("notes", ()),
        *notes(result),
        *guesses(result),
        result["waits_for"],
        *silences(result),
        result["cause"],
    )
    for line in filter(None, dict.fromkeys(lines)):
        typer.echo(clean(line))


def quoted(run: str) -> str:
    return quote(run, safe="")
