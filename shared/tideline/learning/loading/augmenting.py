"""Images changed at random: mirrored, cropped, in other colours, by random operations. Pixels are numbers in [0, 1].

Crops are those of Szegedy et al., CVPR 2015, without their second tries; RandAugment is that of Cubuk et al., CVPR workshops
2020, with torchvision's operations and strengths. Torchvision changes the images. What is random is drawn here, from the
generator that is given: torchvision draws from one that all threads share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Generator, Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

from tideline.core.rows import Augment, Colour, Flip, RandAugment

RATIOS = 3 / 4, 4 / 3  # of a crop's width and height, for a square image
STRONGEST = 30  # of magnitudes
SHEAR, TURN, SHIFT, FACTOR, BITS = 0.3, 30.0, 150 / 331, 0.9, 4  # of the strongest operations
BILINEAR, NEAREST = InterpolationMode.BILINEAR, InterpolationMode.NEAREST


def augmented(x: Tensor, by: Augment, rng: Generator) -> Tensor:
    """Images x (b, c, h, w), each changed by draws of its own, like x, which stays as it was."""
    x = mirrored(x, by.flip, rng)
    if by.crop is not None:
        x = cropped(x, by.crop, rng)
    if by.colour is not None:
        x = recoloured(x, by.colour, rng)
    return x if by.randaugment is None else operated(x, by.randaugment, rng)


def uniform(rng: Generator, n: int, low: float, high: float) -> list[float]:
    """n numbers of [low, high)."""
    return (low + (high - low) * torch.rand(n, generator=rng, dtype=torch.float64)).tolist()


def whole(rng: Generator, n: int, most: int) -> list[int]:
    """n whole numbers below `most`."""
    return torch.randint(most, (n,), generator=rng).tolist()


def stacked(x: Tensor, change: Callable[[int, Tensor], Tensor]) -> Tensor:
    """Each image as `change(i, image)` has it."""
    return torch.stack([change(i, image) for i, image in enumerate(x)]) if len(x) else x


def mirrored(x: Tensor, flip: Flip, rng: Generator) -> Tensor:
    """Half of the images along each of the axes."""
    for axis, kinds in ((3, (Flip.HORIZONTAL, Flip.BOTH)), (2, (Flip.VERTICAL, Flip.BOTH))):
        if flip in kinds:
            taken = torch.rand(len(x), generator=rng) < 0.5
            x = torch.where(taken[:, None, None, None], x.flip(axis), x)
    return x


def cropped(x: Tensor, shares: tuple[float, float], rng: Generator) -> Tensor:
    """A rectangle of a random share of the area, of a random place, as large as the image was."""
    b, (height, width) = len(x), x.shape[2:]
    share, ratio = uniform(rng, b, *shares), uniform(rng, b, *map(math.log, RATIOS))
    down, right = uniform(rng, b, 0.0, 1.0), uniform(rng, b, 0.0, 1.0)

    def change(i: int, image: Tensor) -> Tensor:
        side = math.sqrt(share[i])
        h, w = inside(height * side * math.exp(-ratio[i] / 2), height), inside(width * side * math.exp(ratio[i] / 2), width)
        top, left = int(down[i] * (height - h + 1)), int(right[i] * (width - w + 1))
        made: Tensor = functional.resized_crop(image, top, left, h, w, [height, width], BILINEAR, antialias=True)
        return made

    return stacked(x, change)


def inside(size: float, most: int) -> int:
    return min(max(round(size), 1), most)


def recoloured(x: Tensor, by: Colour, rng: Generator) -> Tensor:
    """Brightness, contrast, saturation and hue, one after the other."""
    b, change = len(x), dict[str, list[float]]()
    for name in ("brightness", "contrast", "saturation"):
        if most := getattr(by, name):
            change[name] = uniform(rng, b, 1 - most, 1 + most)
    if by.hue:
        change["hue"] = uniform(rng, b, -by.hue, by.hue)

    def each(i: int, image: Tensor) -> Tensor:
        for name, drawn in change.items():
            image = getattr(functional, f"adjust_{name}")(image, drawn[i])
        return image

    return stacked(x, each)


def operated(x: Tensor, by: RandAugment, rng: Generator) -> Tensor:
    """So many operations for each image, each drawn anew, half of them in the other direction where they have one."""
    shape = (len(x), by.operations)
    many = math.prod(shape)
    operations, signs = whole(rng, many, len(OPERATIONS)), whole(rng, many, 2)
    names, strength = tuple(OPERATIONS), by.magnitude / STRONGEST

    def change(i: int, image: Tensor) -> Tensor:
        for at in range(i * by.operations, (i + 1) * by.operations):
            image = OPERATIONS[names[operations[at]]](image, strength, 1 if signs[at] else -1)
        return image

    return stacked(x, change)


def sheared(image: Tensor, x: float, y: float) -> Tensor:
    """x, y: tangents of the angles."""
    angles = [math.degrees(math.atan(x)), math.degrees(math.atan(y))]
    made: Tensor = functional.affine(image, 0.0, [0, 0], 1.0, angles, NEAREST, center=[0.0, 0.0])
    return made


def shifted(image: Tensor, x: float, y: float) -> Tensor:
    """x, y: shares of width and height."""
    height, width = image.shape[1:]
    made: Tensor = functional.affine(image, 0.0, [int(x * width), int(y * height)], 1.0, [0.0, 0.0], NEAREST)
    return made


def poster(image: Tensor, strength: float) -> Tensor:
    made: Tensor = functional.posterize(image, 8 - round(strength * BITS))
    return made


Operation = Callable[[Tensor, float, int], Tensor]  # image (c, h, w), strength in [0, 1], direction
OPERATIONS: Mapping[str, Operation] = {
    "identity": lambda image, s, way: image,
    "shear_x": lambda image, s, way: sheared(image, way * s * SHEAR, 0.0),
    "shear_y": lambda image, s, way: sheared(image, 0.0, way * s * SHEAR),
    "shift_x": lambda image, s, way: shifted(image, way * s * SHIFT, 0.0),
    "shift_y": lambda image, s, way: shifted(image, 0.0, way * s * SHIFT),
    "turn": lambda image, s, way: functional.rotate(image, way * s * TURN, NEAREST),
    "brightness": lambda image, s, way: functional.adjust_brightness(image, 1 + way * s * FACTOR),
    "saturation": lambda image, s, way: functional.adjust_saturation(image, 1 + way * s * FACTOR),
    "contrast": lambda image, s, way: functional.adjust_contrast(image, 1 + way * s * FACTOR),
    "sharpness": lambda image, s, way: functional.adjust_sharpness(image, 1 + way * s * FACTOR),
    "posterise": lambda image, s, way: poster(image, s),
    "solarise": lambda image, s, way: functional.solarize(image, 1 - s),
    "contrast_to_the_ends": lambda image, s, way: functional.autocontrast(image),
    "equalise": lambda image, s, way: functional.equalize(image),
}
