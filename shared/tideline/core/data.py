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
    bare    (m, *inputs) float32: training rows without labels that lie beside the labelled ones (x, y); None where all rows
            are alike. Whoever does not ask for them goes on with the labelled rows alone
    """

    x: Tensor
    y: Tensor | None
    domain: Tensor
    domains: tuple[str, ...]
    bare: Tensor | None = None

    def __len__(self) -> int:
        return int(self.x.shape[0])

    @property
    def count(self) -> int:
        """All rows, n + m: those without labels beside labelled ones count too."""
        return len(self) + (0 if self.bare is None else int(self.bare.shape[0]))

    @property
    def labelled(self) -> bool:
        """Whether the rows of x carry labels."""
        return self.y is not None
