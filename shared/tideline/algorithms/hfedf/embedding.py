"""Embeddings by an autoencoder (appendix A.1.3): each site sends the mean of its rows' latent vectors, which then stays.

For images whose sides are multiples of 4 the autoencoder is that of table 9; for other worlds it is ours, x -> 64 -> e -> 64 ->
x with ReLU. It is trained on up to 100 rows. The paper takes the mean over validation images; here it is over the other rows that
the site trains on, as no step sees held-out rows before it scores them.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tideline.algorithms.hypernetworks import State
from tideline.algorithms.hypernetworks.server import NU
from tideline.core.errors import DataRefused
from tideline.core.phase import Replies, Turn
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, field, record
from tideline.core.run import ClientId
from tideline.core.step import Outcome, Site, step

if TYPE_CHECKING:
    from tideline.algorithms.hfedf import Config

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


def to_learners(state: State, turn: Turn[Config]) -> dict[ClientId, Draw]:
    """One seed for all."""
    draw = Draw(int(torch.randint(2**31, (), generator=turn.rng)), torch.zeros(state.theta[NU].shape[1]))
    return dict.fromkeys(map(ClientId, state.clients), draw)


@step(metrics=("reconstruction",))
def embed(order: Draw, memory: Nothing, site: Site[Config]) -> Outcome[Embedding, Nothing]:
    """Train on up to 100 rows; the mean latent vector of the others, or of all where others are few. Raises DataRefused."""
    if len(site.data) < LEAST:
        what = f"{len(site.data)} rows, whose mean would nearly be a row: embeddings by autoencoder want {LEAST} at least"
        raise DataRefused(what, "Add rows, or use learned embeddings")
    rows = torch.randperm(len(site.data), generator=site.rng)
    x = site.data.x
    given, others = x[rows[:ROWS]], x[rows[ROWS:]]
    encoder, decoder = autoencoder(order, site.world.inputs)
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


def autoencoder(order: Draw, inputs: tuple[int, ...]) -> tuple[nn.Module, nn.Module]:
    """Encoder (n, *inputs) -> (n, e) and decoder, the same at every site."""
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(order.seed)
        if len(inputs) == 3 and inputs[1] % 4 == 0 == inputs[2] % 4:
            return of_images(len(order.like), *inputs)
        return of_features(len(order.like), inputs)


def of_images(e: int, c: int, h: int, w: int) -> tuple[nn.Module, nn.Module]:
    """Table 9."""
    inside = (32, h // 4, w // 4)
    down = (
        nn.Conv2d(c, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )
    up = (nn.ConvTranspose2d(32, 16, 2, stride=2), nn.ReLU(), nn.ConvTranspose2d(16, c, 2, stride=2), nn.Sigmoid())
    encoder = nn.Sequential(*down, nn.Flatten(), nn.Linear(prod(inside), e))
    return encoder, nn.Sequential(nn.Linear(e, prod(inside)), nn.Unflatten(1, inside), *up)


def of_features(e: int, inputs: tuple[int, ...]) -> tuple[nn.Module, nn.Module]:
    """One hidden layer at each end."""
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(prod(inputs), WIDTH), nn.ReLU(), nn.Linear(WIDTH, e))
    return encoder, nn.Sequential(nn.Linear(e, WIDTH), nn.ReLU(), nn.Linear(WIDTH, prod(inputs)), nn.Unflatten(1, inputs))


def take(state: State, replies: Replies[Embedding], turn: Turn[Config]) -> State:
    """nu_i of those who answered; others keep the one that was drawn."""
    nu = state.theta[NU].clone()
    for client, reply in replies.items():
        nu[state.clients.index(client)] = reply.nu.to(nu.dtype)
    return replace(state, theta={**state.theta, NU: nu})
