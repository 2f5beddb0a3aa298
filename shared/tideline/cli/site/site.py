"""Commands of a site's owner about an agent's home on this machine: its runs, what it learnt, its peers. They send nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tideline.cli.guard import output, print_json
from tideline.cli.options import REGISTRY, Json, Methods, ModelFormat, Networks, Which, use_networks
from tideline.client.output import check_out, clean, counted, day, size
from tideline.core.errors import ConfigRefused, NotFound, Refused
from tideline.core.run import RunId
from tideline.core.settings import Plain, nearest, plain

if TYPE_CHECKING:
    from torch import Tensor

    from tideline_agent.home.runs import StoredRun

app = typer.Typer(
    help="Look into an agent's home beside your data, and export what it learnt. Nothing is sent.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Home = Annotated[Path, typer.Option("--home", metavar="DIR", help="The agent's home, as given to `tideline agent --home`.")]
Run = Annotated[str, typer.Option("--run", metavar="ID", help="The run's id, see `tideline site list`.")]
MODEL, PICTURE = "model", "picture"
GO_ON = "Without its memory, a run that continues may stall with MemoryLost; say --unfinished if it is over"


@app.callback()
def begin() -> None:
    from tideline.engine.process.private import for_the_owner_alone

    for_the_owner_alone()


@app.command("list")
def list_kept(
    home: Home,
    run: Annotated[str | None, typer.Option("--run", metavar="ID", help="List what you can export of this run.")] = None,
    methods: Methods = REGISTRY,
    networks: Networks = None,
    as_json: Json = False,
) -> None:
    """List the runs in the home; with --run, what you can export of one."""
    from tideline_agent.home.runs import SELDOM, keepsakes, remembered

    use_networks(networks)
    check_home(home)
    rows = remembered(home) if run is None else described(keepsakes(home, RunId(run), methods))
    none = f"There is nothing to export of run {run} at this site yet: {SELDOM}."
    if as_json:
        print_json(rows)
    else:
        show_rows(rows, "There is no run in this home yet." if run is None else none)


@app.command("export")
def export_kept(
    home: Home,
    run: Run,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to export, see `tideline site list --run ID`.")],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="A .npz file to write; of `model` also .safetensors, .pt or .onnx.")
    ],
    kind: ModelFormat = None,
    which: Which = "final",
    methods: Methods = REGISTRY,
    networks: Networks = None,
    as_json: Json = False,
) -> None:
    """Write something that the site has learnt to a file."""
    use_networks(networks)
    if name == MODEL and (kind is not None or out.suffix != ".npz"):
        export_own(home, run, out, kind, methods, as_json, which)
        return
    if which != "final":
        what = f"--which {which} is of the site's model as a model's file"
        raise ConfigRefused(what, "Name `model`, and a file that ends in .safetensors, .pt or .onnx", path="which")
    import numpy as np

    arrays = taken(home, run, name, methods)
    check_out(out, ".npz")
    np.savez_compressed(out, allow_pickle=False, **{key: value.numpy() for key, value in arrays.items()})
    show_written(out, arrays, as_json)


def export_own(home: Path, run: str, out: Path, kind: str | None, methods: str, as_json: bool, which: str) -> None:
    """Write the site's own model as a model's file."""
    from tideline.cli.models import show_model
    from tideline.learning.exporting import check_which, export_model, format_of
    from tideline_agent.home.models import hint_of, own_model

    check_home(home)
    chosen = format_of(out, kind)
    model = own_model(home, RunId(run), methods, check_which(which))
    export_model(model, out, chosen)
    show_model(model, out, as_json, hint_of(home, RunId(run), which))


@app.command("picture")
def picture(
    home: Home,
    run: Run,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="A .png file to write, with the numbers in a .csv beside it.")
    ],
    methods: Methods = REGISTRY,
    as_json: Json = False,
) -> None:
    """Draw the site's own points, and the points that represent them, in two dimensions."""
    from tideline.report.scatter import draw_clouds, write_points

    arrays = taken(home, run, PICTURE, methods)
    check_out(out, ".png")
    draw_clouds(arrays, out, f"Run {run}, seen at this site")
    write_points(arrays, out.with_suffix(".csv"))
    show_written(out, arrays, as_json)


