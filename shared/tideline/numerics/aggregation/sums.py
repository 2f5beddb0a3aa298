"""A weighted mean of models from sums over sites: w + sum_i a_i (w_i - w) / sum_i a_i, of which each site gives its two terms.

Terms are in units of which 1 is the most: a change of a weight in `clip`s, one of a counter (`num_batches_tracked`) in 2^16, and
a_i in [0, 1]. A counter's mean is rounded.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]
SHARE, COUNTER = "share", 2.0**16


def unit(w: Tensor, clip: float) -> float:
    return clip if w.is_floating_point() else COUNTER


def shapes_of(base: Weights) -> dict[str, tuple[int, ...]]:
    """Of the terms of a model like this one."""
    return {**{f"change/{name}": tuple(w.shape) for name, w in base.items()}, SHARE: ()}


def terms(made: Weights, base: Weights, share: float, clip: float) -> dict[str, Tensor]:
    """A site's terms: a_i (w_i - w) and a_i, in the weights' own precision. made: w_i, base: w, share: a_i."""
    changes = {f"change/{name}": difference(made[name], w).mul_(share / unit(w, clip)) for name, w in base.items()}
    return {**changes, SHARE: torch.tensor(share, dtype=torch.float64)}


def difference(made: Tensor, w: Tensor) -> Tensor:
    return made - w if w.dtype in (torch.float32, torch.float64) else made.double() - w.double()


def mean_from(total: Weights, base: Weights, clip: float) -> dict[str, Tensor]:
    """The mean, from sums of terms. Where the shares add up to nothing, w."""
    share = float(total[SHARE])
    if share <= 0:
        return dict(base)
    return {name: moved(w, total[f"change/{name}"], unit(w, clip) / share) for name, w in base.items()}


def moved(w: Tensor, change: Tensor, by: float) -> Tensor:
    """One tensor, changed; one at a time is in float64."""
    made = w.double().add_(change, alpha=by)
    return (made if w.is_floating_point() else made.round_()).to(w.dtype)
