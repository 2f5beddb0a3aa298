"""Training: passes over rows with an optimiser, and batch norm's statistics measured anew.

Li et al., "Revisiting Batch Normalization For Practical Domain Adaptation", 2016 (arXiv 1603.04779).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from typing import TypeVar

import torch
from torch import Generator, Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from tideline.core.asked.private import Charge, Meter, Privacy
from tideline.core.errors import PolicyRefused
from tideline.core.rows import Rows, as_rows
from tideline.core.step import Data, Site, no_tick
from tideline.learning.early_stopping import BestEpoch
from tideline.learning.loading.ahead import drawn, in_order, moved
from tideline.learning.private import fit_privately
from tideline.learning.private.quantiles import quantile_of
from tideline.learning.private.units import units_in
from tideline.learning.stepping import MeanLoss, Steps
from tideline.numerics.privacy.streams import Stream

C = TypeVar("C")
Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


def never() -> bool:
    """Training that ends by its epochs alone."""
    return False


def cross_entropy(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy of a batch: x (b, *inputs), y (b,) -> scalar."""
    return nn.functional.cross_entropy(net(x), y)


def batches(n: int, size: int, rng: Generator, least: int = 2) -> Iterator[Tensor]:
    """Row indices of one epoch in random order; the last batch may be smaller, but of many rows it has `least`.

    A batch of one has no variance, which batch norm needs: a lone last row joins the batch before it. size is least or more.
    """
    order = torch.randperm(n, generator=rng)
    cuts = list(range(size, n, size))
    if cuts and n - cuts[-1] < least:
        cuts.pop()
    yield from order.tensor_split(cuts)


@contextmanager
def uncounted(net: nn.Module) -> Iterator[None]:
    """Leave batch norm's counters as they are: nothing is computed from them, and they would show how many rows there were."""
    found = {name: b.clone() for name, b in net.named_buffers() if not b.is_floating_point()}
    yield
    for name, b in net.named_buffers():
        if name in found:
            b.copy_(found[name])


def fit(
    net: nn.Module,
    data: Data,
    loss: Loss,
    optimiser: Optimizer,
    *,
    epochs: int,
    batch: int,
    rng: Generator,
    device: str = "cpu",
    tick: Callable[[float], None] = no_tick,
    steps: int = 0,
    clip: float = 0.0,
    least: int = 2,
    over: Callable[[], bool] = never,
) -> float:
    """Train in place on labelled rows; gives the mean loss of the last epoch. Batch norm's counters stay (`uncounted`).

    How many mini-batches a step adds up, and in which precision, the run says (`stepping`).
    steps: if not 0, so many mini-batches in place of epochs, the last epoch cut short. clip: if not 0, the largest norm of a
    gradient, longer ones are shortened to it. least: rows under which a last batch joins the one before it.
    over: asked after each epoch, whether it is the last.
    """
    assert data.y is not None, "only labelled rows can be fitted"
    net.train()
    mean, done, descent = MeanLoss(), 0, Steps(net, loss, optimiser, clip)
    with uncounted(net):
        for epoch in count() if steps else range(epochs):
            mean, seen = MeanLoss(), 0
            with closing(drawn(data.x, batches(len(data), batch, rng, least), rng, device)) as fed:
                for rows, x in fed:
                    mean.add(descent.take(x, moved(data.y[rows], device)), len(rows))
                    seen, done = seen + len(rows), done + 1
                    tick(done / steps if steps else (epoch + seen / len(data)) / epochs)
                    if done == steps:
                        break
            descent.flush()
            if over() or done == steps > 0:
                break
    return mean.value


