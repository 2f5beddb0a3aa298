"""The command that compares methods: a grid of runs, continued where it was interrupted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tideline.cli.guard import DONE, ENDED_BADLY, print_json
from tideline.cli.options import AUTO, REGISTRY, Address, Device, Gpus, Json, Methods, Networks, SitePolicyFile, device_of
from tideline.client.output import clean, make_folder, warn
from tideline.core.errors import ConfigRefused, Refused

if TYPE_CHECKING:
    from tideline.bench.scores import Score

DATA, CACHE = "data", "data.json"
PROCESSES = "processes"
WITH_DEVIATIONS = "Percent, mean over left-out domains, then over seeds ± standard deviation"
WITH_INTERVALS = "Percent on each target's held-out rows, mean over seeds with 95 % intervals"


def bench(
    file: Annotated[Path, typer.Argument(metavar="GRID", help="What to compare, YAML or JSON.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the runs and their tables.")],
    jobs: Annotated[
        int | None, typer.Option(min=1, help="How many runs at once. [default: a core each, on Ray all it has]")
    ] = None,
    pool: Annotated[str, typer.Option(help="Where runs compute: processes (of this machine) or ray.")] = "processes",
    address: Address = None,
    gpus: Gpus = 0.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the grid and show what would run.")] = False,
    table: Annotated[bool, typer.Option("--table", help="Run nothing; write the tables of the runs that are done.")] = False,
    keep_states: Annotated[bool, typer.Option("--keep-states", help="Store each run's final state, too.")] = False,
    policy: SitePolicyFile = None,
    device: Device = AUTO,
    methods: Methods = REGISTRY,
    networks: Networks = None,
    as_json: Json = False,
) -> None:
    """Compare methods over left-out domains or targets and seeds: every run of a grid, and tables of the results.

    Runs that are done are not repeated: give the same command again to continue after an interruption.
    """
    if dry_run and table:
        raise ConfigRefused("--dry-run and --table exclude each other", "Give one of the two", path="table")
    from tideline.bench.grid import cells, read_grid
    from tideline.written.files import read_file

    text = read_file(file)
    grid = read_grid(text)  # before torch is loaded: you see a typing error at once

    from tideline.bench.cells import Children, How, home_of, run_cells
    from tideline.bench.checks import check_grid, digest_of
    from tideline.bench.scores import read_cell
    from tideline.core.algorithm import load_methods
    from tideline.engine.process.ray_tasks import RAY, Cluster
    from tideline.nets import registry
    from tideline_agent.policy_file import read_policy

    with text.located():
        folder = text.folder(grid.folder, "folder").resolve()
    allowed = read_policy(policy).allowed
    device = device_of(device, pool == RAY, gpus)
    check_pool(pool, address, gpus, device)
    registry.use(networks or ())
    sizes = check_grid(text, grid, folder, load_methods(methods))
    if not dry_run:
        if out.resolve().is_relative_to(folder):  # where pictures would look like a domain
            raise ConfigRefused(f"--out {out} is in the data folder {folder}", "Choose a folder elsewhere", path="out")
        make_folder(out)
    digest = digest_of(folder, out / CACHE, write_cache=not dry_run)
    named = f"../../{DATA}/{digest[:12]}"
    all_cells = list(cells(grid, sizes, named))
    if dry_run or table:
        scores = [read_cell(home_of(out, cell), cell) for cell in all_cells]
    else:
        link(folder, out / DATA / digest[:12])
        how = partial(How, out=out.resolve(), keep_states=keep_states, same_data=lambda: digest_of(folder, out / CACHE) == digest)
        if pool == RAY:
            from tideline.bench.ray_cells import Common, opened

            common = Common(
                data=folder,
                digest=digest,
                name=named,
                methods=methods,
                policy=allowed,
                device=device,
                keep_states=keep_states,
                networks=registry.places(),
            )
            with opened(Cluster(address, jobs or cores(), gpus), common) as workplace:
                scores = run_cells(all_cells, how(jobs=jobs or workplace.tasks.slots, workplace=workplace), warn)
        else:
            passed = (("--policy", str(policy.resolve())) if policy else ()) + ("--device", device, "--methods", methods)
            passed += tuple(word for place in registry.places() for word in ("--networks", place))
            scores = run_cells(all_cells, how(jobs=jobs or cores(), workplace=Children(passed)), warn)
    if dry_run:
        show_plan(scores, as_json)
    else:
        raise typer.Exit(finish(scores, out, digest, as_json))


def check_pool(pool: str, address: str | None, gpus: float, device: str) -> None:
    """Raises ConfigRefused for a pool that there is not, and options that mean nothing to it; DeviceMissing."""
    from tideline.engine.process.ray_tasks import RAY, check_options
    from tideline.nets.computing.devices import present

    if pool not in (PROCESSES, RAY):
        raise ConfigRefused(f"pool is {pool!r}", f"Use one of: {PROCESSES}, {RAY}", path="pool")
    check_options(pool, address, gpus, device)
    if pool == PROCESSES:
        present(device)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def link(folder: Path, place: Path) -> None:
    """Link to the data under their digest, so that an experiment says which data it means, and not where they are."""
    place.parent.mkdir(parents=True, exist_ok=True)
    made = place.with_name(f".{place.name}")
    made.unlink(missing_ok=True)
    made.symlink_to(folder, target_is_directory=True)
    made.replace(place)


def show_plan(scores: Sequence[Score], as_json: bool) -> None:
    from tideline.bench.scores import Status

    left = [s for s in scores if s.status is not Status.DONE]
    if as_json:
        plan = [{"cell": s.cell.key, "words": s.cell.words(), "status": s.status.value} for s in scores]
        print_json({"cells": plan, "to_run": len(left)})
        return
    for score in left:
        typer.echo(clean(f"{score.cell.words()}{' (failed before)' * (score.status is Status.FAILED)}"))
    typer.echo(f"{len(scores)} cells, {len(scores) - len(left)} done, {len(left)} to run")


def finish(scores: Sequence[Score], out: Path, data: str, as_json: bool) -> int:
    """Write and print the tables and figures; the exit code: 1 if a cell has failed."""
    from tideline.bench.figures import write_figures
    from tideline.bench.scores import Status
    from tideline.bench.tables import as_plain, write_tables

    try:
        files = [*write_tables(scores, out, data), *write_figures(scores, out)]
    except OSError as cause:
        raise Refused(f"Cannot write to {out}: {cause.strerror}", "Make room, or let this user write there") from None
    failed = [score for score in scores if score.status is Status.FAILED]
    if as_json:
        print_json({**as_plain(scores, data), "files": [str(path) for path in files]})
    else:
        show_scores(scores, failed)
        typer.echo(f"\n{clean(str(out))}: {', '.join(path.relative_to(out).as_posix() for path in files)}")
    return ENDED_BADLY if failed else DONE


def show_scores(scores: Sequence[Score], failed: Sequence[Score]) -> None:
    from tideline.bench.tables import adapts, tables
    from tideline.cli.tables import show, table

    first = WITH_INTERVALS if adapts(scores) else WITH_DEVIATIONS
    for i, (heading, (header, lines)) in enumerate(tables(scores)):
        show(table(heading if i else first, header, lines, right=range(1, len(header))))
        typer.echo()
    for score in failed:
        typer.echo(clean(f"Failed: {score.cell.words()}: {score.cause}"))
