"""A target's predictions where its classes are more or less frequent than at the sources.

Saerens, Latinne, Decaestecker, Neural Computation 14, 2002 (`tideline.numerics.labels.prior`). The target's shares are found from
predictions for its training rows: without a label, and without a held-out row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from torch import Tensor

from tideline.core.step import Site
from tideline.learning.scoring.kept_outputs import unlabelled
from tideline.learning.scoring.telling import on
from tideline.numerics.labels.prior import log_ratios, shifted_logits, shifted_prior
from tideline.numerics.labels.scores import probabilities

C = TypeVar("C")


def correction_at(site: Site[C], predict: Callable[[Site[C]], Tensor | None]) -> Tensor | None:
    """What a model's logits are corrected by at this site, (classes,) float32; None where they stay as they are.

    predict: the model's outputs (n, classes) of the rows in `site.data`, which come without labels; None where there are none.
    """
    shares = site.source_shares
    if shares is None or site.training is None or not len(site.training):
        return None
    seen = replace(on(site, unlabelled(site, site.training)), tick=lambda progress: site.tick(0.0))  # alive, and none is scored
    out = predict(seen)
    return None if out is None else correction(shares, out)


def correction(shares: Tensor, out: Tensor) -> Tensor:
    """The same from outputs (n, classes) and the sources' shares (classes,)."""
    return log_ratios(shares, shifted_prior(probabilities(out), shares)).float()


def corrected(out: Tensor, by: Tensor | None) -> Tensor:
    """Outputs (n, classes) as logits with the correction; the same where there is none."""
    return out if by is None else shifted_logits(out, by)
