"""How far models lie apart, tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor


def spread(models: Iterable[Mapping[str, Tensor]]) -> dict[str, float]:
    """Of each tensor, the mean over its entries of their standard deviation over models (with 1 / N, in float64).

    The models have the same names and are looked at one at a time (Welford, Technometrics 1962). Of one model it is 0.
    """
    n, mean, squares = 0, dict[str, Tensor](), dict[str, Tensor]()
    for model in models:
        n += 1
        for name, w in model.items():
            if name not in mean:
                mean[name], squares[name] = w.double(), torch.zeros_like(w, dtype=torch.float64)
            away = w.double() - mean[name]
            mean[name] = mean[name] + away / n
            squares[name] += away * (w.double() - mean[name])
    return {name: float((each / n).sqrt().mean()) for name, each in squares.items()}
