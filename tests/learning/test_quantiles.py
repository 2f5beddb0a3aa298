"""A clip that follows a quantile: where it ends, what one row changes of all that is told, and what that costs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import strategies as st
from torch import Generator, Tensor, nn

from tests.learning.test_private_training import mlp, rows, trained
from tests.numerics.examples import for_all
from tideline.core.asked.private import Meter, Privacy
from tideline.core.errors import ConfigRefused
from tideline.core.rows import MemoryRows
from tideline.learning.fit import cross_entropy
from tideline.learning.private import fit_privately, row_gradients, sum_up
from tideline.learning.private.quantiles import LEAST, MOST, Quantile, quantile_of
from tideline.learning.private.summing import WHOLE, GridSum
from tideline.learning.private.units import Units
from tideline.numerics.privacy.streams import Stream

HALF = Quantile(0.5)
PRIVACY = Privacy(rows=20, noise=2.0, delta=1e-3)


class Slopes(nn.Module):
    """Of which the gradient of a row is the row, whatever was learnt."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(d))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.w


def slope(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return net(x).sum()


def norms(n: int) -> Tensor:
    """Rows (n, 3) of the norms 1, 2, ..., n."""
    x = torch.randn(n, 3, generator=Generator().manual_seed(3))
    return x / x.norm(dim=1, keepdim=True) * torch.arange(1, n + 1)[:, None]


def settled_clip(quantile: Quantile, clip: float, *, units: Units | None = None, n: int = 200, noise: float = 1.0) -> float:
    data, net = replace(rows(n, 3), x=MemoryRows(norms(n))), Slopes(3)
    by = torch.optim.SGD(net.parameters(), 0.0)
    given = {"rate": 0.5, "steps": 150, "noise": noise, "stream": Stream(bytes(32)), "quantile": quantile}
    return fit_privately(net, data, slope, by, clip=clip, rows=n if units is None else len(units), units=units, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(("share", "clip"), [(0.2, 2000.0), (0.9, 0.5)])
def test_the_clip_ends_at_the_quantile_of_the_norms(share: float, clip: float) -> None:
    """From below and from above: of norms 1 to 200 at about 200 times the share."""
    assert settled_clip(Quantile(share), clip) == pytest.approx(200 * share, rel=0.25)


def test_of_units_it_is_the_quantile_of_their_means() -> None:
    pairs = Units.of(torch.arange(200) // 2)
    median = float(norms(200).view(100, 2, 3).mean(1).norm(dim=1).median())
    assert settled_clip(HALF, 1.0, units=pairs) == pytest.approx(median, rel=0.2)


def test_it_says_no_more_of_rows_than_its_counts() -> None:
    """Nothing but the number of rows that are short moves it; the expected number divides, never how many were drawn."""

    def moved(clip: float, short: int, drawn: int) -> float:
        return HALF.moved(clip, short, drawn, 100.0, 1.0, Stream(bytes(32), "count"))

    assert moved(1.0, 3, 8) == moved(1.0, 4, 10) == moved(1.0, 10, 22) != moved(1.0, 3, 7)
    assert moved(LEAST, 10**6, 10**6) == LEAST and moved(MOST, 0, 10**6) == MOST


@for_all(20, st.integers(0, 8), st.floats(0.05, 5), st.booleans())
def test_one_row_moves_both_by_their_sensitivities_at_most(without: int, clip: float, by_unit: bool) -> None:
    """The sum by clip, and twice the short less all by 1: in whole numbers."""
    net, data = mlp().double(), rows(9, 4)
    data = replace(data, x=MemoryRows(data.x.batch(torch.arange(9)).double()))
    parameters, whose = dict(net.named_parameters()), torch.arange(9) // (2 if by_unit else 1)

    def told(kept: Tensor) -> tuple[Tensor, int]:
        assert data.y is not None
        less = replace(data, x=MemoryRows(data.x.batch(kept)), y=data.y[kept], domain=data.domain[kept])
        units = Units.of(whose[kept]) if by_unit else None
        chosen = torch.arange(len(kept) if units is None else len(units))
        found = GridSum(parameters, clip, "cpu")
        sum_up(found, row_gradients(net, cross_entropy), parameters, less, chosen, 4, units)
        return found.total, 2 * found.short - len(chosen)

    everything = told(torch.arange(9))
    rest = told((whose != whose[without]).nonzero().flatten())
    assert sum(v * v for v in (everything[0] - rest[0]).tolist()) <= WHOLE**2 and abs(everything[1] - rest[1]) == 1


@pytest.mark.parametrize("times", [1.01, 2.0, 5.0, 100.0])
@pytest.mark.parametrize("noise", [0.5, 1.0, 8.0])
def test_both_together_cost_what_the_noise_says(times: float, noise: float) -> None:
    """1 / z^2 = 1 / z_sum^2 + 1 / z_count^2, which is the noise of one vector of both (theorem 1 of the paper)."""
    made = Quantile(0.5, times)
    assert 1 / noise**2 == pytest.approx(1 / made.of_gradients(noise) ** 2 + 1 / (times * noise) ** 2)
    assert made.of_gradients(noise) > noise


def test_the_gradients_get_the_larger_noise_and_the_count_its_own() -> None:
    """Measured, of steps without rows; and the clip of each is drawn anew."""
    net, seen = Slopes(4000), list[float]()
    by = torch.optim.SGD(net.parameters(), 1.0)
    given = {"rate": 1e-9, "steps": 1, "clip": 2.0, "noise": 3.0, "rows": 10**9, "quantile": Quantile(0.5, 1.2)}
    data = replace(rows(2, 4), x=MemoryRows(torch.zeros(2, 4000)))
    for i in range(400):
        nn.init.zeros_(net.w)
        clip = fit_privately(net, data, slope, by, stream=Stream(bytes(32), f"{i}"), **given)  # type: ignore[arg-type]
        seen.append(-math.log(clip / 2.0) / 0.2 * 2)  # what was told of the count, over the one row that is expected
    assert float(net.w.detach().std()) == pytest.approx(2.0 * 3.0 / math.sqrt(1 - 1.2**-2), rel=0.05)
    inside = [abs(each) < 1 for each in seen]  # the share is held to 0 and 1
    assert 0.1 < sum(inside) / len(seen) < 0.35, "of a noise of 3.6 some 22 in 100 are"


def test_a_clip_that_stays_is_what_it_was() -> None:
    net = mlp()
    by = torch.optim.SGD(net.parameters(), 0.5)
    given = {"rate": 0.5, "steps": 3, "clip": 1.0, "noise": 1.0, "rows": 20, "stream": Stream(bytes(32), "test")}
    assert fit_privately(net, rows(20, 4), cross_entropy, by, **given) == 1.0  # type: ignore[arg-type]
    assert torch.equal(trained(mlp(), rows(20, 4)), torch.cat([p.detach().flatten() for p in net.parameters()]))


def test_settings_of_a_quantile() -> None:
    """None by default; its noise is 5 times that of both; one without the other means nothing."""
    assert quantile_of(PRIVACY) is None and not PRIVACY.follows
    assert quantile_of(replace(PRIVACY, quantile=0.5)) == HALF
    assert quantile_of(replace(PRIVACY, quantile=0.5, quantile_noise=2.0)) == Quantile(0.5, 2.0)
    with pytest.raises(ConfigRefused, match="no quantile that clip would follow") as refused:
        replace(PRIVACY, quantile_noise=2.0)
    assert refused.value.context["path"] == "privacy.quantile"
    assert Meter(replace(PRIVACY, clip=3.0), b"k" * 32).clip == 3.0
