"""What noise is worth: the (epsilon, delta) of values that are released again and again with Gaussian noise; and such noise."""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Size, Tensor

KEY = 32  # bytes of a key


def noise(key: bytes, number: int, shape: Size) -> Tensor:
    """Standard normal numbers, float32, of the key's stream (SHAKE-256) of this number: the same for the same, and nothing to
    whoever lacks the key, however many streams it has seen. Raises ValueError for a key of other than 32 bytes.
    """
    if len(key) != KEY:
        raise ValueError(f"The key has {len(key)} bytes; {KEY} are needed")
    drawn = hashlib.shake_256(key + number.to_bytes(8, "big")).digest(8 * max(1, shape.numel()))
    stream = torch.frombuffer(bytearray(drawn), dtype=torch.int64)
    uniform = ((stream[: shape.numel()] >> 12).double() + 2.0**51 + 0.5) * 2.0**-52  # neither 0 nor 1, exactly
    normal: Tensor = torch.special.ndtri(uniform)
    return normal.float().view(shape)


def epsilon(releases: int, sigma: float, delta: float) -> float:
    """epsilon at delta of so many releases of a row of norm 1 at most, each with noise of deviation sigma in each number.

    One row is put in another's place, so that a release differs by 2 at most: Renyi divergence 2 alpha / sigma^2 of each, their
    sum 2 alpha T / sigma^2 (Mironov, CSF 2017), and epsilon = rho + 2 sqrt(rho log(1 / delta)), rho = 2 T / sigma^2, at the best
    alpha. Each row counts as if it were in each release. No noise: infinite. Raises ValueError for what is no number of releases,
    noise or probability.
    """
    if releases < 0 or sigma < 0 or not 0 < delta < 1:
        raise ValueError(f"{releases} releases, noise {sigma}, delta {delta}: give 0 or more, 0 or more, and between 0 and 1")
    if releases == 0:
        return 0.0
    rho = 2 * releases / sigma**2 if sigma > 0 else math.inf
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))
