"""The command that compares methods: a grid of runs, begun again where it was left."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tideline.cli.guard import DONE, ENDED_BADLY, clean, say_json
from tideline.cli.options import REGISTRY, Device, Json, Methods, SitePolicyFile
from tideline.core.errors import ConfigRefused, Refused

if TYPE_CHECKING:
    from tideline.bench.scores import Score

DATA, CACHE = "data", "data.json"


def bench(
    file: Annotated[Path, typer.Argument(metavar="GRID", help="What is compared, YAML or JSON.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the runs and their tables are kept.")],
    jobs: Annotated[int | None, typer.Option(min=1, help="How many runs at once. [default: as many as cores]")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the grid and say what would run.")] = False,
    table: Annotated[bool, typer.Option("--table", help="Run nothing; write the tables of what is done.")] = False,
    keep_states: Annotated[bool, typer.Option("--keep-states", help="Keep each run's final state, too.")] = False,
    policy: SitePolicyFile = None,
    device: Device = "cpu",
    methods: Methods = REGISTRY,
    as_json: Json = False,
) -> None:
    """Compare methods over left-out domains, domains per client and seeds: every run of a grid, and tables of the results.

    What is done is not run again; the same command goes on where it was left.
    """
    if dry_run and table:
        raise ConfigRefused("--dry-run and --table ask for two things", "Give one of the two", path="table")
    from tideline.bench.grid import cells, read_grid
    from tideline.experiments.files import read_file

    text = read_file(file)
    grid = read_grid(text)  # before torch is loaded: a typing error is told at once

    from tideline.bench.cells import How, home_of, run_cells
    from tideline.bench.checks import check_grid, folder_of
    from tideline.bench.data_digest import digest_of
    from tideline.bench.scores import read_cell
    from tideline.core.registry import load_methods
    from tideline_agent.settings import read_policy
    from tideline_agent.trainer import present

    folder = folder_of(text, grid)
    read_policy(policy)
    present(device)
    sizes = check_grid(text, grid, folder, load_methods(methods))
    if not dry_run:
        make(out, folder)
    digest = digest_of(folder, out / CACHE, keep=not dry_run)
    all_cells = list(cells(grid, sizes, f"../../{DATA}/{digest[:12]}"))
    if dry_run or table:
        scores = [read_cell(home_of(out, cell), cell) for cell in all_cells]
    else:
        link(folder, out / DATA / digest[:12])
        passed = (("--policy", str(policy.resolve())) if policy else ()) + ("--device", device, "--methods", methods)
        how = How(out.resolve(), jobs or cores(), passed, keep_states, lambda: digest_of(folder, out / CACHE) == digest)
        scores = run_cells(all_cells, how, say)
    if dry_run:
        foretell(scores, as_json)
    else:
        raise typer.Exit(finish(scores, out, digest, as_json))


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def make(out: Path, data: Path) -> None:
    """The folder for results. Raises ConfigRefused, also inside the data, where pictures would be taken for a domain."""
    if out.resolve().is_relative_to(data):
        raise ConfigRefused(f"--out {out} lies in the data folder {data}", "Choose a folder elsewhere", path="out")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise ConfigRefused(f"--out {out} cannot be made: {cause.strerror}", "Choose another folder", path="out") from None


def link(folder: Path, place: Path) -> None:
    """A link to the data under their digest, so that an experiment says which data it means, and not where they lie."""
    place.parent.mkdir(parents=True, exist_ok=True)
    made = place.with_name(f".{place.name}")
    made.unlink(missing_ok=True)
    made.symlink_to(folder, target_is_directory=True)
    made.replace(place)


def say(line: str) -> None:
    """A line of progress."""
    typer.echo(clean(line), err=True)


def foretell(scores: Sequence[Score], as_json: bool) -> None:
    """What would run."""
    from tideline.bench.scores import Status

    told = [{"cell": s.cell.key, "words": s.cell.words(), "status": s.status.value} for s in scores]
    left = [s for s in scores if s.status is not Status.DONE]
    if as_json:
        say_json({"cells": told, "to_run": len(left)})
        return
    for score in left:
        typer.echo(clean(f"{score.cell.words()}{' (failed before)' * (score.status is Status.FAILED)}"))
    typer.echo(f"{len(scores)} cells, {len(scores) - len(left)} done, {len(left)} to run")


def finish(scores: Sequence[Score], out: Path, data: str, as_json: bool) -> int:
    """Write the tables and pictures, and tell them; the exit code: 1 where a cell has failed."""
    from tideline.bench.figures import write_figures
    from tideline.bench.scores import Status
    from tideline.bench.tables import as_plain, write_tables

    try:
        files = [*write_tables(scores, out, data), *write_figures(scores, out)]
    except OSError as cause:
        raise Refused(f"Cannot write to {out}: {cause.strerror}", "Make room, or let this user write there") from None
    failed = [score for score in scores if score.status is Status.FAILED]
    if as_json:
        say_json({**as_plain(scores, data), "files": [str(path) for path in files]})
    else:
        tell(scores, failed)
        typer.echo(f"\n{clean(str(out))}: {', '.join(path.relative_to(out).as_posix() for path in files)}")
    return ENDED_BADLY if failed else DONE


def tell(scores: Sequence[Score], failed: Sequence[Score]) -> None:
    """The tables for people."""
    from tideline.bench.scores import rows
    from tideline.bench.tables import overall, single
    from tideline.cli.tables import show, table

    made = rows(scores)
    parts: list[tuple[str, Any]] = [("Percent, mean over left-out domains, then over seeds ± standard deviation", overall(made))]
    parts += [(f"Each left-out domain, d = {d}", single(made, d)) for d in dict.fromkeys(row.domains for row in made)]
    for heading, (header, lines) in parts:
        show(table(heading, header, lines, right=range(1, len(header))))
        typer.echo()
    for score in failed:
        typer.echo(clean(f"Failed: {score.cell.words()}: {score.cause}"))
