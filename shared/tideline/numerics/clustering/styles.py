"""The style of images: the low frequencies of their amplitude spectra; and images that take a style over and keep their content.

Shenaj et al., "Learning Across Domains and Devices: Style-Driven Source-Free Domain Adaptation in Clustered Federated Learning",
WACV 2023, after Yang, Soatto, "FDA: Fourier Domain Adaptation for Semantic Segmentation", CVPR 2020.

Shapes: n images x (n, c, h, w); a style is (c, s, s), s odd, its centre the zero frequency.
"""

from __future__ import annotations

import torch
from torch import Tensor

PLANE = (-2, -1)
PARTS = 40  # the window has one side of 2 k + 1 for k whole fortieths of the shorter side: a band of 5 %
ROWS = 16  # images whose spectra are in memory at once


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
