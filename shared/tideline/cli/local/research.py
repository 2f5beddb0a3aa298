"""The commands that need no coordinator: methods, contract, simulate, demo, version."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tideline.cli.guard import code_of_run, say_json
from tideline.cli.options import LEAST, MOST, REGISTRY, Device, ExperimentFile, Json, Methods, Settings, SitePolicyFile

Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Write the results into this folder.")]


def methods(methods: Methods = REGISTRY, as_json: Json = False) -> None:
    """List the methods."""
    from tideline.cli.tables import methods_table, show
    from tideline.core.registry import load_methods, resolve

    registry = load_methods(methods)
    found = [resolve(registry, name) for name, _ in registry]
    rows = [{"name": a.name, "summary": a.summary, "paper": a.paper, "presets": sorted(a.presets)} for a in found]
    if as_json:
        say_json(rows)
    else:
        show(methods_table(rows))


def contract(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The method, see `tideline methods`.")],
    preset: Annotated[str | None, typer.Option(help="One of the method's presets. [default: the method's defaults]")] = None,
    methods: Methods = REGISTRY,
    as_json: Json = False,
) -> None:
    """Show what a method makes sites send, and its settings, a preset's beside the defaults.

    Derived from the code that is installed here.
    """
    from tideline.archive.parts import MemoryParts
    from tideline.cli.tables import contract_table, say_item, settings_table, show
    from tideline.core.registry import load_methods
    from tideline.core.settings import plain
    from tideline.engine.compute.inline import InlineCompute

    facts = InlineCompute(MemoryParts(), load_methods(methods)).describe(name, preset)
    chosen = facts.presets[preset] if preset else None
    if as_json:
        say_json(plain(facts) | ({"preset": {"name": preset, "settings": chosen}} if preset else {}))
        return
    typer.echo(f"{facts.name}: {facts.summary}\n{facts.paper}\n\nWhat leaves a site:")
    for sentence in facts.sentences:
        say_item(sentence)
    if facts.claims:
        typer.echo("\nWhat is and is not claimed beyond that:")
        for claim in facts.claims:
            say_item(claim)
    typer.echo(f"\nContract {facts.digest[:12]}" + (f", preset {preset}" if preset else ""))
    show(contract_table(facts.contract))
    typer.echo()
    show(settings_table(facts.settings, chosen))


def simulate(
    file: ExperimentFile,
    out: Out = None,
    settings: Settings = None,
    policy: SitePolicyFile = None,
    device: Device = "cpu",
    methods: Methods = REGISTRY,
    as_json: Json = False,
) -> None:
    """Run an experiment in this process, on its `data:` or `deal:` sites."""
    from tideline.experiments.files import read_file

    text = read_file(file).changed(settings or ())  # before torch is loaded: a typing error is told at once

    from tideline.cli.guard import clean
    from tideline.cli.tables import groups_table, marks_table, result_table, show
    from tideline.core.registry import load_methods
    from tideline.experiments.simulating import Place, simulate_text
    from tideline_agent.settings import read_policy
    from tideline_agent.trainer import present

    present(device)
    result = simulate_text(text, load_methods(methods), out, Place(read_policy(policy).allowed, device))
    if as_json:
        say_json(result)
    else:
        for each in filter(None, (result_table(result), marks_table(result), groups_table(result))):
            show(each)
        for said in filter(None, (*result["notes"], result["cause"])):
            typer.echo(clean(said))
    raise typer.Exit(code_of_run(result))


def demo(
    method: Annotated[str, typer.Option(help="The method, see `tideline methods`.")] = "feddadil",
    agents: Annotated[int, typer.Option(min=LEAST, max=MOST, help="How many agents.")] = 4,
    rounds: Annotated[int | None, typer.Option(min=0, help="Rounds. [default: the method's preset for demonstrations]")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same bytes.")] = 0,
    policy: SitePolicyFile = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Train on real digits, with agents on this machine.

    A coordinator and agents are started, digits of four styles are learnt, and the result is shown.
    """
    from tideline.cli.local.demo import Asked, run_demo

    raise typer.Exit(run_demo(Asked(method, agents, rounds, seed, policy), out, as_json))


def version(as_json: Json = False) -> None:
    """Print the versions that matter to the bytes."""
    import platform
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    from tideline import __version__

    found = {"tideline": __version__, "python": platform.python_version()}
    for name in ("torch", "grpcio"):
        try:
            found[name] = installed(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    if as_json:
        say_json(found)
    else:
        typer.echo("\n".join(f"{name} {number}" for name, number in found.items()))
