"""Private training: DP-SGD (Abadi et al. 2016, arXiv 1607.00133) whose sums are whole numbers.

What is proven. A row's gradient is scaled, rounded to a grid of clip / WHOLE, and counted only where its norm, taken of the
rounded numbers, is WHOLE or less with the summation's own error added. So one row more or less moves the sum by at most clip in
L2, whatever the arithmetic before it did. Sums of whole numbers below 2^53 are exact, so their order changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from math import ceil, isfinite, sqrt

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.optim import Optimizer

from tideline.core.errors import ConfigRefused
from tideline.core.step import Data, no_tick
from tideline.learning.loading.ahead import in_order, moved
from tideline.learning.private.gradients import Parameters, RowGradients, row_gradients
from tideline.learning.private.quantiles import Quantile
from tideline.learning.private.summing import WHOLE, GridSum
from tideline.learning.private.units import Units, sum_units_up
from tideline.learning.stepping import Loss
from tideline.numerics.privacy.discrete import discrete_gaussian
from tideline.numerics.privacy.streams import Stream

MEMORY, OF_UNITS = 32 << 20, 8 << 20  # bytes of the gradients of rows that are held at once; units hold them several times
MOST_AT_ONCE = 256
FREED = 31 << 20  # bytes: once so many were freed, glibc keeps what a step frees for the next one, which finds it faster


def check_private(net: nn.Module) -> None:
    """Raises ConfigRefused for a network in which a row's output depends on the rows beside it, or which measures its rows.

    net: in training mode. Frozen batch norm, which stays in evaluation mode there, does neither.
    """
    for name, layer in net.named_modules():
        if isinstance(layer, _BatchNorm) and (layer.training or layer.running_mean is None):
            what = (
                f"The network's layer {name or 'itself'} is batch norm, which mixes rows: their gradients cannot be clipped apart"
            )
            todo = (
                "Write norm: group among the network's options (docs/networks.md, Group norm), freeze it, or choose another one"
            )
            raise ConfigRefused(what, todo, path="model")
        if isinstance(layer, _InstanceNorm) and layer.track_running_stats:
            what = f"The network's layer {name or 'itself'} records statistics of its rows, which no noise covers"
            raise ConfigRefused(what, "Build it with track_running_stats=False", path="model")


def fit_privately(
    net: nn.Module,
    data: Data,
    loss: Loss,
    optimiser: Optimizer,
    *,
    rate: float,
    steps: int,
    clip: float,
    noise: float,
    rows: int,
    stream: Stream,
    units: Units | None = None,
    quantile: Quantile | None = None,
    device: str = "cpu",
    tick: Callable[[float], None] = no_tick,
) -> float:
    """Train in place by `steps` steps, each on a sample in which every row is with probability `rate`; gives the clip at the end.

    units: whose the rows are. Then units are drawn in the place of rows, with all that they have, and what is said of a row's
    gradient here is said of the mean of a unit's. quantile: what the clip follows from step to step, out of the same noise.

    clip: the largest norm of a row's gradient over all parameters that train. noise: in units of clip. rows: a public number,
    by which, times rate, sums are divided; neither the rows that are there nor those drawn. A row's gradient that is not finite
    counts as zero. What is returned or raised says nothing of the rows. The same stream and data give the same bytes.
    """
    assert data.y is not None, "only labelled rows can be fitted"
    check_numbers(rate, clip, noise, rows)
    check_private(net.train())
    trained = {name: p for name, p in net.named_parameters() if p.requires_grad}
    torch.empty(FREED, dtype=torch.uint8)
    gradients, total = row_gradients(net, loss), GridSum(trained, clip, device)
    size = at_once(trained, rate * rows, MEMORY if units is None else OF_UNITS)
    of_gradients = quantile.of_gradients(noise) if quantile else noise
    for step in range(steps):
        chosen = sampled(len(data if units is None else units), rate, stream.child("rows", step))
        with seeded(stream.child("loss", step), device):
            sum_up(total, gradients, trained, data, chosen, size, units)
        noised = total.total + noise_like(total.total, of_gradients, stream.child("noise", step))
        put_gradients(trained, noised, total.clip / WHOLE / (rate * rows))
        if quantile:
            own = stream.child("count", step)
            total.clip = quantile.moved(total.clip, total.short, len(chosen), rate * rows, noise, own)
        optimiser.step()
        tick((step + 1) / steps)
    optimiser.zero_grad(set_to_none=True)
    return total.clip


def check_numbers(rate: float, clip: float, noise: float, rows: int) -> None:
    """Raises ConfigRefused for settings with which nothing is private, or nothing is trained."""
    if not 0 < rate <= 1:
        raise ConfigRefused(f"The rate of sampling is {rate}", "Give one above 0, up to 1", path="rate")
    for name, value in {"clip": clip, "noise": noise, "rows": rows}.items():
        if not (isfinite(value) and value > 0):
            raise ConfigRefused(f"{name} of private training is {value}", "Give a finite number above 0", path=name)


def sampled(n: int, rate: float, stream: Stream) -> Tensor:
    """The numbers of the rows of one step: each of n with probability `rate`, by itself."""
    return torch.from_numpy((stream.uniforms(n) < rate).nonzero()[0])


def at_once(trained: Parameters, expected: float, memory: int) -> int:
    """How many rows' gradients are computed together: from public numbers alone, so that it says nothing of the rows.

    As many as make parts of one size of nearly every sample, for the last part is filled up.
    """
    row = sum(p.numel() * p.element_size() for p in trained.values())
    most = max(1, min(MOST_AT_ONCE, memory // max(1, row)))
    likely = ceil(expected + 2 * sqrt(expected))
    return ceil(likely / ceil(likely / most))


@contextmanager
def seeded(stream: Stream, device: str) -> Iterator[None]:
    """Torch's generators, which dropout draws from, begin at the stream's place; afterwards they are as before."""
    where = torch.device(device)
    devices = [where.index if where.index is not None else torch.cuda.current_device()] if where.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        seed = int(stream.words(1)[0] >> 1)
        if where.type == "cpu":
            torch.default_generator.manual_seed(seed)  # the other devices' generators would take longer than a step's noise
        else:
            torch.manual_seed(seed)
        yield


def sum_up(
    total: GridSum,
    gradients: RowGradients,
    trained: Parameters,
    data: Data,
    chosen: Tensor,
    size: int,
    units: Units | None = None,
) -> None:
    """Sum the clipped gradients of the chosen rows, or units, those of `size` rows at once, of which the last are filled up."""
    assert data.y is not None
    parameters, device = {name: p.detach() for name, p in trained.items()}, str(total.total.device)
    if units is not None:
        sum_units_up(total, gradients, parameters, data, units, chosen, size)
        return
    total.clear()
    with closing(in_order(data.x, torch.split(chosen, size) if len(chosen) else (), device)) as fed:
        for rows, x in fed:
            full = torch.arange(size, device=x.device).clamp(max=len(rows) - 1)
            total.add(gradients(parameters, x[full], moved(data.y[rows], device)[full]), len(rows))


def noise_like(total: Tensor, noise: float, stream: Stream) -> Tensor:
    """Discrete Gaussian noise of `noise` clips for a sum on the grid."""
    return torch.from_numpy(discrete_gaussian(noise * WHOLE, total.numel(), stream)).to(total.device)


def put_gradients(trained: Parameters, noised: Tensor, step: float) -> None:
    """The noised sum, times `step`, as the gradients that the optimiser reads."""
    pieces = torch.split(noised.double() * step, [p.numel() for p in trained.values()])
    for p, piece in zip(trained.values(), pieces, strict=True):
        p.grad = piece.view_as(p).to(p.dtype, copy=True)
