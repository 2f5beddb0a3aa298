"""A site's features brought to a common scale by what the site alone knows: its own mean, its own spread, the length of a row."""

from __future__ import annotations

import torch
from torch import Tensor

KINDS = ("none", "zscore", "rows", "both")
TINY = 1e-6  # of the largest feature: what changes less does not change


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
    """(x - shift) / stretch for x (n, d); with `rows` or `both` each row is then brought to the length sqrt(d).

    So every scaling but none gives features whose mean square is near 1, and one learning rate suits all of them.
    """
    moved = (x - shift) / stretch
    if kind in ("none", "zscore"):
        return moved
    length = moved.square().mean(-1, keepdim=True).sqrt()
    return moved / length.clamp_min(TINY)
