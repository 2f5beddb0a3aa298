"""The images that the demo makes of its digits for a network: the first of some shapes that it takes. Loads torch."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tideline.core.errors import ConfigRefused

CLASSES = 10
INPUTS = "world.inputs"
SHAPE: tuple[int, ...] = (3, 28, 28)  # as the methods' own networks for demonstrations take them
# Agents resize what they read. Networks for photographs need 32 pixels or more, some squares of patches, a few one size alone.
SHAPES: Sequence[tuple[int, ...]] = (
    *(SHAPE, (3, 32, 32), (1, 28, 28), (1, 32, 32)),
    *((3, 42, 42), (3, 64, 64), (3, 96, 96), (3, 224, 224)),
)


def shape_for(network: str, networks: Sequence[str] = ()) -> tuple[int, ...]:
    """Channels, height and width. Raises ConfigRefused for a network that is not there, or that takes none of these."""
    from tideline import nets
    from tideline.core.asked.world import World
    from tideline.nets import registry

    def refusal(shape: tuple[int, ...]) -> ConfigRefused | None:
        try:
            nets.check(World(inputs=shape, classes=CLASSES, model=network))
        except ConfigRefused as error:
            return error
        return None

    with registry.beside(networks):
        with quiet():
            refusals = dict[tuple[int, ...], ConfigRefused]()
            for shape in SHAPES:
                if not (error := refusal(shape)):
                    return shape
                refusals[shape] = error
        # What is wrong with the network itself says more than what is wrong with a shape. Now its log has its own words.
        shape = next((shape for shape, error in refusals.items() if error.context.get("path") != INPUTS), SHAPE)
        raise refusal(shape) or refusals[shape]


@contextmanager
def quiet() -> Iterator[None]:
    """Without what networks log of the shapes that they do not take."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
