"""FedSR in runs that protect rows: the site's references train beside the network, and a row's gradient is clipped over both.

Draws of a representation come of torch's own generator, which private training seeds from the site's secret: numbers that
everybody can draw again, row by row in their order, would move with every row that comes or goes. Predictions take the same draws
for each row, for the same reason.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

from tideline.learning.fit import Loss
from tideline.nets.probabilistic import References

SEED = 2022  # public: of the draws that all rows share


class Beside(nn.Module):
    """A network and a site's references, as one module that trains."""

    def __init__(self, net: nn.Module, references: References) -> None:
        super().__init__()
        self.net = net
        r = references
        self.r_mu, self.r_s, self.C = (nn.Parameter(each.detach().clone()) for each in (r.r_mu, r.r_s, r.C[None]))

    @property
    def references(self) -> References:
        return References(self.r_mu, self.r_s, self.C[0])


def loss_beside(objective: Callable[[nn.Module, References, Tensor, Tensor, Tensor], Tensor]) -> Loss:
    """The loss of rows by both, with a draw for each: objective(net, references, x, y, eps)."""

    def loss(both: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        assert isinstance(both, Beside)
        eps = torch.randn(len(x), both.r_mu.shape[1], device=x.device)
        return objective(both.net, both.references, x, y, eps)

    return loss


def shared_draws(draws: int, like: Tensor) -> Tensor:
    """(draws, n, m) numbers, the same for each of n rows; like: (n, m)."""
    drawn = torch.randn(draws, 1, like.shape[1], generator=Generator().manual_seed(SEED))
    return drawn.to(like.device).expand(-1, len(like), -1)


PRIVATELY = (
    "a site's class references train beside the network, under the same clip and noise",
    "all rows of a scoring share the draws of a representation: with draws of its own each row would move those of the others",
)