@app.command("drift")
def compare_rows(
    home: Home,
    run: Run,
    data: Annotated[str, typer.Option("--data", metavar="DIR", help="The rows of now: a folder, or python:MODULE:NAME.")],
    networks: Networks = None,
    as_json: Json = False,
) -> None:
    """Compare new rows with those that a rehearsal adapted to: does its verdict still hold?"""
    from tideline_agent.home.drift import drift_of, said_of
    from tideline_agent.trainer import opener_of

    use_networks(networks)
    check_home(home)
    found = drift_of(home, RunId(run), opener_of(data))
    output(plain(found), as_json, "\n".join(said_of(found)))


@app.command("peers")
def list_peers(home: Home, as_json: Json = False) -> None:
    """List the sites that this one has met, with the fingerprints of their keys, whether you said that you trust them, and former
    keys that it still accepts.
    """
    from tideline_agent.home.pins import listed

    check_home(home)
    rows = listed(home, time.time())
    if as_json:
        print_json(rows)
    else:
        none = "This site has met no peer yet. It meets them in runs whose sites encrypt values for each other."
        words = {True: "yes", False: "no"}
        show_rows([row | {"trusted": words[row["trusted"]], "former": former_words(row["former"])} for row in rows], none)


def show_rows(rows: Sequence[Mapping[str, Plain]], none: str) -> None:
    from tideline.cli.tables import show, table

    if rows:
        show(table("", rows[0], [map(str, row.values()) for row in rows]))
    else:
        typer.echo(none)


def former_words(former: Iterable[Mapping[str, str | None]]) -> str:
    from tideline.engine.peers.peer_keys import FORMER_SECONDS

    unknown = f"{FORMER_SECONDS / 86400:.0f} days after the agent meets it next"
    return "; ".join(f"{each['fingerprint']} until {each['until'] or unknown}" for each in former)


@app.command("trust")
def trust_peer(
    home: Home,
    peer: Annotated[str, typer.Argument(metavar="PEER", help="The other site's name, see `tideline site peers`.")],
    fingerprint: Annotated[
        str, typer.Argument(metavar="FINGERPRINT", help="Fingerprint of its keys. Ask its owner for it, not the coordinator.")
    ],
    as_json: Json = False,
) -> None:
    """Accept only these keys for another site from now on. First ask its owner for their fingerprint."""
    from tideline_agent.home.pins import spelt, trust

    check_home(home)
    before = trust(home, peer, fingerprint)
    shown = spelt(fingerprint)
    text = f"{peer} now has the fingerprint {shown}; it was {before.fingerprint}"
    output({"peer": peer, "fingerprint": shown, "before": before.fingerprint}, as_json, text)


