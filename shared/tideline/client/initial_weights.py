"""Weights of a person's own: from a file that an experiment names to one that a coordinator takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import typer
from torch import Tensor

from tideline import nets
from tideline.archive import layout
from tideline.archive.checks import DTYPE_NAMES
from tideline.archive.parts import Buffer, digest_of
from tideline.archive.writer import raw
from tideline.cli.guard import clean
from tideline.client.http import Client
from tideline.core.errors import ConfigRefused, DataRefused, RosterRefused
from tideline.core.run import Role, World, world_in
from tideline.engine.model.experiment import Experiment, read_experiment
from tideline.experiments.files import ExperimentText
from tideline.learning.weights import fitted, is_backbone, read_weights, with_backbone

PIECE = 1 << 20  # bytes that are passed on at once


def uploaded(text: ExperimentText, there: Client) -> ExperimentText:
    """The experiment as the coordinator takes it: a file of weights is checked, brought there, and named by its digest.

    Raises ConfigRefused, with the path `weights`, for a file that cannot be used or is too long there.
    """
    file = text.weights_file
    if file is None:
        return text
    buffers = packed(text, file)
    digest = digest_of(buffers)
    there.bring(digest, sum(memoryview(each).nbytes for each in buffers), lambda: pieces(buffers))
    return text.with_weights(digest)


def packed(text: ExperimentText, file: Path) -> Sequence[Buffer]:
    """A file's weights as one safetensors file of the world's network: equal weights give equal bytes. Raises as `uploaded`."""
    experiment = read_experiment(text.value)
    world = world_in(text.value.get("world", {}))
    nets.check(world)
    weights = weights_for(world, experiment, file)
    head, order = layout.build({name: (DTYPE_NAMES[w.dtype], tuple(w.shape)) for name, w in weights.items()}, {})
    return [head, *(raw(weights[name]) for name in order)]


def weights_for(world: World, experiment: Experiment, file: Path) -> Mapping[str, Tensor]:
    """The weights of the world's network that a file holds, or a backbone's below a bottleneck and a classifier as drawn."""
    try:
        found = read_weights(file)
        if not is_backbone(world, found):
            return fitted(world, found)
        check_learners(experiment, file)
        made = with_backbone(world, found, experiment.seed)
    except (ConfigRefused, DataRefused) as error:
        raise ConfigRefused(error.what, error.todo, path="weights") from error
    note = f"{file} holds a backbone alone; bottleneck and classifier are as drawn from the seed, and the run has to train them"
    typer.echo(f"Note: {clean(note)}", err=True)
    return made


def check_learners(experiment: Experiment, file: Path) -> None:
    """Raises RosterRefused where all are targets: nobody could train what is drawn."""
    sites = (s.role for s in experiment.data.values())
    roles = {*experiment.roster.values(), *(s.role for s in experiment.select), *sites}
    if roles <= {Role.TARGET}:
        what = f"{file} holds a backbone alone, and nobody in the roster has labels to train a classifier over it"
        raise RosterRefused(what, "Add a source, or bring weights of the whole network, trained at one", path="roster")


def pieces(buffers: Sequence[Buffer]) -> Iterator[bytes]:
    """The bytes of buffers, a little at a time."""
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        for at in range(0, len(view), PIECE):
            yield bytes(view[at : at + PIECE])
