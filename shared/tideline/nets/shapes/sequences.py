"""A small network of sequences, such as what sensors measured: convolutions along the steps, and the mean over them.

Wang, Yan, Oates, "Time Series Classification from Scratch with Deep Neural Networks", IJCNN 2017 (arXiv 1611.06455): convolutions
with batch norm, and one mean over time, so that sequences of any length have as many features. Here are two of them, and a layer.
"""

from __future__ import annotations

from typing import Self

from torch import Tensor, nn

from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.nets.small import Net

LEAST = 4  # steps, of which pooling leaves one
WIDTH = 64


class MeanOver(nn.Module):
    """The mean over all axes behind the channels: (n, c, ...) -> (n, c)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).mean(2)


class Conv1d(Net):
    """Two convolutions along the steps, batch norm and pooling, the mean, a hidden layer. x: (n, c, t) -> logits (n, classes)."""

    def __init__(self, channels: int, classes: int, width: int, kernel: int) -> None:
        features = nn.Sequential(
            *(nn.Conv1d(channels, width, kernel, padding=kernel // 2), nn.BatchNorm1d(width), nn.ReLU(), nn.MaxPool1d(2)),
            *(nn.Conv1d(width, 2 * width, kernel, padding=kernel // 2), nn.BatchNorm1d(2 * width), nn.ReLU(), nn.MaxPool1d(2)),
            *(MeanOver(), nn.Linear(2 * width, WIDTH), nn.ReLU()),
        )
        super().__init__(features, nn.Linear(WIDTH, classes))

    @classmethod
    def of(cls, world: World, width: int = 32, kernel: int = 5) -> Self:
        """For a world of sequences. Raises ConfigRefused for too short ones, and a kernel that is even."""
        check_sides(world, LEAST, "steps")
        check_option("width", width, width >= 1, "Give 1 or more")
        check_option("kernel", kernel, kernel >= 1 and kernel % 2 == 1, "Give an odd number, such as 5")
        return cls(world.inputs[0], world.classes, width, kernel)


def check_sides(world: World, least: int, words: str) -> None:
    """Raises ConfigRefused unless each size behind the channels is `least` or more."""
    if min(world.inputs[1:]) < least:
        what = f"world.inputs is {list(world.inputs)}; {world.model} takes {least} {words} or more"
        raise ConfigRefused(what, "Give larger samples, or use model: mlp", path="world.inputs")


def check_option(name: str, value: int, fits: bool, todo: str) -> None:
    """Raises ConfigRefused for an option that does not fit."""
    if not fits:
        path = f"world.model.options.{name}"
        raise ConfigRefused(f"{path} is {value}", todo, path=path)
