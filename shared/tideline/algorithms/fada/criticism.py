"""The coordinator's side of variant B: features of mini-batches come, DI is stepped on them, and gradients by them go back."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from tideline.algorithms.fada.messages import Ask, Exposed, Identifier, Pull, State
from tideline.algorithms.fada.server import identified, sources, targets
from tideline.algorithms.fada.settings import LEAST, Either
from tideline.core.phase import Folded, Replies, Turn
from tideline.core.run import ClientId
from tideline.nets.disentangling import logits, sizes
from tideline.numerics.alignment.adversarial import error_of, identifier_loss, taken_for_source


def ask_all(state: State, turn: Turn[Either]) -> dict[ClientId, Ask]:
    """For a mini-batch of features."""
    return dict.fromkeys((*sources(state, turn), *targets(state, turn)), Ask())


def criticised(state: State, replies: Replies[Exposed], turn: Turn[Either]) -> State | Folded[State]:
    """A step of each DI by eq. 4, and the gradients of eq. 5 by each party's features, DI held. Odd features are left out."""
    sent = ((str(client), reply.f.float()) for client, reply in replies.items())
    f = {client: rows for client, rows in sent if likely(rows, turn.config)}
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
    gone = [c for c in (*sources(state, turn), *targets(state, turn)) if c not in f]
    return identified(replace(state, di=di, gradients=gradients), found, gone, turn)


def likely(f: Tensor, c: Either) -> bool:
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
    """To each party its own."""
    return {ClientId(party): Pull(g) for party, g in sorted(state.gradients.items())}