@app.command("forget")
def forget_runs(
    home: Home,
    runs: Annotated[list[str] | None, typer.Argument(metavar="[RUN]...", help="The runs' ids, see `tideline site list`.")] = None,
    older: Annotated[
        str | None, typer.Option(metavar="AGE", help="Instead of ids: runs not written to for so long, such as 30d.")
    ] = None,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Also forget runs that may continue, as far as the home knows.")
    ] = False,
    rows: Annotated[
        bool, typer.Option("--rows", help="Instead of runs: the caches of decoded rows. They are made again when needed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    methods: Methods = REGISTRY,
    as_json: Json = False,
) -> None:
    """Forget runs, with their models, pictures and kept features at this site, to free disk space."""
    from tideline_agent.home.runs import stored_runs

    check_home(home)
    if rows:
        if runs or older is not None:
            raise ConfigRefused("You named runs and gave --rows", "Give one of the two", path="rows")
        forget_caches(home, as_json)
        return
    chosen = choose(stored_runs(home, methods).values(), runs or (), older, unfinished)
    if chosen and not yes:
        confirm(chosen, as_json)
    forget_all(home, chosen, as_json)


def forget_caches(home: Path, as_json: bool) -> None:
    """Delete the caches of decoded rows and print how much that freed. No confirmation: nothing is lost but time."""
    from tideline_agent.home.rows import forget_rows, taken_by_rows

    gone, freed = forget_rows(home)
    left, _ = taken_by_rows(home)
    used = f"; {counted(left, 'cache')} in use stayed" if left else ""
    output({"caches": gone, "bytes": freed, "in_use": left}, as_json, f"Forgot {counted(gone, 'cache')}, {size(freed)}{used}.")


def taken(home: Path, run: str, name: str, methods: str) -> Mapping[str, Tensor]:
    """What a name of `tideline site list --run` stands for: tensors by name. Raises NotFound."""
    from tideline_agent.home.runs import keepsakes, one_of

    check_home(home)
    return one_of(keepsakes(home, RunId(run), methods), name, RunId(run))


def check_home(home: Path) -> None:
    from tideline_agent.home.marks import check

    check(home)
    if not (home / "runs").is_dir():
        raise ConfigRefused(f"{home} is not an agent's home, or its agent has not worked yet", "Correct --home", path="home")


def described(found: Mapping[str, Mapping[str, Tensor]]) -> list[dict[str, Plain]]:
    return [
        {"name": name, "arrays": ", ".join(f"{key} {'x'.join(map(str, value.shape))}" for key, value in arrays.items())}
        for name, arrays in sorted(found.items())
    ]


def show_written(out: Path, arrays: Mapping[str, Tensor], as_json: bool) -> None:
    shapes = {key: list(value.shape) for key, value in arrays.items()}
    text = f"Wrote {out}: " + ", ".join(f"{key} {shape}" for key, shape in shapes.items())
    output({"file": str(out), "arrays": shapes}, as_json, text)


def choose(known: Iterable[StoredRun], runs: Sequence[str], older: str | None, unfinished: bool) -> list[StoredRun]:
    """The runs to forget. Raises ConfigRefused, NotFound, and Refused for named ones that may continue."""
    from tideline.cli.serving import read_seconds

    if bool(runs) is (older is not None):
        raise ConfigRefused("You named no runs" if not runs else "You named runs and gave --older", "Give one of the two")
    if older is None:
        return named({str(each.run): each for each in known}, runs, unfinished)
    before = time.time() - read_seconds(older, "--older")
    return [each for each in known if each.last < before and (each.over or unfinished) and not each.spared]


def named(known: dict[str, StoredRun], runs: Sequence[str], unfinished: bool) -> list[StoredRun]:
    for run in runs:
        if run not in known:
            raise NotFound(f"There is no run {run[:80]} in this home", f"See `tideline site list`{nearest(run, list(known))}")
        if not (known[run].over or unfinished):
            raise Refused(f"Run {run} may continue: as far as the home knows, its last exchange has not come", GO_ON)
    return [known[run] for run in dict.fromkeys(runs)]


def confirm(chosen: Sequence[StoredRun], as_json: bool) -> None:
    """Ask for confirmation. Raises Refused for any answer but yes."""
    from tideline.cli.tables import show, table

    if as_json:
        raise ConfigRefused("--json does not ask for confirmation", "Add --yes to forget the runs", path="yes")
    rows = [[clean(each.run), "over" if each.over else "may go on", day(each.last), size(each.bytes)] for each in chosen]
    show(table("", ["run", "state", "last written", "size"], rows, right=(3,)))
    try:
        wanted = typer.confirm("Forget them, with their models and pictures? You cannot undo this", err=True)
    except typer.Abort:
        wanted = False
    if not wanted:
        raise Refused("Nothing was forgotten: you did not confirm", "Answer y, or add --yes")


def forget_all(home: Path, chosen: Sequence[StoredRun], as_json: bool) -> None:
    """Forget runs and print which. Raises Refused, once the others are gone, if the agent works for one of them."""
    from tideline_agent.home.features import clear_features
    from tideline_agent.home.runs import clear, forget

    gone: list[StoredRun] = []
    busy: list[Refused] = []
    for each in chosen:
        try:
            forget(home, each.run)
            gone.append(each)
        except Refused as error:
            busy.append(error)
    clear(home)
    freed = sum(each.bytes for each in gone) + clear_features(home)
    if busy:
        raise Refused("; ".join(error.what for error in busy), busy[0].todo, forgotten=len(gone), bytes=freed)
    text = f"Forgot {counted(len(gone), 'run')}, {size(freed)}."
    output({"forgotten": [each.run for each in gone], "bytes": freed}, as_json, text)
