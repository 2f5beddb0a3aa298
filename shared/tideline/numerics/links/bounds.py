"""Bounds on the error of a source's model at home and at a target, and what a transfer of a model costs in joules.

Wang, Hosseinalipour, Brinton, "Multi-Source to Multi-Target Decentralized Federated Domain Adaptation", IEEE TCCN 2024 (arXiv
2304.12422), equations 8-10, 17, 18, and sections II and V for the radio links. The bounds are vacuous as numbers; what counts
is how links differ.

Shapes: N devices; error eps (N,), of a device's model on its own items, unlabelled ones counted as wrong; counts (N,) of items;
d (N, N), the empirical H-divergences, symmetric; power (N,) in W; rates (N, N) in bit/s and energies (N, N) in J. In T and the
other matrices i sends and j receives; the diagonal is no link and says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Complexity = Literal["natural", "published", "early"]
COMPLEXITIES: tuple[Complexity, ...] = ("natural", "published", "early")
SCALES = (1.0, 100.0)
LARGEST_DIVERGENCE = 2.0
DELTA = 1e-3
POWER = (0.20, 0.32)  # W, 23 to 25 dBm
RATE = (63e6, 85e6)  # bit/s
MODEL = 1e9  # bit, as published; a small convolutional network has a thousandth


class Unfit(ValueError):
    """An input that no bound or link can be made of.

    field: which input. devices: the indices at fault, smallest first; of an entry of a matrix sender and receiver; or none.
    """

    def __init__(self, field: str, why: str, devices: Iterable[int] = ()) -> None:
        super().__init__(f"{field}: {why}")
        self.field, self.why, self.devices = field, why, tuple(int(i) for i in devices)


@dataclass(frozen=True, eq=False)
class Measured:
    """What devices tell of themselves, checked. Raises Unfit for what is out of range or does not fit together.

    error eps (N,) in [0, 1]; count (N,) of items; labelled (N,), how many of these have labels; d (N, N) in [0, 2], kept as the
    mean of both halves, and `uneven` says whether they differed.
    """

    error: Floats
    count: Floats
    labelled: Floats
    d: Floats
    uneven: bool = False

    def __post_init__(self) -> None:
        N = len(self.error)
        for name in ("error", "count", "labelled"):
            object.__setattr__(self, name, array(name, getattr(self, name), (N,)))
        d, uneven = symmetric(array("d", self.d, (N, N), diagonal=False))
        object.__setattr__(self, "d", d)
        object.__setattr__(self, "uneven", uneven)
        refuse("count", "a device has no items", self.count < 1)
        refuse("labelled", "more labelled items than items", self.labelled > self.count)
        refuse("error", "an error is in [0, 1]", self.error > 1)
        refuse("d", "a divergence is in [0, 2]; divide one in percent by 100", self.d > LARGEST_DIVERGENCE)
        if not bool((self.labelled > 0).any()):
            raise Unfit("labelled", "no device has labels, so that none can be a source", range(N))

    @property
    def pinned(self) -> Bools:
        """(N,): devices without any label, which can be targets only."""
        pinned: Bools = self.labelled == 0
        return pinned


def bounds(
    of: Measured, *, delta: float = DELTA, complexity: Complexity = "natural", divergence_scale: float = 1.0
) -> tuple[Floats, Floats]:
    """S (N,) of eq. 17 and T (N, N) of eq. 18 without its disagreement term. Raises Unfit for settings out of range."""
    rad, conf = rademacher(of.count, complexity), confidence(of.count, delta)
    return source_bound(of.error, rad, conf), link_bound(of.error, of.d, rad, conf, divergence_scale)


def confidence(count: npt.ArrayLike, delta: float = DELTA) -> Floats:
    """3 sqrt(ln(2 / delta) / (2 D)) of counts D. Raises Unfit for D < 1, or a failure probability delta outside (0, 1)."""
    if not 0 < delta < 1:
        raise Unfit("delta", f"{delta} is no failure probability; it is in (0, 1)")
    D = np.asarray(count, np.float64)
    refuse("count", "a device has no items", ~(D >= 1))
    conf: Floats = 3 * np.sqrt(math.log(2 / delta) / (2 * D))
    return conf


def massart(base: Literal["natural", "published"] = "natural") -> float:
    """Rad <= sqrt(2 ln 2) = 1.1774, Massart's lemma for a class that shatters its sample. published: 0.7759, with log10."""
    return math.sqrt(2 * (math.log(2) if base == "natural" else math.log10(2)))


