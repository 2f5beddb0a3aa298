"""A whole federation in this process, its sites given by a program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from tideline.client.output import warn
from tideline.core.algorithm import Methods
from tideline.core.errors import ConfigRefused, kind_of
from tideline.core.settings import Plain
from tideline.experiments.given import check_given, simulate_given
from tideline.learning.sites.inferring import inferred
from tideline.learning.sites.site import Site
from tideline.nets import registry
from tideline.python.asked import Asked, methods_of, text_of
from tideline.python.run import Networks, Run, SimulatedRun
from tideline.written.files import ExperimentText


def simulate(
    experiment: Asked = None,
    *,
    sites: Mapping[str, Site],
    networks: Networks = None,
    methods: Methods | str | None = None,
    out: Path | str | None = None,
    progress: bool = True,
    **settings: Plain,
) -> Run:
    """Run an experiment with these sites in this process, and give the run once it has ended.

    experiment   a dict or the path of a YAML file, as `tideline simulate` takes it without `data`; keywords go over it
    sites        by name; their roles are the roster
    networks     functions build(world, **options) -> nn.Module by name, or places MODULE:NAME, known to this call alone
    methods      MODULE:TUPLE, or rows (name, "module:attribute"), beside the built-in methods
    out          a folder for result.json, the final state and the models
    progress     bars, or lines, on stderr

    `world.inputs` and `world.classes` are inferred where they are not said: from the sites' first rows, and from the names of the
    classes or the largest label. How is among the notes of the result. Sites that differ are refused by name.
    Raises ConfigRefused, DataRefused and others of `tideline.errors`; a run that fails is returned, with its `cause`.

    >>> import torch, tideline
    >>> rows = torch.rand(20, 4), torch.arange(20) % 2
    >>> sites = {"a": tideline.Site(train=rows), "b": tideline.Site(train=rows[0], role="target")}
    >>> run = tideline.simulate(method="fedavg", config={"rounds": 1}, world={"model": "mlp"}, sites=sites, progress=False)
    >>> run.result.data["world"]["inputs"], run.result.data["world"]["classes"]
    ([4], 2)
    """
    text, known = text_of(experiment, settings), methods_of(methods)
    check_sites(sites)
    with registry.beside(networks):
        with text.located():
            check_given(text, sites)
            world, notes = inferred(world_in_text(text), sites)
        for note in notes if progress else ():
            warn(f"Note: {note}")
        asked = ExperimentText(text.name, {**text.value, "world": world}, text.places)
        data, models = simulate_given(asked, known, sites, None if out is None else Path(out), progress)
    data["notes"] = [*notes, *data.get("notes", ())]
    return SimulatedRun(data, models, known, networks)


def check_sites(sites: Mapping[str, object]) -> None:
    """Raises ConfigRefused for what is no site."""
    for name, site in sites.items():
        if not isinstance(site, Site):
            what = f"sites[{name!r}] is {kind_of(site)}"
            raise ConfigRefused(what, f"Write {name!r}: tideline.Site(train=..., role=...)", path="sites")


def world_in_text(text: ExperimentText) -> Mapping[str, Plain]:
    """The world as far as the experiment says it. Raises ConfigRefused."""
    world = text.value.get("world", {})
    if not isinstance(world, Mapping):
        raise ConfigRefused(f"world is {kind_of(world)}", "Give a mapping: {'model': 'mlp'}", path="world")
    return cast("Mapping[str, Plain]", world)
