"""A small network of volumes, such as scans of a body: convolutions in three directions, and the mean over all places."""

from __future__ import annotations

from typing import Self

from torch import nn

from tideline.core.asked.world import World
from tideline.nets.shapes.sequences import WIDTH, MeanOver, check_option, check_sides
from tideline.nets.small import Net

LEAST = 4  # voxels of a side, of which pooling leaves one


class Conv3d(Net):
    """Two 3x3x3 convolutions with batch norm and pooling, the mean, a hidden layer. x: (n, c, d, h, w) -> logits (n, classes)."""

    def __init__(self, channels: int, classes: int, width: int) -> None:
        features = nn.Sequential(
            *(nn.Conv3d(channels, width, 3, padding=1), nn.BatchNorm3d(width), nn.ReLU(), nn.MaxPool3d(2)),
            *(nn.Conv3d(width, 2 * width, 3, padding=1), nn.BatchNorm3d(2 * width), nn.ReLU(), nn.MaxPool3d(2)),
            *(MeanOver(), nn.Linear(2 * width, WIDTH), nn.ReLU()),
        )
        super().__init__(features, nn.Linear(WIDTH, classes))

    @classmethod
    def of(cls, world: World, width: int = 16) -> Self:
        """For a world of volumes. Raises ConfigRefused for too small ones."""
        check_sides(world, LEAST, "voxels each way")
        check_option("width", width, width >= 1, "Give 1 or more")
        return cls(world.inputs[0], world.classes, width)
