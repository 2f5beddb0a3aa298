"""The commands that need no coordinator: methods, contract, simulate, demo, version."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from tideline.cli.guard import code_of_run, output, print_json
from tideline.cli.options import (
    AUTO,
    LEAST,
    MOST,
    REGISTRY,
    Address,
    Device,
    ExperimentFile,
    Gpus,
    Json,
    Methods,
    Networks,
    Overrides,
    SitePolicyFile,
    device_of,
)
from tideline.client.output import clean

if TYPE_CHECKING:
    from tideline.written.files import ExperimentText

Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Write the results to this folder.")]


def methods(methods: Methods = REGISTRY, as_json: Json = False) -> None:
    """List the methods."""
    from tideline.cli.tables import show, table
    from tideline.core.algorithm import load_methods, resolve

    registry = load_methods(methods)
    known = [resolve(registry, name) for name, _ in registry]
    if as_json:
        print_json([{"name": a.name, "summary": a.summary, "paper": a.paper, "presets": sorted(a.presets)} for a in known])
    else:
        rows = ([a.name, a.summary, ", ".join(sorted(a.presets)), a.paper] for a in known)
        show(table("", ("method", "summary", "presets", "paper"), rows))


def contract(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The method, see `tideline methods`.")],
    preset: Annotated[str | None, typer.Option(help="One of the method's presets. [default: the method's defaults]")] = None,
    epsilon: Annotated[bool, typer.Option("--epsilon", help="Show what a run that protects rows costs them, too.")] = False,
    sums: Annotated[bool, typer.Option("--secure-sums", help="Show the contract of a run with secure sums.")] = False,
    settings: Overrides = None,
    methods: Methods = REGISTRY,
    as_json: Json = False,
) -> None:
    """Show what sites send with a method, and its settings: the defaults, and those of a preset.

    Both are derived from the code that is installed here.
    """
    from tideline.archive.parts import MemoryParts
    from tideline.cli.local import costs
    from tideline.cli.tables import contract_table, settings_table, show, show_item, table
    from tideline.core.algorithm import load_methods, resolve, where_summed
    from tideline.core.errors import ConfigRefused
    from tideline.core.privacy import contract_digest
    from tideline.core.settings import plain
    from tideline.engine.compute.inline import InlineCompute
    from tideline.written.files import ExperimentText

    if settings and not epsilon:
        raise ConfigRefused("--set is given without --epsilon, and changes what that works out", "Add --epsilon")
    known = load_methods(methods)
    facts = InlineCompute(MemoryParts(), known).describe(name, preset, sums)
    chosen = facts.presets[preset] if preset else None
    given = ExperimentText("", {}, {}).changed(settings or ()).value
    method = where_summed(resolve(known, name), sums)
    found = costs.costs(method, known, preset, given, sums) if epsilon else None
    if found:
        clauses = found.contract
        facts = replace(facts, contract=clauses, sentences=tuple(c.sentence() for c in clauses), digest=contract_digest(clauses))
    if as_json:
        more = {"preset": {"name": preset, "settings": chosen}} if preset else {}
        print_json(plain(facts) | more | ({"costs": costs.plain_costs(found)} if found else {}))
        return
    typer.echo(f"{facts.name}: {facts.summary}\n{facts.paper}\n\nWhat leaves a site:")
    for sentence in facts.sentences:
        show_item(sentence)
    if facts.claims:
        typer.echo("\nWhat is and is not claimed beyond that:")
        for claim in facts.claims:
            show_item(claim)
    if found and (otherwise := method.privately):
        typer.echo("\nWhat is otherwise in a run that protects rows:")
        for sentence in otherwise:
            show_item(sentence)
    beside = (f"preset {preset}" if preset else "", "with secure sums" if sums else "")
    typer.echo("\n" + ", ".join(filter(None, (f"Contract {facts.digest[:12]}", *beside))))
    show(contract_table(facts.contract))
    if found:
        asked = found.privacy
        terms = f"rounds {found.rounds}, rate {asked.rate:g}, delta {asked.delta:g}, score_noise {asked.score_noise:g}"
        typer.echo(f"\nWhat a run that protects {asked.whose}s costs each of them, with {terms}:")
        show(table("", ("epsilon asked", "noise", "epsilon"), costs.lines_of(found)))
    typer.echo()
    show(settings_table(facts.settings, chosen))


def simulate(
    file: ExperimentFile,
    out: Out = None,
    settings: Overrides = None,
    policy: SitePolicyFile = None,
    device: Device = AUTO,
    pool: Annotated[str, typer.Option(help="Who runs the sites' steps: inline (this process), processes or ray.")] = "inline",
    jobs: Annotated[int | None, typer.Option(metavar="N", help="Steps at once. [default: one a core, on Ray all it has]")] = None,
    address: Address = None,
    gpus: Gpus = 0.0,
    methods: Methods = REGISTRY,
    networks: Networks = None,
    as_json: Json = False,
) -> None:
    """Run an experiment on this machine, with the sites of its `data:` or `deal:` section."""
    from tideline.written.files import read_file

    text = read_file(file).changed(settings or ())  # before torch is loaded: you see a typing error at once

    simulate_here(
        text,
        out=out,
        policy=policy,
        device=device,
        pool=pool,
        jobs=jobs,
        address=address,
        gpus=gpus,
        methods=methods,
        networks=networks,
        as_json=as_json,
    )


def simulate_here(
    text: ExperimentText,
    *,
    out: Path | None,
    policy: Path | None,
    device: str,
    pool: str = "inline",
    jobs: int | None = None,
    address: str | None = None,
    gpus: float = 0.0,
    methods: str,
    networks: list[str] | None,
    as_json: bool,
) -> NoReturn:
    """Simulate an experiment that was read, show its result, and exit with its code."""
    from tideline.cli.tables import result_tables, show
    from tideline.client.watching import guesses
    from tideline.core.algorithm import load_methods
    from tideline.engine.process.ray_tasks import RAY
    from tideline.engine.site.rules import FREE
    from tideline.experiments.simulation import Place, simulate_text
    from tideline.nets import registry
    from tideline.nets.computing.devices import present
    from tideline.report.verdict_rows import sentences_of
    from tideline_agent.policy_file import read_policy

    owners = read_policy(policy)
    rules = FREE if policy is None else owners.rules  # whoever simulates owns the data of all sites
    device = device_of(device, pool == RAY, gpus)
    place = Place(policy=owners.allowed, rules=rules, device=device, pool=pool, jobs=jobs, address=address, gpus=gpus)
    if pool != RAY:  # whose workers look for the device themselves: it may be on their machines alone
        present(device)
    registry.use(networks or ())
    result = simulate_text(text, load_methods(methods), out, place)
    if as_json:
        print_json(result)
    else:
        for each in result_tables(result):
            show(each)
        for line in filter(None, (*sentences_of(result), *result.get("notes", ()), *guesses(result), result["cause"])):
            typer.echo(clean(line))
    raise typer.Exit(code_of_run(result))


def demo(
    method: Annotated[
        str | None, typer.Option(help="One method alone, see `tideline methods`. [default: a rehearsal chooses among some]")
    ] = None,
    agents: Annotated[int, typer.Option(min=LEAST, max=MOST, help="How many agents to start.")] = 4,
    rounds: Annotated[int | None, typer.Option(min=0, help="Rounds. [default: as many as make a good demo]")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed. The same seed gives the same bytes.")] = 0,
    policy: SitePolicyFile = None,
    private: Annotated[
        bool, typer.Option("--private", help="Protect each row by differential privacy; show what it costs.")
    ] = False,
    network: Annotated[str | None, typer.Option(metavar="NAME", help="Network. [default: the method's own for demos]")] = None,
    methods: Methods = REGISTRY,
    networks: Networks = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Train on real digits, with a coordinator and agents on this machine.

    The demo starts a coordinator and agents. Three have labelled digits of a style each. It rehearses adaptations there, chooses
    one for the fourth, which has no labels, and holds what it expected to what it finds.
    """
    from tideline.cli.local.demo import DemoOptions, run_demo
    from tideline.cli.local.demo_private import METHOD, check_private
    from tideline.cli.local.demo_processes import Code

    if private:
        check_private(method)
        method = METHOD
    code = Code(methods, tuple(networks or ()), network)
    options = DemoOptions(method=method, agents=agents, rounds=rounds, seed=seed, policy=policy, private=private, code=code)
    raise typer.Exit(run_demo(options, out, as_json))


def version(as_json: Json = False) -> None:
    """Print the versions on which equal bytes depend."""
    import platform
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    from tideline import __version__

    versions = {"tideline": __version__, "python": platform.python_version()}
    for name in ("torch", "grpcio"):
        try:
            versions[name] = installed(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    output(versions, as_json, "\n".join(f"{name} {number}" for name, number in versions.items()))
