"""Variant B, only where owners let features out: features of mini-batches go to the coordinator, which gives gradients back.

Rows are clipped to norm c and get noise of sigma c in each number, of a key that the site draws for itself: what the run's seed
gives, whoever knows that could take off. The coordinator steps DI on the features that came, and sends the gradients by them
back: then the same mini-batch passes through G again, under the same dropout.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import replace

import torch
from torch import Generator, Tensor, nn
from torch.optim import SGD

from tideline import nets
from tideline.algorithms.fada.client import drawn, extractor, loaded, unmoved
from tideline.algorithms.fada.messages import Exposed, Identifier, Mine, Pull, State
from tideline.algorithms.fada.server import identified, present, sources, targets
from tideline.algorithms.fada.settings import FADA, LEAST, Either, as_fada, forgets
from tideline.core.errors import StepFailed
from tideline.core.phase import Folded, Replies, Turn
from tideline.core.record import Nothing, Weights
from tideline.core.run import ClientId, Role
from tideline.core.step import Outcome, Site, step
from tideline.learning.fit import uncounted
from tideline.nets.disentangling import logits, sizes
from tideline.nets.layers import trained
from tideline.numerics.alignment.adversarial import KEY, clipped, epsilon, error_of, identifier_loss, noise, taken_for_source

# At a site


SEEDS = 2**62


def features(net: nn.Module, rows: Tensor, seed: int, site: Site[Either]) -> Tensor:
    """Clipped features of a mini-batch in training mode, by a dropout of its own."""
    net.train()
    torch.manual_seed(seed)
    f: Tensor = net.get_submodule("features")(site.data.x.batch(rows, Generator().manual_seed(seed)).to(site.device))
    return clipped(f, as_fada(site.config).clip)


@step(metrics=("epsilon",))
def expose(order: Nothing, memory: Mine, site: Site[Either]) -> Outcome[Exposed, Mine]:
    """Features of a mini-batch, clipped and noised; and what noise has been worth so far."""
    c, net = as_fada(site.config), loaded(memory, site)
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


# At the coordinator


def criticised(state: State, replies: Replies[Exposed], turn: Turn[Either]) -> State | Folded[State]:
    """A step of each DI by eq. 4, and the gradients of eq. 5 by each party's features, DI held. Odd features are left out."""
    sent = ((str(client), reply.f.float()) for client, reply in replies.items())
    f = {client: rows for client, rows in sent if likely(rows, as_fada(turn.config))}
    rate = turn.config.identify_rate_of(sizes(turn.world)[1])
    di, found, pulls = {t: dict(row) for t, row in state.di.items()}, dict[tuple[str, str], float](), dict[str, list[Tensor]]()
    for t in targets(state, turn):
        for s in (s for s in sources(state, turn) if t in f and s in f):
            theta, found[t, s] = learnt(di[t][s].theta, f[s], f[t], rate)
            di[t][s] = Identifier(theta)
            for party in (s, t):
                pulls.setdefault(party, []).append(pulled(theta, f[party]))
    weight = turn.config.weight(-(-turn.round // turn.config.identify_steps))
    gradients = {party: weight * torch.stack(each).mean(0) for party, each in pulls.items()}
    gone = [c for c in present(state, turn) if c not in f]
    return identified(replace(state, di=di, gradients=gradients), found, gone, turn)


def likely(f: Tensor, c: FADA) -> bool:
    """Whether these are features (b, d) as sites send them: of so many rows, and none longer than clipping and noise can make it.

    The length of d numbers of noise exceeds sqrt(d) + 8 deviations once in 10^14 rows.
    """
    longest = c.clip * (1 + c.noise * (math.sqrt(f.shape[1]) + 8))
    return len(f) >= LEAST and float(torch.linalg.vector_norm(f.double(), dim=1).max()) <= longest * (1 + 1e-6)


def learnt(di: Tensor, f_s: Tensor, f_t: Tensor, rate: float) -> tuple[Tensor, float]:
    """DI after a step by eq. 4, and its error before."""
    di = di.clone().requires_grad_()
    z_s, z_t = logits(di, f_s), logits(di, f_t)
    (g,) = torch.autograd.grad(identifier_loss(z_s, source=True) + identifier_loss(z_t, source=False), di)
    return (di - rate * g).detach(), (error_of(z_s.detach(), source=True) + error_of(z_t.detach(), source=False)) / 2


def pulled(di: Tensor, f: Tensor) -> Tensor:
    """The gradient of a party's half of eq. 5 by its features (b, d)."""
    f = f.clone().requires_grad_()
    (g,) = torch.autograd.grad(taken_for_source(logits(di, f)), f)
    return g


def gradients(state: State, turn: Turn[Either]) -> dict[ClientId, Pull]:
    return {ClientId(party): Pull(g) for party, g in sorted(state.gradients.items())}
