"""What a run begins from where its user brings weights: the file is read, held to the world's network, and copied."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tideline import nets
from tideline.archive.errors import PartMissing
from tideline.archive.parts import Parts
from tideline.archive.reader import tensors_in
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, DataRefused, Malformed
from tideline.core.record import Weights
from tideline.core.run import Digest, RunSpec
from tideline.engine.model.experiment import weights_missing
from tideline.learning import frozen
from tideline.learning.backbones import fresh
from tideline.learning.weights import SAVE, check_fit, checked, each_fitted, fitted, state_dict_in
from tideline.nets import played

BRING = "Add weights: FILE, the weights of what is frozen; or package:NAME for weights that a package brings (docs/networks.md)"


@dataclass(frozen=True)
class Start:
    """What is known of a run's weights once they are checked.

    size   bytes of the file, 0 of none
    begins whether the method begins from them: where a part is frozen, if they have of what trains and it takes initial weights
    notes  what is told of that
    """

    size: int = 0
    begins: bool = False
    notes: tuple[str, ...] = ()


def check_start(parts: Parts, world: World, digest: str, takes: bool) -> Start:
    """takes: whether the method takes initial weights. Raises ConfigRefused, with the path `weights`, or `world.trains`."""
    if world.frozen and not digest:
        what = f"world.trains is {' '.join(world.trains)}, and the run brings no weights for what is frozen"
        raise ConfigRefused(what, BRING, path="world.trains")
    if not digest:
        return Start()
    size = check_initial_weights(parts, world, Digest(digest))
    if not world.frozen:
        return Start(size, begins=True)
    base = read_base(parts, world, Digest(digest))
    begins = takes and bool(frozen.begins_from(world, base))
    return Start(size, begins, (frozen.sentence(world, base, begins),))


def read_base(parts: Parts, world: World, digest: Digest) -> Weights:
    """The frozen tensors, and of those that train what is there.

    Raises PartMissing, PartDamaged where the file is not as it came, and as the check.
    """
    return frozen.base_of(world, checked(state_dict_in(tensors_in(parts.view(digest)))))


def seen(parts: Parts, world: World, file: str) -> World:
    """The world as a method sees it, over the frozen tensors of that file, which is read when their numbers are wanted."""
    return played(world, partial(read_base, parts, world, Digest(file)), file)


def to_begin_from(parts: Parts, spec: RunSpec, seen: World, takes: bool) -> Weights | None:
    """The weights that the method begins from, by the names of the network that it sees; None: as it always does.

    seen: the world as it sees it. takes: whether it takes initial weights. What of it trains and the file has not is drawn from
    the run's seed. Raises PartMissing, and as the check.
    """
    world, digest = spec.world, spec.initial_weights
    if digest is None:
        return None
    if not world.frozen:
        return read_initial_weights(parts, world, digest)
    there = frozen.begins_from(world, read_base(parts, world, digest)) if takes else {}
    if not there or there.keys() == nets.template(seen).keys():
        return there or None
    return fresh(seen, spec.seed) | there


def check_initial_weights(parts: Parts, world: World, digest: Digest) -> int:
    """The file's bytes, if it is here and holds weights of the world's network. Raises ConfigRefused, with the path `weights`."""
    try:
        view = parts.view(digest)
    except PartMissing:
        raise weights_missing(digest) from None
    try:
        if world.frozen:
            read_base(parts, world, digest)
        else:
            for _ in each_fitted(world, weights_in(world, view)):
                pass  # each is copied, which shows that it can be, and let go
    except Malformed as error:
        raise refused(f"The weights cannot be read as a safetensors file: {error.what}", SAVE) from error
    except DataRefused as error:
        raise refused(f"Of the weights: {error.what}", error.todo) from error
    except ConfigRefused as error:
        raise refused(error.what, error.todo) from error
    return len(view)


def read_initial_weights(parts: Parts, world: World, digest: Digest) -> Weights:
    """A copy of the file's weights, as the world's network has them. Raises PartMissing, and as the check."""
    return fitted(world, weights_in(world, parts.view(digest)))


def weights_in(world: World, view: memoryview) -> Weights:
    """The tensors over a file's bytes, which are the network's by names and shapes, each plain and finite.

    Their numbers are checked last: of one large tensor that takes several times its bytes, which no file of another network
    is to cost. Raises Malformed, DataRefused, ConfigRefused.
    """
    weights = state_dict_in(tensors_in(view))
    check_fit(world, weights)
    return checked(weights)


def refused(what: str, todo: str) -> ConfigRefused:
    return ConfigRefused(what, todo, path="weights")
