"""What a site's owner does with what an agent has learnt. Everything is read from the agent's home on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tideline.cli.guard import say_json
from tideline.cli.options import REGISTRY, Json, Methods

if TYPE_CHECKING:
    from torch import Tensor

app = typer.Typer(
    help="Look into an agent's home beside your data, and take out what it learnt. Nothing is sent.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Home = Annotated[Path, typer.Option("--home", metavar="DIR", help="The agent's home, as given to `tideline agent --home`.")]
Run = Annotated[str, typer.Option("--run", metavar="ID", help="The run's id, see `tideline site list`.")]
PICTURE = "picture"


@app.command("list")
def list_kept(
    home: Home,
    run: Annotated[str | None, typer.Option("--run", metavar="ID", help="What can be taken out of this run.")] = None,
    methods: Methods = REGISTRY,
    as_json: Json = False,
) -> None:
    """List the runs that the site remembers; with --run, what can be taken out of one."""
    from tideline.core.run import RunId
    from tideline_agent.home.runs import SELDOM, keepsakes, remembered

    checked(home)
    rows: list[dict[str, Any]] = remembered(home) if run is None else described(keepsakes(home, RunId(run), methods))
    if as_json:
        say_json(rows)
    elif rows:
        from tideline.cli.tables import show, table

        show(table("", list(rows[0]), [[str(v) for v in row.values()] for row in rows]))
    else:
        none = f"Of run {run} nothing is kept at this site yet: {SELDOM}."
        typer.echo("This site remembers no run yet." if run is None else none)


@app.command("export")
def export_kept(
    home: Home,
    run: Run,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to take, see `tideline site list --run ID`.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="A .npz file to write.")],
    methods: Methods = REGISTRY,
    as_json: Json = False,
) -> None:
    """Write one thing that the site has learnt into a file beside the data."""
    import numpy as np

    arrays = taken(home, run, name, methods)
    writable(out, ".npz")
    np.savez_compressed(out, allow_pickle=False, **{key: value.numpy() for key, value in arrays.items()})
    told(out, arrays, as_json)


@app.command("picture")
def picture(
    home: Home,
    run: Run,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="A .png file to write; the numbers go into a .csv beside it.")
    ],
    methods: Methods = REGISTRY,
    as_json: Json = False,
) -> None:
    """Draw the site's own points with what stands for them, in two dimensions."""
    from tideline.report.scatter import draw_clouds, write_points

    arrays = taken(home, run, PICTURE, methods)
    writable(out, ".png")
    draw_clouds(arrays, out, f"Run {run}, seen at this site")
    write_points(arrays, out.with_suffix(".csv"))
    told(out, arrays, as_json)


@app.command("peers")
def list_peers(home: Home, as_json: Json = False) -> None:
    """List the other sites that this one has met, by the fingerprints of their keys, and former keys that it believes still."""
    from tideline_agent.home.pins import listed

    checked(home)
    rows = listed(home, time.time())
    if as_json:
        say_json(rows)
    elif rows:
        from tideline.cli.tables import show, table

        show(table("", list(rows[0]), [[*list(row.values())[:-1], former_words(row["former"])] for row in rows]))
    else:
        typer.echo("This site has met no peer yet: it does in runs whose sites seal values for each other.")


def former_words(former: Iterable[Mapping[str, Any]]) -> str:
    """Keys that a peer had before, and until when they are believed, in words."""
    from tideline.engine.peers.peer_keys import FORMER_SECONDS

    unknown = f"{FORMER_SECONDS / 86400:.0f} days after the agent meets it next"
    return "; ".join(f"{each['fingerprint']} until {each['until'] or unknown}" for each in former)


@app.command("trust")
def trust_peer(
    home: Home,
    peer: Annotated[str, typer.Argument(metavar="PEER", help="The other site's name, see `tideline site peers`.")],
    fingerprint: Annotated[
        str, typer.Argument(metavar="FINGERPRINT", help="Of its keys, as its owner tells it: not as the coordinator does.")
    ],
    as_json: Json = False,
) -> None:
    """Know another site by these keys alone from now on, after you have asked its owner for their fingerprint."""
    from tideline_agent.home.pins import spelt, trust

    checked(home)
    before = trust(home, peer, fingerprint)
    if as_json:
        say_json({"peer": peer, "fingerprint": spelt(fingerprint), "before": before.fingerprint})
    else:
        typer.echo(f"{peer} is known by {spelt(fingerprint)} from now on; it was {before.fingerprint}")


@app.command("forget")
def forget_runs(
    home: Home,
    runs: Annotated[list[str] | None, typer.Argument(metavar="[RUN]...", help="Their ids, see `tideline site list`.")] = None,
    older: Annotated[str | None, typer.Option(metavar="AGE", help="Instead: all of which nothing was written for 30d.")] = None,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Also those that may go on, as far as the home knows.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    methods: Methods = REGISTRY,
    as_json: Json = False,
) -> None:
    """Forget runs, with the models and pictures that the site has of them, to free the disk."""
    from tideline.cli.site import forget
    from tideline_agent.home.runs import stored_runs

    checked(home)
    chosen = forget.choose(stored_runs(home, methods).values(), runs or (), older, unfinished)
    if chosen and not yes:
        forget.confirm(chosen, as_json)
    forget.forget_all(home, chosen, as_json)


def taken(home: Path, run: str, name: str, methods: str) -> Mapping[str, Tensor]:
    """A keepsake. Raises NotFound."""
    from tideline.core.run import RunId
    from tideline_agent.home.runs import keepsakes, one_of

    checked(home)
    return one_of(keepsakes(home, RunId(run), methods), name, RunId(run))


def checked(home: Path) -> None:
    """Raises ConfigRefused for a folder that is no agent's home."""
    from tideline.core.errors import ConfigRefused

    if not (home / "runs").is_dir():
        raise ConfigRefused(
            f"{home} is no agent's home, or its agent has taken part in nothing yet", "Correct --home", path="home"
        )


def writable(out: Path, suffix: str) -> None:
    """Raises ConfigRefused for a file that cannot be written or would not be known for what it is."""
    from tideline.core.errors import ConfigRefused

    if out.suffix != suffix:
        raise ConfigRefused(f"--out {out} does not end in {suffix}", f"Name the file {out.with_suffix(suffix).name}", path="out")
    if not out.parent.is_dir():
        raise ConfigRefused(f"There is no folder {out.parent}", "Make it, or correct --out", path="out")


def described(found: Mapping[str, Mapping[str, Tensor]]) -> list[dict[str, Any]]:
    """Names and shapes of what can be taken."""
    return [
        {"name": name, "arrays": ", ".join(f"{key} {'x'.join(map(str, value.shape))}" for key, value in arrays.items())}
        for name, arrays in sorted(found.items())
    ]


def told(out: Path, arrays: Mapping[str, Tensor], as_json: bool) -> None:
    """What was written."""
    shapes = {key: list(value.shape) for key, value in arrays.items()}
    if as_json:
        say_json({"file": str(out), "arrays": shapes})
    else:
        typer.echo(f"Wrote {out}: " + ", ".join(f"{key} {shape}" for key, shape in shapes.items()))
