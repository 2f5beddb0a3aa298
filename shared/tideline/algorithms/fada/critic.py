"""Variant B, only where owners let features out: features of mini-batches go to the coordinator, which gives gradients back.

Rows are clipped to norm c and get noise of sigma c in each number, of a key that the site draws for itself: what the run's seed
gives, whoever knows that could take off. The same mini-batch passes through G again when its gradient comes, under the same
dropout.
"""

from __future__ import annotations

import secrets
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.optim import SGD

from tideline import nets
from tideline.algorithms.fada.client import drawn, loaded, unmoved
from tideline.algorithms.fada.messages import Ask, Exposed, Mine, Pull
from tideline.algorithms.fada.settings import Either, forgets
from tideline.algorithms.fada.transfer import extractor, trained
from tideline.core.errors import StepFailed
from tideline.core.record import Nothing, Weights
from tideline.core.run import Role
from tideline.core.step import Outcome, Site, step
from tideline.learning.fit import uncounted
from tideline.numerics.alignment.adversarial import KEY, clipped, epsilon, noise

SEEDS = 2**62


def features(net: nn.Module, rows: Tensor, seed: int, site: Site[Either]) -> Tensor:
    """Clipped features of a mini-batch in training mode, by a dropout of its own."""
    net.train()
    torch.manual_seed(seed)
    f: Tensor = net.get_submodule("features")(site.data.x[rows].to(site.device))
    return clipped(f, site.config.clip)


@step(metrics=("epsilon",))
def expose(order: Ask, memory: Mine, site: Site[Either]) -> Outcome[Exposed, Mine]:
    """Features of a mini-batch, clipped and noised; and what noise has been worth so far."""
    c, net = site.config, loaded(memory, site)
    rows = drawn(site, c.batch)
    seed = int(torch.randint(SEEDS, (), generator=site.rng))
    with torch.no_grad(), unmoved(net):
        f = features(net, rows, seed, site).cpu()
    memory = replace(memory, drawn=rows, seed=seed)
    if not c.noise:
        return Outcome(Exposed(f), memory)
    key = bytes(memory.key.tolist()) or secrets.token_bytes(KEY)
    f = f + c.noise * c.clip * noise(key, site.round, f.shape)
    memory = replace(memory, key=torch.tensor(list(key), dtype=torch.uint8))
    return Outcome(Exposed(f), memory, {"epsilon": epsilon(site.round, c.noise, c.delta)})


@step()
def pull(order: Pull, memory: Mine, site: Site[Either]) -> Outcome[Nothing, Mine]:
    """A step of G along eq. 5, whose gradient by the features came. Raises StepFailed for one of other rows than were sent."""
    c, net = site.config, loaded(memory, site)
    moving = list(net.get_submodule("features").parameters())
    if len(order.gradient) != len(memory.drawn):
        what = f"The gradient is of {len(order.gradient)} rows, and {len(memory.drawn)} were sent"
        raise StepFailed(what, "The coordinator is of another version, or is not to be trusted")
    if not moving:
        return Outcome(Nothing(), memory)
    by = SGD(moving, lr=c.rate_of(-(-site.round // c.identify_steps)), weight_decay=c.weight_decay)
    with uncounted(net):
        f = features(net, memory.drawn, memory.seed, site)
        f.backward(order.gradient.to(site.device))  # type: ignore[no-untyped-call]
        by.step()
    return Outcome(Nothing(), moved_on(memory, nets.weights_of(net), site))


def moved_on(memory: Mine, made: Weights, site: Site[Either]) -> Mine:
    """The memory after a step. Where the round began is kept: a source's step is part of what it sends, a target forgets some."""
    if site.role is Role.SOURCE:
        before = extractor(memory.model)
        drift = {name: w - before[name] + memory.drift.get(name, 0) for name, w in extractor(made).items()}
        return replace(memory, model=made, common=memory.common or trained(memory.model), drift=drift)
    began = memory.common or extractor(memory.model) if forgets(site.config) else memory.common
    return replace(memory, model=made, common=began)
