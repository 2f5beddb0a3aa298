"""Rows that are changed at random where a run trains on them, and which runs may ask for that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import Generator, Tensor

from tideline.core.algorithm import AnyAlgorithm
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.rows import Augment, Changed
from tideline.core.step import Data

COLOURED = (1, 3)  # channels of images whose colours can be changed
PATH = "augment"


@dataclass(frozen=True, eq=False)
class Augmented(Changed):
    """Images (c, h, w) that are changed where a batch is asked for with a generator; without one they are as they are."""

    by: Augment

    @property
    def near(self) -> bool:
        return False

    @property
    def draws(self) -> bool:
        return True

    def batch(self, indices: Tensor, rng: Generator | None = None) -> Tensor:
        x = self.raw.batch(indices, rng)
        if rng is None:
            return x
        from tideline.learning.loading.augmenting import augmented  # torchvision takes a second, which only such runs spend

        if self.by.colours:
            check_pixels(x, indices)
        return augmented(x, self.by, rng)

    def parts(self, size: int | None = None) -> Iterator[Tensor]:
        return self.raw.parts(size)

    def all(self, by: str = "this method") -> Tensor:
        return self.raw.all(by)


def augmented_data(data: Data, by: Augment) -> Data:
    """The same rows to train on, those without labels among them, changed at random where they are drawn."""
    return replace(data, x=Augmented(data.x, by), bare=None if data.bare is None else Augmented(data.bare, by))


def check_pixels(x: Tensor, indices: Tensor) -> None:
    """Raises DataRefused for images with a number outside [0, 1], whose colours cannot be changed."""
    outside = ((x < 0) | (x > 1)).flatten(1).any(1)
    if bool(outside.any()):
        row = int(indices[outside][0])
        what = f"Row {row} has numbers outside [0, 1], and augment.colour and augment.randaugment are for pixels within"
        raise DataRefused(what, "Give images as bytes or as numbers in [0, 1], or leave colour and randaugment out", row=row)


def check_augment(by: Augment, world: World, features: bool, method: AnyAlgorithm) -> None:
    """Raises ConfigRefused where it would change nothing, or cannot. features: whether rows are those of a frozen encoder."""
    if not by.on:
        return
    if not method.augments:
        what = f"augment is given, and sites of {method.name} train on no rows"
        raise ConfigRefused(what, "Leave augment out, or choose another method", path=PATH)
    if features:
        what = "augment is given, and the encoder is frozen: its features are computed once, of images as they are"
        raise ConfigRefused(what, "Leave augment out, or let more of the network train: world.trains", path=PATH)
    if len(world.inputs) != 3 or world.tokens:
        what = f"augment is for images, [channels, height, width], and rows are {list(world.inputs)}"
        raise ConfigRefused(what, "Leave augment out", path=PATH)
    channels = world.inputs[0]
    if by.colours and channels not in COLOURED:
        what = f"augment changes colours, which images of {channels} channels do not have"
        raise ConfigRefused(what, "Leave colour and randaugment out; flip and crop are for any images", path=PATH)
    if by.colour is not None and (by.colour.saturation or by.colour.hue) and channels != 3:
        what = "augment.colour changes saturation or hue, and images of one channel have neither"
        raise ConfigRefused(what, "Leave saturation and hue out", path=f"{PATH}.colour")
