"""What networks of images ask of a world."""

from __future__ import annotations

from tideline.core.errors import ConfigRefused
from tideline.core.run import World


def image_shape(world: World, least: int, todo: str, channels: int | None = None) -> tuple[int, int, int]:
    """Channels, height and width of a world of images, of `least` pixels each way or more. Raises ConfigRefused for others."""
    inputs = world.inputs
    if len(inputs) != 3 or min(inputs[1:]) < least or channels not in (None, inputs[0]):
        takes = f"{channels} channels" if channels else "channels"
        raise ConfigRefused(
            f"world.inputs is {list(inputs)}; {world.model} takes images: {takes}, height, width, of {least} pixels or more",
            todo,
            path="world.inputs",
        )
    return inputs[0], inputs[1], inputs[2]
