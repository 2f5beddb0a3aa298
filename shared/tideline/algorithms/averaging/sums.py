"""The family's mean from sums over sites, for runs in which nobody sees a single model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from tideline.core.asked.secure import SecureSums
from tideline.core.phase import Sums, Turn
from tideline.core.record import Weights
from tideline.core.step import Site
from tideline.numerics.aggregation.sums import SHARE, mean_from, shapes_of, terms

Share = Callable[[Any, Any, SecureSums], float]
MODEL = {"model": "model"}


def alike(reply: Any, config: Any, asked: SecureSums) -> float:
    """The share of each site in a plain mean."""
    return 1.0


def by_rows(reply: Any, config: Any, asked: SecureSums) -> float:
    """n_i, up to the rows that the run lets a site count as, in these; 1 where sites weigh alike."""
    return 1.0 if getattr(config, "weighting", "samples") == "uniform" else min(reply.samples, asked.rows) / asked.rows


def mean_of(share: Share, fields: Mapping[str, str] = MODEL) -> Sums[Any, Any]:
    """The mean of models in replies. fields: of a reply and its order -> of the state, which has what the order has there."""

    def of(reply: Any, order: Any, site: Site[Any], asked: SecureSums) -> Mapping[str, Tensor]:
        made, base = together(reply, fields), together(order, fields)
        return terms(made, base, share(reply, site.config, asked), asked.clip)

    def fold(total: Weights, state: Any, turn: Turn[Any], asked: SecureSums) -> Any:
        base = {f"{name}/{k}": w for name, at in fields.items() for k, w in getattr(state, at).items()}
        mean = mean_from(total, base, asked.clip)
        return replace(state, **{at: {k: mean[f"{name}/{k}"] for k in getattr(state, at)} for name, at in fields.items()})

    return Sums(shapes=lambda order, config, world: shapes_of(together(order, fields)), of=of, fold=fold, alike=(SHARE,))


def together(value: Any, fields: Mapping[str, str]) -> dict[str, Tensor]:
    """The models of some fields as one."""
    return {f"{name}/{k}": w for name in fields for k, w in getattr(value, name).items()}
