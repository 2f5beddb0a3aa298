"""The command that plans links between devices: in this process, or at a coordinator. No run is started, and nothing is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tideline.cli.guard import clean, say_json
from tideline.cli.options import Door, Json, at_door
from tideline.core.errors import ConfigRefused

if TYPE_CHECKING:
    from tideline.experiments.files import ExperimentText

app = typer.Typer(
    help="Who should teach whom: plan links between devices without a run.", no_args_is_help=True, rich_markup_mode=None
)
NO_GAP = 1e-9
ENDED = {
    "proven": "the least there is",
    "limit": "found when the time was up",
    "converged": "after {iterations} iterations, which had settled",
    "iterations": "after {iterations} iterations, as many as are made",
    "failed": "after {iterations} iterations, where no solver got further",
}
FLAGS = {
    "uneven": "d was not symmetric: of both directions the mean was taken",
    "unswept": "The time was up before all of sweep was planned with",
    "inaccurate": "A step was not solved to the usual precision",
    "unsettled": "A source still received when the iteration ended; that was dropped",
}


@app.callback()
def links() -> None:
    """Who should teach whom: plan links between devices without a run."""


@app.command("plan")
@at_door
def plan(
    door: Door,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What is known of the devices, YAML or JSON; see docs/links.md.")],
    solver: Annotated[str | None, typer.Option(help="exact or sca, whatever the file says.")] = None,
    phi_energy: Annotated[float | None, typer.Option(help="The weight of energy, whatever the file says.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the links, as PNG.")] = None,
    coordinator: Annotated[bool, typer.Option("--coordinator", help="Have the coordinator plan, not this process.")] = False,
    as_json: Json = False,
) -> None:
    """Plan who is a source, who a target, and which source sends its model to which target."""
    asked = overridden(read_asked(file), solver, phi_energy)
    with asked.located():
        made = planned_there(door, asked) if coordinator else planned_here(asked)
    if plot is not None:
        draw(made, plot)
    if as_json:
        say_json(made)
    else:
        tell(made)


def read_asked(path: Path) -> ExperimentText:
    """The file, with its lines unless it is one that only programs write. Raises ConfigRefused."""
    from tideline.experiments.files import ExperimentText, load_json, read_json, read_text
    from tideline.experiments.yaml_lines import MAX_VALUES, Document, read_yaml, refuse

    text, name = read_text(path, "a plan's devices"), str(path)
    if path.suffix.lower() != ".json":
        document = read_yaml(text, name)
    elif text.count(",") < MAX_VALUES // 2:
        document = read_json(text, name)
    else:
        document = Document(load_json(text, name), {})
    if not isinstance(document.value, dict):
        raise refuse(name, 1, "this asks for no plan", "Write keys and values, such as `devices: [...]`")
    return ExperimentText(name, document.value, {p: f"{name}:{line}" for p, line in document.lines.items() if p})


def overridden(asked: ExperimentText, solver: str | None, phi_energy: float | None) -> ExperimentText:
    """What is asked, with the options in place of what the file says. Raises ConfigRefused."""
    from tideline.experiments.files import put

    given = (("--solver", ["solver"], solver), ("--phi-energy", ["phi", "energy"], phi_energy))
    for option, steps, value in given:
        if value is not None:
            places = {**asked.places, ".".join(steps): option}
            asked = replace(asked, value=put(asked.value, steps, value, option), places=places)
    return asked


def planned_here(asked: ExperimentText) -> dict[str, Any]:
    """The plan, made in this process."""
    from tideline.planning.links import plan_links

    return plan_links(asked.value)


def planned_there(door: Door, asked: ExperimentText) -> dict[str, Any]:
    """The plan, made at the coordinator."""
    from tideline.client.http import PLAN_TIMEOUT, Client

    with Client.of(door) as there:
        made: dict[str, Any] = there.post("/links/plan", asked.value, PLAN_TIMEOUT)
        return made


def draw(made: Mapping[str, Any], path: Path) -> None:
    """The links as a picture. Raises ConfigRefused where it cannot be written, or drawn."""
    from tideline.report.figures import png
    from tideline.report.graphs import MOST_NODES, planned_graph

    graph = planned_graph(made)
    if graph is None:
        what = f"--plot draws {MOST_NODES} devices at most; there are {len(made['devices'])}"
        raise ConfigRefused(what, "Leave it out, and take the links from --json", path="plot")
    try:
        path.write_bytes(png(graph))
    except OSError as cause:
        raise ConfigRefused(f"--plot {path} cannot be written: {cause.strerror}", "Choose another place", path="plot") from None


def tell(made: Mapping[str, Any]) -> None:
    """A plan for people."""
    from tideline.cli.tables import show, table

    for kind in ("source", "target"):
        typer.echo(
            f"{kind.capitalize()}s: {', '.join(clean(name) for name in made['devices'] if made['psi'][name] == kind) or 'none'}"
        )
    rows = [[each["from"], each["to"], f"{each['weight']:.3f}", f"{each['joules']:.4g}"] for each in made["alpha"]]
    if rows:
        typer.echo()
        show(table("", ("from", "to", "weight", "joules"), rows, right=(2, 3)))
    typer.echo(f"\n{summary(made)}")
    for flag in made["flags"]:
        typer.echo(f"Note: {FLAGS.get(flag, clean(flag))}")
    if made["sweep"]:
        columns = ("phi_E", "joules", "links", "sources", "saved")
        cells = [
            [f"{row['phi_energy']:g}", f"{row['joules']:.4g}", *(str(row[key]) for key in columns[2:])] for row in made["sweep"]
        ]
        typer.echo()
        show(table("At other weights of energy", columns, cells, right=range(5)))


def summary(made: Mapping[str, Any]) -> str:
    """Objective and energy in two lines."""
    best = made["gap"] <= NO_GAP
    ended = ENDED.get(made["status"], clean(made["status"])).format(iterations=made["iterations"])
    # Other weights than the cheapest cost more, also where the search for sources was finished.
    ended = "" if made["status"] == "proven" and not best else f", {ended}"
    least = "" if best else f"; no plan has less than {made['bound']:.6g}, a gap of {100 * made['gap']:.2g} %"
    share = f", {made['normalised_energy']:.1f} % of what all links between these take" if made["energy"] else ""
    return f"Objective: {made['objective']:.6g}{ended}{least}\nEnergy: {made['energy']:.4g} J{share}"
