"""The command that plans links between devices: in this process, or at a coordinator. It starts no run and stores nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from tideline.cli.guard import group_of, print_json
from tideline.cli.options import Connect, Json, remote
from tideline.client.answers import LinkPlan
from tideline.client.output import clean
from tideline.core.errors import ConfigRefused

if TYPE_CHECKING:
    from tideline.written.files import ExperimentText

app = group_of("Plan which device should send its model to which, without a run.")
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
    """A group, though it has one command."""


@app.command("plan")
@remote
def plan(
    connect: Connect,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What you know of the devices, YAML or JSON; see docs/links.md.")],
    solver: Annotated[str | None, typer.Option(help="exact or sca; overrides the file.")] = None,
    phi_energy: Annotated[float | None, typer.Option(help="The weight of energy; overrides the file.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the links to this PNG file.")] = None,
    coordinator: Annotated[bool, typer.Option("--coordinator", help="Let the coordinator plan, not this process.")] = False,
    as_json: Json = False,
) -> None:
    """Plan who is a source, who a target, and which source sends its model to which target."""
    from tideline.written.files import read_file

    what, todo = "a request for a plan", "Write keys and values, such as `devices: [...]`"
    devices = overridden(read_file(file, what, todo, large=True), solver, phi_energy)
    with devices.located():
        planned = planned_at(connect if coordinator else None, devices)
    if plot is not None:
        draw(planned, plot)
    if as_json:
        print_json(planned)
    else:
        show_plan(planned)


def overridden(devices: ExperimentText, solver: str | None, phi_energy: float | None) -> ExperimentText:
    """The file with options in place of what it says. Raises ConfigRefused."""
    from tideline.written.files import put

    for option, steps, value in (("--solver", ["solver"], solver), ("--phi-energy", ["phi", "energy"], phi_energy)):
        if value is not None:
            places = {**devices.places, ".".join(steps): option}
            devices = replace(devices, value=put(devices.value, steps, value, option), places=places)
    return devices


def planned_at(connect: Connect | None, devices: ExperimentText) -> LinkPlan:
    """A plan by the coordinator, or by this process where there is none."""
    if connect is None:
        from tideline.planning.links import plan_links

        return cast("LinkPlan", plan_links(devices.value))
    from tideline.client.http import PLAN_TIMEOUT

    with connect() as client:
        return cast("LinkPlan", client.post("/links/plan", devices.value, PLAN_TIMEOUT))


def draw(plan: LinkPlan, path: Path) -> None:
    """The links as a picture. Raises ConfigRefused where it cannot be written, or drawn."""
    from tideline.report.figures import png
    from tideline.report.graphs import MOST_NODES, planned_graph

    graph = planned_graph(plan)
    if graph is None:
        what = f"--plot draws {MOST_NODES} devices at most; there are {len(plan['devices'])}"
        raise ConfigRefused(what, "Leave it out, and take the links from --json", path="plot")
    try:
        path.write_bytes(png(graph))
    except OSError as cause:
        raise ConfigRefused(f"--plot {path} cannot be written: {cause.strerror}", "Choose another place", path="plot") from None


def show_plan(plan: LinkPlan) -> None:
    from tideline.cli.tables import show, table

    for kind in ("source", "target"):
        names = (clean(name) for name in plan["devices"] if plan["psi"][name] == kind)
        typer.echo(f"{kind.capitalize()}s: {', '.join(names) or 'none'}")
    rows = [[each["from"], each["to"], f"{each['weight']:.3f}", f"{each['joules']:.4g}"] for each in plan["alpha"]]
    if rows:
        typer.echo()
        show(table("", ("from", "to", "weight", "joules"), rows, right=(2, 3)))
    typer.echo(f"\n{summary(plan)}")
    for flag in plan["flags"]:
        typer.echo(f"Note: {FLAGS.get(flag, clean(flag))}")
    if sweep := plan["sweep"]:
        columns = ("phi_E", "joules", "links", "sources", "saved")
        rows = [[f"{s['phi_energy']:g}", f"{s['joules']:.4g}", *map(str, (s["links"], s["sources"], s["saved"]))] for s in sweep]
        typer.echo()
        show(table("At other weights of energy", columns, rows, right=range(5)))


def summary(plan: LinkPlan) -> str:
    """Objective and energy in two lines."""
    best = plan["gap"] <= NO_GAP
    ended = ENDED.get(plan["status"], clean(plan["status"])).format(iterations=plan["iterations"])
    # Other weights than the cheapest cost more, also where the search for sources was finished.
    ended = "" if plan["status"] == "proven" and not best else f", {ended}"
    least = "" if best else f"; no plan has less than {plan['bound']:.6g}, a gap of {100 * plan['gap']:.2g} %"
    share = f", {plan['normalised_energy']:.1f} % of what all links between these take" if plan["energy"] else ""
    return f"Objective: {plan['objective']:.6g}{ended}{least}\nEnergy: {plan['energy']:.4g} J{share}"
