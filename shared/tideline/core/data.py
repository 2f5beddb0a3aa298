"""What a step may see of a site's data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


class View(StrEnum):
    """Which rows of a site a step sees. The owner's side splits before anything is masked."""

    TRAIN = "train"
    HELD_OUT = "held_out"


@dataclass(frozen=True)
class Data:
    """Rows of one site, in the shape that the run's world asks for.

    x       (n, *inputs) float32
    y       (n,) int64 in [0, classes), or None where the site has no labels or may not show them
    domain  (n,) int64, an index into `domains`
    domains the names of the domains that the site holds
    """

    x: Tensor
    y: Tensor | None
    domain: Tensor
    domains: tuple[str, ...]

    def __len__(self) -> int:
        return int(self.x.shape[0])

    @property
    def labelled(self) -> bool:
        """Whether these rows carry labels."""
        return self.y is not None
