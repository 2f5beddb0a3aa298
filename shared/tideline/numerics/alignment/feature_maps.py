"""Features on a common scale, clouds of them compared by the moments of random features, and images in another site's style.

Rahimi, Recht, "Random Features for Large-Scale Kernel Machines", NeurIPS 2007; maximum mean discrepancy with a sum of Gaussian
kernels as in Long et al., "Learning Transferable Features with Deep Adaptation Networks", ICML 2015. Two clouds are compared by
two vectors of a fixed length, without either's points. A site scales its features by its own mean and spread alone.

A style is the low frequencies of images' amplitude spectra: Shenaj et al., "Learning Across Domains and Devices: Style-Driven
Source-Free Domain Adaptation in Clustered Federated Learning", WACV 2023, after Yang, Soatto, "FDA: Fourier Domain Adaptation
for Semantic Segmentation", CVPR 2020.

Shapes: n points of d features, D random features; n images x (n, c, h, w); a style is (c, s, s), s odd, its centre the zero
frequency.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

BANDWIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
LEAST = 1e-12  # of a squared distance that kernels are as wide as
KINDS = ("none", "zscore", "rows", "both")
TINY = 1e-6  # of the largest feature: what changes less does not change
PLANE = (-2, -1)
PARTS = 40  # the window has one side of 2 k + 1 for k whole fortieths of the shorter side: a band of 5 %
ROWS = 16  # images whose spectra are in memory at once


@dataclass(frozen=True)
class Waves:
    """psi: frequencies Omega (D, d) and phases (D,)."""

    omega: Tensor
    phase: Tensor

    def to(self, device: str) -> Waves:
        return Waves(self.omega.to(device), self.phase.to(device))


def waves(D: int, d: int, s2: float, rng: Generator) -> Waves:
    """Omega_b ~ N(0, 1 / (b s2)), D / 5 rows for each b; phases ~ U(0, 2 pi). Raises ValueError unless 5 divides D and s2 > 0."""
    if D < 1 or D % len(BANDWIDTHS) or not s2 > 0:
        raise ValueError(f"There are {D} random features of width {s2}; a multiple of {len(BANDWIDTHS)} and above 0 are needed")
    scale = torch.tensor([1 / math.sqrt(b * s2) for b in BANDWIDTHS]).repeat_interleave(D // len(BANDWIDTHS))
    omega = torch.randn(D, d, generator=rng) * scale[:, None]
    return Waves(omega, 2 * math.pi * torch.rand(D, generator=rng))


def psi(by: Waves, f: Tensor) -> Tensor:
    """sqrt(2 / D) cos(Omega f + phase): (n, d) -> (n, D). psi(f) . psi(f') is near mean_b exp(-|f - f'|^2 / (2 b s2))."""
    D = len(by.phase)
    return math.sqrt(2 / D) * torch.cos(f @ by.omega.mT + by.phase)


def moment(by: Waves, f: Tensor) -> Tensor:
    """The mean of psi over points f (n, d): (D,)."""
    return psi(by, f).mean(0)


def typical(f: Tensor) -> float:
    """s2: the median squared distance of pairs of points f (n, d), LEAST at least; 1 where there is no pair, or all are equal."""
    if len(f) < 2:
        return 1.0
    found = float(torch.pdist(f.double()).square().median())
    return max(found, LEAST) if found > 0 else 1.0


def ramp(p: float) -> float:
    """2 / (1 + exp(-10 p)) - 1: from 0 at p = 0 to nearly 1 at p = 1, p the share of rounds done."""
    return 2 / (1 + math.exp(-10 * p)) - 1


def measured(x: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """Shift (d,) and stretch (d,) of the rows x (n, d).

    none: nothing. rows: the mean, and one spread for all features. zscore, both: the mean, and each feature's own spread, but a
    feature that does not change here keeps its unit. Raises ValueError for an unknown kind.
    """
    if kind not in KINDS:
        raise ValueError(f"the scaling is {kind!r}; it is one of {', '.join(KINDS)}")
    zero, one = torch.zeros_like(x[0]), torch.ones_like(x[0])
    if kind == "none":
        return zero, one
    shift = x.mean(0)
    spread = (x - shift).square().mean(0).sqrt()
    if kind == "rows":
        spread = spread.square().mean().sqrt().expand_as(zero)
    return shift, torch.where(spread > TINY * x.abs().amax(), spread, one)


def scaled(x: Tensor, shift: Tensor, stretch: Tensor, kind: str) -> Tensor:
    """(x - shift) / stretch for x (n, d); with `rows` or `both` each row, too, gets a mean square of 1, its length sqrt(d)."""
    moved = (x - shift) / stretch
    if kind in ("none", "zscore"):
        return moved
    length = moved.square().mean(-1, keepdim=True).sqrt()
    return moved / length.clamp_min(TINY)


def window_side(height: int, width: int) -> int:
    """s = 2 floor(0.05 min(h, w) / 2) + 1: 1 below 40 pixels, 11 for 224. Whole numbers, so that no rounding decides."""
    return 2 * (min(height, width) // PARTS) + 1


def window(spectra: Tensor) -> Tensor:
    """The central window (..., s, s) of centred spectra (..., h, w), as a view."""
    h, w = spectra.shape[-2:]
    s = window_side(h, w)
    return spectra[..., h // 2 - s // 2 : h // 2 + s // 2 + 1, w // 2 - s // 2 : w // 2 + s // 2 + 1]


def centred(x: Tensor) -> Tensor:
    """Spectra (n, c, h, w), complex, the zero frequency at (h // 2, w // 2)."""
    spectra: Tensor = torch.fft.fftshift(torch.fft.fft2(x), dim=PLANE)
    return spectra


def amplitudes(x: Tensor) -> Tensor:
    """The style of each image: (n, c, s, s), not negative."""
    return window(centred(x)).abs()


def mean_style(x: Tensor) -> Tensor:
    """The mean over images of their styles: (c, s, s) float64. Raises ValueError for no image, or what is no batch of images."""
    if x.ndim != 4 or not x.numel():
        raise ValueError(f"Images are of shape {tuple(x.shape)}; at least one of channels, height, width was expected")
    return torch.stack([amplitudes(rows.double()).sum(0) for rows in torch.split(x, ROWS)]).sum(0) / len(x)


def transfer(x: Tensor, styles: Tensor, low: Tensor | float, high: Tensor | float) -> Tensor:
    """Images with the styles (n, c, s, s) in place of their own; their phases and their other frequencies stay. Like x.

    low, high: the valid range, numbers or (c, 1, 1); what lies outside it after the change is clipped to it. An image with its
    own style is itself but for rounding. Raises ValueError unless there is a style of the right size for each image.
    """
    spectra = centred(x)
    own = window(spectra)
    if own.shape != styles.shape:
        raise ValueError(f"Styles are of shape {tuple(styles.shape)}; these images want {tuple(own.shape)}")
    own.copy_(torch.polar(styles.to(own.real), own.angle()))
    made: Tensor = torch.fft.ifft2(torch.fft.ifftshift(spectra, dim=PLANE)).real
    return made.clamp(torch.as_tensor(low).to(made), torch.as_tensor(high).to(made))
