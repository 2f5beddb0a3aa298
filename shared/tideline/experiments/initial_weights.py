"""Initial weights: from a file that an experiment names to one that a coordinator accepts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from tideline import nets
from tideline.archive.digests import Buffer, digest_of
from tideline.archive.writer import file_of
from tideline.client.http import Client
from tideline.client.output import warn
from tideline.core.asked.world import World, world_in
from tideline.core.errors import ConfigRefused, DataRefused, RosterRefused
from tideline.core.run import Role
from tideline.engine.model.experiment import Experiment, read_experiment
from tideline.learning import model_file
from tideline.learning.backbones import fresh, sentence, start
from tideline.learning.frozen import base_in
from tideline.learning.packages import PACKAGE, file_in_package
from tideline.learning.weights import fitted, read_weights
from tideline.nets.layers import classifier_of
from tideline.written.files import ExperimentText

PIECE = 1 << 20  # bytes that are passed on at once


def upload(text: ExperimentText, client: Client) -> ExperimentText:
    """The experiment for the coordinator: its file of weights is checked, uploaded, and named by its digest.

    Raises ConfigRefused, with the path `weights`, for a file that cannot be used or is too large.
    """
    file = text.weights_file
    if file is None:
        return text
    buffers = packed(text, file)
    digest = digest_of(buffers)
    client.upload_weights(digest, sum(memoryview(each).nbytes for each in buffers), lambda: pieces(buffers))
    return text.with_weights(digest)


def packed(text: ExperimentText, file: Path) -> Sequence[Buffer]:
    """A file's weights as one safetensors file of the world's network: equal weights give equal bytes. Raises as `upload`."""
    experiment = read_experiment(text.value)
    world = nets.settled(world_in(text.value.get("world", {})))
    nets.check(world)
    carried = str(file).startswith(PACKAGE)
    if carried:
        file = file_in_package(str(file).removeprefix(PACKAGE))
    if world.frozen:
        return file_of(base_for(world, file), {})
    return file_of(weights_in_package(world, experiment, file) if carried else weights_for(world, experiment, file), {})


def weights_in_package(world: World, experiment: Experiment, file: Path) -> Mapping[str, Tensor]:
    """The network's weights from a package; for other classes than its own, the head is drawn from the seed."""
    base = base_for(world, file)
    if classifier_of(base):
        return base
    check_learners(experiment, file)
    warn(f"Note: {file.name} has no head of {world.classes} classes; it is drawn from the seed, and the run has to train it")
    return fresh(world, experiment.seed) | dict(base)


def base_for(world: World, file: Path) -> Mapping[str, Tensor]:
    """What a run begins from of whose network a part is frozen. Raises ConfigRefused."""
    with said_of_weights():
        return base_in(world, file)


@contextmanager
def said_of_weights() -> Iterator[None]:
    """What is wrong with the file is said of `weights`."""
    try:
        yield
    except (ConfigRefused, DataRefused) as error:
        raise ConfigRefused(error.what, error.todo, path="weights") from error


def weights_for(world: World, experiment: Experiment, file: Path) -> Mapping[str, Tensor]:
    """The network's weights from a file: all of them, or those of a package's model and what it lacks drawn from the seed."""
    with said_of_weights():
        if model_file.is_model(file):
            return fitted(world, model_file.weights_for(world, model_file.read_model(file)))
        begun = start(world, read_weights(file), experiment.seed)
    if begun.drawn:
        check_learners(experiment, file)
    if said := sentence(begun):
        warn(f"Note: {file} does not fit {world.model} whole: {said}")
    return begun.weights


def check_learners(experiment: Experiment, file: Path) -> None:
    """Raises RosterRefused if all sites are targets, which cannot train what is drawn."""
    sites = (s.role for s in experiment.data.values())
    roles = {*experiment.roster.values(), *(s.role for s in experiment.select), *sites}
    if roles <= {Role.TARGET}:
        what = f"{file} has no head for this world, and no site in the roster has labels to train one"
        raise RosterRefused(what, "Add a source, or give weights of the whole network, trained at one", path="roster")


def pieces(buffers: Sequence[Buffer]) -> Iterator[bytes]:
    """The bytes of buffers, a little at a time."""
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        for at in range(0, len(view), PIECE):
            yield bytes(view[at : at + PIECE])