def fit_at(
    site: Site[C],
    net: nn.Module,
    loss: Loss,
    optimiser: Optimizer,
    *,
    epochs: int,
    batch: int,
    data: Data | None = None,
    steps: int = 0,
    clip: float = 0.0,
    least: int = 2,
    patience: int = 0,
) -> float:
    """`fit` at a site: on its training rows, or on `data`, with its generator, device and progress.

    patience: if not 0, so many epochs without a better loss on the site's validation rows end it, and the weights of the best
    epoch stay (`early_stopping`); of no effect where these rows have no labels. Raises PolicyRefused for rows that are fewer
    than the site's owner lets an answer be made of. In a run that protects rows they are drawn, clipped and noised as it says
    (`learning.private`), however large `batch` is, and their loss is not known.
    """
    rows, rng, device, tick = site.data if data is None else data, site.rng, site.device, site.tick
    check_least(len(rows), site.least_rows, counted=site.private is None)
    if site.private:
        return fit_privately_at(
            site, site.private, net, loss, optimiser, data=rows, steps=steps or site.private.asked.steps(epochs)
        )
    many = {"epochs": epochs, "batch": batch, "steps": steps, "least": least}
    held = site.validation
    stopping = None
    if patience and held and held.labelled:
        stopping = BestEpoch(net=net, loss=loss, optimiser=optimiser, data=held, patience=patience, device=device)
    over = stopping.over if stopping else never
    mean = fit(net, rows, loss, optimiser, **many, clip=clip, rng=rng, device=device, tick=tick, over=over)
    if stopping:
        stopping.restore()
    return mean


UNKNOWN = math.nan  # the loss of private training


def fit_privately_at(
    site: Site[C], meter: Meter, net: nn.Module, loss: Loss, optimiser: Optimizer, *, data: Data, steps: int
) -> float:
    """Charge for so many steps, and take them."""
    asked = meter.asked
    assert asked.noise is not None, "a run that has begun names its noise"
    key = meter.spend(Charge(asked.noise, asked.rate, steps), by_unit=True)
    meter.clip = fit_privately(
        net,
        data,
        loss,
        optimiser,
        rate=asked.rate,
        steps=steps,
        clip=meter.clip,
        noise=asked.noise,
        rows=asked.rows,
        stream=Stream(key),
        units=units_in(data, asked),
        quantile=quantile_of(asked),
        device=site.device,
        tick=meter.progress,
    )
    return UNKNOWN


def training_spends(epochs: int, privacy: Privacy) -> tuple[Charge, ...]:
    """What training for so many epochs costs; before a run's noise is known, none."""
    return (Charge(privacy.noise, privacy.rate, privacy.steps(epochs)),) if privacy.noise else ()


def check_least(rows: int, least: int, counted: bool = True) -> None:
    """Raises PolicyRefused where a step would train on too few of a site's rows, such as a share that a run's settings choose.

    counted: whether it says how many they are.
    """
    if rows < least:
        which = f"on {rows} of its rows, which are fewer than {least}" if counted else f"on fewer than {least} of its rows"
        what = f"The owner of this site does not allow it: to train {which}"
        todo = "Choose settings that leave more rows, or ask the site's owner: [least] rows in the site's policy file"
        raise PolicyRefused(what, todo, rules=["[least] rows"])


def normed(net: nn.Module) -> list[_BatchNorm]:
    """The layers of batch norm that keep running statistics."""
    return [each for each in net.modules() if isinstance(each, _BatchNorm) and each.track_running_stats]


def remeasure(
    net: nn.Module, x: Tensor | Rows, batch: int, rng: Generator, device: str = "cpu", tick: Callable[[float], None] = no_tick
) -> None:
    """Running means and variances become averages over one pass of the rows x, n of *inputs, in place; nothing else changes.

    Rows pass in random order, `batch` of them or somewhat more at once, in parts of equal size up to a row, so that each counts
    alike. While they do, batch norm works with the part's own statistics, and dropout is off. n and batch are at least 2.
    """
    layers, x = normed(net.eval()), as_rows(x)
    parts = torch.randperm(len(x), generator=rng).tensor_split(max(1, len(x) // batch))
    momenta = [layer.momentum for layer in layers]
    with uncounted(net), torch.no_grad():
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # a cumulative average
            layer.train()
        with closing(in_order(x, parts if layers else (), device)) as fed:
            for done, (_, part) in enumerate(fed, 1):
                net(part)
                tick(done / len(parts))
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    net.eval()
