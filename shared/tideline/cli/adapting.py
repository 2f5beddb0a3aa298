"""The command that adapts: rehearse candidates where there are labels, choose, and run what was chosen for the targets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tideline.cli.options import (
    AUTO,
    REGISTRY,
    Connect,
    Device,
    ExperimentFile,
    Json,
    Methods,
    Networks,
    Overrides,
    SitePolicyFile,
    remote,
)
from tideline.core.errors import ConfigRefused

if TYPE_CHECKING:
    from tideline.written.files import ExperimentText

OF_SIMULATIONS = ("data", "deal")


@remote
def adapt(
    connect: Connect,
    file: ExperimentFile,
    settings: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Of a simulation: write the results and the chosen model here.")
    ] = None,
    policy: SitePolicyFile = None,
    device: Device = AUTO,
    methods: Methods = REGISTRY,
    networks: Networks = None,
    as_json: Json = False,
) -> None:
    """Rehearse adaptations at the labelled sites, choose one for the targets, and say what to expect of it.

    An experiment with data: or deal: is simulated here; any other is started at the coordinator and watched.
    """
    from tideline.cli.coordinator.runs import start_text
    from tideline.cli.local.research import simulate_here
    from tideline.written.files import read_file

    experiment = to_adapt(read_file(file).changed(settings or ()))
    if any(name in experiment.value for name in OF_SIMULATIONS):
        simulate_here(experiment, out=out, policy=policy, device=device, methods=methods, networks=networks, as_json=as_json)
    if out is not None:
        raise ConfigRefused("--out is for simulations", "Leave it out; write the model with: tideline run export", path="out")
    start_text(connect, experiment, watch=True, networks=networks, as_json=as_json)


def to_adapt(text: ExperimentText) -> ExperimentText:
    """The experiment with what is missing: the usual candidates, and that what was chosen is run."""
    return replace(text, value={"rehearse": {}, "then": "run", **text.value})
