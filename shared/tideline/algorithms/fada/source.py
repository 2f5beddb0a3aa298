"""A source's side: class loss, eq. 5's half, disentangling, reconstruction; what comes of it goes out sealed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.optim import SGD, Optimizer

from tideline import nets
from tideline.algorithms.fada.client import IMPROVE, Due, averaged, loaded, met, minibatches, moved, opened, shifted, together
from tideline.algorithms.fada.messages import Common, Contribution, Improve, Improved, Mine
from tideline.algorithms.fada.settings import GRAD, Either, aligns, as_fada, disentangles
from tideline.core.handle import Handle
from tideline.core.record import Weights
from tideline.core.run import ClientId
from tideline.core.step import Outcome, Site, step
from tideline.learning.fit import fit_at, uncounted
from tideline.learning.local_training import Criterion, criterion, loss_at, optimiser, shorten
from tideline.nets.disentangling import Beside, logits, parted
from tideline.nets.disentangling import beside as networks_beside
from tideline.nets.layers import trained
from tideline.numerics.alignment.adversarial import capped_information, confusion, finite, mutual_information, taken_for_source

STEEPEST = 1.0  # norm that M's gradient is shortened to: its score has no bound (Belghazi et al., 2018)


@step(metrics=("loss",))
def begin(order: Common, memory: Mine, site: Site[Either]) -> Outcome[Improved, Mine]:
    """A round of averaging among the sources alone: weights that are to be added up later must not have drifted apart."""
    if len(site.data) < 2:
        return Outcome(Improved(None), replace(memory, model=dict(order.start)))
    c, model = site.config, met(order, memory, site, site.round - 1)
    net = nets.loaded(site.world, model, site.device)
    by = optimiser(c, net.parameters(), c.rate, c.momentum, c.weight_decay)
    loss = fit_at(site, net, loss_at(site), by, epochs=c.source_epochs, batch=c.batch, clip=c.clip_gradient, patience=c.patience)
    after = nets.weights_of(net)
    if not finite(*after.values()):
        return Outcome(Improved(None), memory)
    return Outcome(Improved(sealed(trained(after), {}, order.to)), replace(memory, model=after), {"loss": loss})


def sealed(theta: Weights, start: Weights, to: tuple[str, ...]) -> Handle[Contribution]:
    return Handle.of(Contribution(theta, start), map(ClientId, to))


@dataclass(frozen=True)
class Networks:
    """A source's networks while it trains, and the identifiers of its pairs, which are held. beside: None in parts I and II."""

    net: nn.Module
    beside: Beside | None
    di: tuple[Tensor, ...]
    weight: float
    by: Optimizer
    ascent: SGD | None
    labels: Criterion = functional.cross_entropy

    @classmethod
    def of(cls, order: Improve, memory: Mine, site: Site[Either]) -> Networks:
        """Those in the site's memory, and an optimiser: one for all but M, which ascends."""
        c, net, own = site.config, loaded(memory, site), None
        if disentangles(c):
            own = nets.loaded(site.world, memory.beside, site.device, networks_beside)
        others = [*own.D.parameters(), *own.CI.parameters(), *own.R.parameters()] if isinstance(own, Beside) else []
        rate = c.rate_of(site.round)
        by = optimiser(c, [*net.parameters(), *others], rate, c.momentum, c.weight_decay)
        ascent = SGD(own.M.parameters(), lr=rate, maximize=True) if isinstance(own, Beside) else None
        di = tuple(each.theta.to(site.device) for _, each in sorted(order.di.items()))
        labels = criterion(c, site.data.y, site.world.classes, site.device)
        return cls(net, own if isinstance(own, Beside) else None, di, c.weight(site.round), by, ascent, labels)


def improve_metrics(c: Either) -> tuple[str, ...]:
    """Which losses a source reports."""
    beside = ("disentangling", "confusion", "information", "reconstruction") if disentangles(c) else ()
    return ("loss", *(("alignment",) if aligns(c) else ()), *beside)


@step(metrics=("loss", "alignment", "disentangling", "confusion", "information", "reconstruction"))
def improve(order: Improve, memory: Mine, site: Site[Either]) -> Outcome[Improved, Mine]:
    """Steps 1 to 4 on each mini-batch, and the contribution. Nothing where a number is not finite: then all stays as it was."""
    c = site.config
    if len(site.data) < 2:
        return Outcome(Improved(None), memory)
    before = started(order, memory, site)
    own = Networks.of(order, replace(memory, model={**memory.model, **before, **shifted(before, memory.drift, 1.0)}), site)
    losses, gradient = descended(own, site)
    after = nets.weights_of(own.net)
    beside = nets.weights_of(own.beside) if own.beside else {}
    given = along(gradient, memory, c.rate_of(site.round)) if c.mode == GRAD else moved(c.mode, before, trained(after))
    if not finite(*after.values(), *beside.values(), *given.values()):
        return Outcome(Improved(None), memory)
    memory = replace(memory, model=after, common=before if c.meet else {}, drift={}, beside=beside)
    return Outcome(Improved(sealed(given, before if order.show else {}, order.to)), memory, losses)


