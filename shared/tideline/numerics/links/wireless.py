"""What a transfer of a model costs: joules of radio links, drawn or measured.

Wang, Hosseinalipour, Brinton, "Multi-Source to Multi-Target Decentralized Federated Domain Adaptation", IEEE TCCN 2024
(arXiv 2304.12422), sections II and V.

Shapes: N devices; power (N,) in W; rates (N, N) in bit/s and energies (N, N) in J, from i to j; diagonals are not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tideline.numerics.links.bounds import Floats, Unfit, array, refuse

POWER = (0.20, 0.32)  # W, 23 to 25 dBm
RATE = (63e6, 85e6)  # bit/s
MODEL = 1e9  # bit, as published; a small convolutional network has a thousandth
CARRIER, BANDWIDTH = 2e9, 2e6  # Hz
NOISE = 4e-21  # W, as published: a density, taken for the whole band
LIGHT = 299_792_458.0  # m/s


def transfer_energy(power: npt.ArrayLike, rate: npt.ArrayLike, bits: float = MODEL) -> Floats:
    """K_ij = P_i M / R_ij (N, N) in J for a model of so many bits. A rate of 0 or inf: i cannot reach j, and K is inf.

    Raises Unfit for a power or size that is not positive and finite, and a rate that is negative or no number.
    """
    if not (math.isfinite(bits) and bits > 0):
        raise Unfit("bits", f"a model of {bits} bits has no size")
    P = array("power", power, (np.size(power),))
    refuse("power", "a device sends with no power", P == 0)
    given = np.array(rate, np.float64)
    R = array("rate", np.where(np.isposinf(given), 0, given), (len(P), len(P)), diagonal=False)
    K = np.where(R > 0, P[:, None] * bits / np.where(R > 0, R, 1), np.inf)
    np.fill_diagonal(K, 0)
    return K


def draw_power(N: int, rng: np.random.Generator) -> Floats:
    """(N,) W, uniform in [0.20, 0.32]."""
    return rng.uniform(*POWER, N)


def draw_rate(N: int, rng: np.random.Generator) -> Floats:
    """(N, N) bit/s, uniform in [63, 85] Mbit/s: the range that the published model of paths leads to."""
    return rng.uniform(*RATE, (N, N))


def shannon_rate(power: npt.ArrayLike, distance: npt.ArrayLike, excess_db: float = 3.0) -> Floats:
    """B log2(1 + P / (L noise)) in bit/s, with the loss L = (4 pi f d / c)^2 of free space over d metres and some decibels more.

    Air-to-ground channels have about 3 dB more in line of sight and 23 dB without (Mozaffari et al., IEEE Transactions on
    Wireless Communications 16, 2017); between 25 and 100 m that spans the published rates. Raises Unfit for a distance or power
    that is not positive.
    """
    P, d = np.asarray(power, np.float64), np.asarray(distance, np.float64)
    refuse("power", "not a positive number", ~(P > 0))
    refuse("distance", "not a positive number", ~(d > 0))
    loss = (4 * math.pi * CARRIER * d / LIGHT) ** 2 * 10 ** (excess_db / 10)
    rate: Floats = BANDWIDTH * np.log2(1 + P / (loss * NOISE))
    return rate


def saved(links: Sequence[int]) -> tuple[int, ...]:
    """Transmissions saved at each weight of energy, from the links at each, the smallest weight first."""
    return tuple(links[0] - each for each in links)