def rademacher(count: npt.ArrayLike, complexity: Complexity = "natural") -> Floats:
    """Rad (N,) for counts D (N,): `massart`; early, sqrt(2 ln D / D), as first published. Raises Unfit for another name."""
    D = np.asarray(count, np.float64)
    if complexity == "early":
        early: Floats = np.sqrt(2 * np.log(D) / D)
        return early
    if complexity not in COMPLEXITIES:
        raise Unfit("complexity", f"{complexity!r} is none of {', '.join(COMPLEXITIES)}")
    return np.full(D.shape, massart(complexity))


def source_bound(error: Floats, rad: Floats, conf: Floats) -> Floats:
    """S_i = eps_i + 2 Rad_i + conf_i (eq. 17), (N,)."""
    return error + 2 * rad + conf


def link_bound(error: Floats, d: Floats, rad: Floats, conf: Floats, divergence_scale: float = 1.0) -> Floats:
    """T_ij = A_ij + B_ij (eq. 18), (N, N), without the disagreement term. Raises Unfit as `measured_part` does."""
    return measured_part(error, d, divergence_scale) + sampling_part(rad, conf)


def measured_part(error: Floats, d: Floats, divergence_scale: float = 1.0) -> Floats:
    """A_ij = eps_i + d_ij / 2 of eq. 10, (N, N): what differs between links. Lambda cannot be measured and is left out.

    divergence_scale: 1 as in the theory; 100 for half the divergence in percent, as in the published runs. Raises Unfit for
    another.
    """
    if divergence_scale not in SCALES:
        raise Unfit("divergence_scale", f"{divergence_scale} is neither 1 nor 100")
    return error[:, None] + divergence_scale * d / 2


def sampling_part(rad: Floats, conf: Floats) -> Floats:
    """B_ij = 4 Rad_i + 6 Rad_j + 2 conf_i + 2 conf_j of eq. 10, (N, N)."""
    return (4 * rad + 2 * conf)[:, None] + (6 * rad + 2 * conf)[None, :]


def symmetric(d: Floats) -> tuple[Floats, bool]:
    """The mean of d (N, N) and its transpose, of zero diagonal, and whether the two differed by more than rounding."""
    mean = (d + d.T) / 2
    np.fill_diagonal(mean, 0)
    off = ~np.eye(len(d), dtype=bool)
    return mean, not np.allclose(d[off], d.T[off], rtol=1e-9, atol=1e-12)


def array(name: str, given: npt.ArrayLike, shape: tuple[int, ...], *, diagonal: bool = True) -> Floats:
    """A finite float64 copy (shape,), not negative; diagonal=False: the diagonal is set to zero. Raises Unfit with the entry."""
    made = np.array(given, np.float64)
    if made.shape != shape:
        raise Unfit(name, f"its shape is {made.shape}; {shape} was expected")
    if not diagonal:
        np.fill_diagonal(made, 0)
    refuse(name, "not a finite number", ~np.isfinite(made))
    refuse(name, "a negative number", made < 0)
    return made


def refuse(name: str, why: str, at: npt.ArrayLike) -> None:
    """Raises Unfit with the first place where `at` is true: a device, or a sender and a receiver."""
    places = np.argwhere(np.atleast_1d(at))
    if len(places):
        place = [int(i) for i in places[0]]
        raise Unfit(name, f"{why} (device {place[0]})" if len(place) == 1 else f"{why} (from {place[0]} to {place[1]})", place)


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