def started(order: Improve, memory: Mine, site: Site[Either]) -> dict[str, Tensor]:
    """Where the round begins: what sources came to together, where they meet; else what this one came to, less what it pulled."""
    theta = trained(memory.model)
    base, due = memory.common or theta, Due(IMPROVE, site.round - 1, theta)
    if not order.models:
        return dict(base)
    if order.guide in order.models:
        given = opened(order.models[order.guide], order.guide, due, site)
        base = given.start if given and given.start else base
    return together(site.config.mode, base, order.models, due, site)


def along(gradient: Weights, memory: Mine, rate: float) -> dict[str, Tensor]:
    """The gradient of the local step, and of those that the coordinator gave since the round began: so far G has gone by them."""
    return {**gradient, **shifted(gradient, memory.drift, -1 / rate)} if memory.drift and rate else dict(gradient)


def descended(own: Networks, site: Site[Either]) -> tuple[dict[str, float], dict[str, Tensor]]:
    """The round's mini-batches, in place: mean losses, and in mode grad what was stepped along, weight decay with it."""
    data, losses, gradient = site.data, [], {}
    assert data.y is not None
    own.net.train()
    if own.beside:
        own.beside.train()
    with uncounted(own.net):
        for rows, x in minibatches(site):
            losses.append(backward(own, x, data.y[rows].to(site.device), site))
            shorten(own.net.parameters(), site.config)
            if site.config.mode == GRAD:
                moving, decay = own.net.named_parameters(), site.config.weight_decay
                gradient = {n: ((0 if p.grad is None else p.grad) + decay * p).detach().cpu() for n, p in moving}
            own.by.step()
    return averaged(losses), gradient


def backward(own: Networks, x: Tensor, y: Tensor, site: Site[Either]) -> dict[str, float]:
    """Gradients of all losses of one mini-batch, each to the networks that it is to move alone; returned as numbers.

    The class loss of step 1 is the first term of eq. 6 too: it counts once.
    """
    body, head = parted(own.net)
    f_conv = body(x)
    f_di = head(f_conv)
    loss = own.labels(own.net.get_submodule("classifier")(f_di), y)
    aligned = own.weight * sum((taken_for_source(logits(di, f_di)) for di in own.di), f_di.new_zeros(())) / max(len(own.di), 1)
    losses: dict[str, Tensor | float] = {"loss": loss, "alignment": aligned} if own.di else {"loss": loss}
    own.by.zero_grad(set_to_none=True)
    if own.beside is None:
        (loss + aligned).backward()  # type: ignore[no-untyped-call]
    else:
        losses |= disentangled(own, own.beside, (f_conv, f_di), y, loss + aligned, site)
    return {name: float(value.detach() if isinstance(value, Tensor) else value) for name, value in losses.items()}


def disentangled(
    own: Networks, beside: Beside, f: tuple[Tensor, Tensor], y: Tensor, loss: Tensor, site: Site[Either]
) -> Mapping[str, Tensor | float]:
    """Steps 3 and 4: eq. 6 to G, D, C and CI, eq. 7 to G and D, eq. 8 up to M and down to D, the reconstruction to D and R."""
    c, (f_conv, f_di) = as_fada(site.config), f
    f_ds = beside.D(f_conv)
    named = own.labels(beside.CI(f_ds), y)
    confused = confusion(held(beside.CI, f_ds))
    (loss + c.lambda_ent * (named + confused)).backward(retain_graph=True)  # type: ignore[no-untyped-call]
    p, shuffled = f_di.detach(), torch.randperm(len(y), generator=site.rng)
    assert own.ascent is not None
    ascended(beside.M, own.ascent, p, f_ds.detach(), shuffled)
    bound = mutual_information(beside.M(p, f_ds), beside.M(p, f_ds[shuffled]))
    undone = functional.mse_loss(beside.R(torch.cat([p, f_ds], 1)), f_conv.detach())
    (c.lambda_mi * bound + c.lambda_rec * undone).backward(inputs=[*beside.D.parameters(), *beside.R.parameters()])  # type: ignore[no-untyped-call]
    information = capped_information(float(bound.detach()), len(y))
    return {"disentangling": named, "confusion": confused, "information": information, "reconstruction": undone}


def held(module: nn.Module, x: Tensor) -> Tensor:
    """What a module makes of x, where the loss is to move x alone."""
    made: Tensor = functional_call(module, {name: p.detach() for name, p in module.named_parameters()}, (x,))
    return made


def ascended(M: nn.Module, by: SGD, p: Tensor, q: Tensor, shuffled: Tensor) -> None:
    """A step of M towards the least upper bound of eq. 8, in place."""
    by.zero_grad(set_to_none=True)
    mutual_information(M(p, q), M(p, q[shuffled])).backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(M.parameters(), STEEPEST)
    by.step()
