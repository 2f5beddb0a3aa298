"""A person's weights out of the store of parts: read by our own rules, and held to the world's network."""

from __future__ import annotations

from tideline.archive.errors import PartMissing
from tideline.archive.foreign import tensors_in
from tideline.archive.parts import Parts
from tideline.core.errors import ConfigRefused, DataRefused, Malformed
from tideline.core.record import Weights
from tideline.core.run import Digest, World
from tideline.engine.model.experiment import weights_missing
from tideline.learning.weights import SAVE, check_fit, checked, each_fitted, fitted, state_dict_in


def check_initial_weights(parts: Parts, world: World, digest: Digest) -> int:
    """The file's bytes, if it is here and holds weights of the world's network. Raises ConfigRefused, with the path `weights`."""
    try:
        view = parts.view(digest)
    except PartMissing:
        raise weights_missing(digest) from None
    try:
        for _ in each_fitted(world, brought(world, view)):
            pass  # each is copied, which shows that it can be, and let go
    except Malformed as error:
        raise refused(f"The weights cannot be read as a safetensors file: {error.what}", SAVE) from error
    except DataRefused as error:
        raise refused(f"Of the weights: {error.what}", error.todo) from error
    except ConfigRefused as error:
        raise refused(error.what, error.todo) from error
    return len(view)


def read_initial_weights(parts: Parts, world: World, digest: Digest) -> Weights:
    """A copy of the file's weights, as the world's network has them. Raises PartMissing, and what the check before it told."""
    return fitted(world, brought(world, parts.view(digest)))


def brought(world: World, view: memoryview) -> Weights:
    """The tensors over a file's bytes, which are the network's by names and shapes, each plain and finite.

    Their numbers are looked at last: of one large tensor that takes several times its bytes, which no file of another network
    is to cost. Raises Malformed, DataRefused, ConfigRefused.
    """
    weights = state_dict_in(tensors_in(view))
    check_fit(world, weights)
    return checked(weights)


def refused(what: str, todo: str) -> ConfigRefused:
    """The refusal of a file, at its place in the experiment."""
    return ConfigRefused(what, todo, path="weights")
