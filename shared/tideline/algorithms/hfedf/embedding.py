"""Embeddings by an autoencoder (appendix A.1.3): each site sends the mean of its rows' latent vectors, which then stays.

The paper prints its autoencoder as a figure. This one is ours: x -> 64 -> e -> 64 -> x with ReLU, trained on up to 100 rows.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import torch
from torch import Tensor, nn

from tideline.algorithms.hypernetworks.messages import State
from tideline.algorithms.hypernetworks.server import NU
from tideline.core.errors import DataRefused
from tideline.core.phase import Replies, Turn
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, field, record
from tideline.core.run import ClientId
from tideline.core.step import Outcome, Site, step

ROWS, STEPS, RATE, WIDTH = 100, 200, 1e-3, 64
LEAST = 5  # rows whose mean is taken: of fewer it would nearly be one row's


@record
class Draw:
    """Down: what all sites begin the same autoencoder from."""

    seed: int = field(doc="seed of the autoencoder's initialisation")
    like: Tensor = field("e", doc="zeros, as many as an embedding has numbers")


@record
class Embedding:
    """Up: the site's embedding."""

    nu: Tensor = field("e", Exposure.STATISTIC, doc="mean of the latent vectors of the site's rows")


def to_learners(state: State, turn: Turn) -> dict[ClientId, Draw]:
    """One seed for all."""
    draw = Draw(int(torch.randint(2**31, (), generator=turn.rng)), torch.zeros(state.theta[NU].shape[1]))
    return dict.fromkeys(map(ClientId, state.clients), draw)


@step(metrics=("reconstruction",))
def embed(order: Draw, memory: Nothing, site: Site) -> Outcome[Embedding, Nothing]:
    """Train on up to 100 rows; the mean latent vector of the others, or of all where others are few. Raises DataRefused."""
    if len(site.data) < LEAST:
        what = f"{len(site.data)} rows, whose mean would nearly be a row: embeddings by autoencoder want {LEAST} at least"
        raise DataRefused(what, "Add rows, or use learned embeddings")
    rows = torch.randperm(len(site.data), generator=site.rng)
    x = site.data.x.flatten(1)
    given, others = x[rows[:ROWS]], x[rows[ROWS:]]
    encoder, decoder = autoencoder(order, prod(site.world.inputs))
    net = nn.Sequential(encoder, decoder)
    by = torch.optim.Adam(net.parameters(), lr=RATE)
    value = torch.zeros(())
    for i in range(STEPS):
        value = nn.functional.mse_loss(net(given), given)
        by.zero_grad(set_to_none=True)
        value.backward()  # type: ignore[no-untyped-call]
        by.step()
        site.tick((i + 1) / STEPS)
    with torch.no_grad():
        nu = encoder(others if len(others) >= LEAST else x).mean(0)
    return Outcome(Embedding(nu), memory, {"reconstruction": float(value.detach())})


def autoencoder(order: Draw, d: int) -> tuple[nn.Module, nn.Module]:
    """Encoder (n, d) -> (n, e) and decoder, the same at every site."""
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(order.seed)
        encoder = nn.Sequential(nn.Linear(d, WIDTH), nn.ReLU(), nn.Linear(WIDTH, len(order.like)))
        return encoder, nn.Sequential(nn.Linear(len(order.like), WIDTH), nn.ReLU(), nn.Linear(WIDTH, d))


def take(state: State, replies: Replies[Embedding], turn: Turn) -> State:
    """nu_i of those who answered; others keep the one that was drawn."""
    nu = state.theta[NU].clone()
    for client, reply in replies.items():
        nu[state.clients.index(client)] = reply.nu.to(nu.dtype)
    return replace(state, theta={**state.theta, NU: nu})
