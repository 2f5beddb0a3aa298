"""The gradient of a convolution's weight, of each row by itself: windows of the input times what is asked for their outputs."""

from __future__ import annotations

import torch
from torch import Size, Tensor
from torch.nn.functional import pad

HELD = 1 << 18  # numbers of windows at once: what the processor's cache holds
Two = tuple[int, int]


def windows_product(x: Tensor, g: Tensor, shape: Size, stride: Two, padding: Two, dilation: Two, groups: int = 1) -> Tensor:
    """(m, *shape) of x (m, n, c, h, w), g (m, n, o, p, q): sums over a row's n images; shape: (o, c, a, b), groups: 1.

    Always as many images are computed together: what is found of one does not depend on its place.
    """
    m, n, o, p, q = g.shape
    _, c, a, b = shape
    padded = pad(x.flatten(0, 1), (padding[1], padding[1], padding[0], padding[0]))
    image, channel, down, right = padded.stride()
    steps = (image, channel, dilation[0] * down, dilation[1] * right, stride[0] * down, stride[1] * right)
    windows = padded.as_strided((m * n, c, a, b, p, q), steps)
    found, lines = g.new_empty(m * n, o, c * a * b), g.reshape(m * n, o, p * q)
    together = min(m * n, max(1, HELD // (c * a * b * p * q)))
    for i in (*range(0, m * n - together, together), m * n - together):
        columns = windows[i : i + together].reshape(together, c * a * b, p * q)
        torch.bmm(lines[i : i + together], columns.transpose(1, 2), out=found[i : i + together])
    return found.view(m, n, *shape).sum(1) if n > 1 else found.view(m, *shape)
