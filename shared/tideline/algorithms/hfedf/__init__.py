"""hFedF (Bartholet, Kim, Beuret, Yun, Buhmann: Non-linear Fusion in Federated Learning: A Hypernetwork Approach to Federated
Domain Generalization, 2024).

The coordinator generates each client's model from the client's embedding, and learns from what local training adds to it: clients
share through the hypernetwork, and no mean of models is taken. GradAlign weighs the clients, a moving average steadies the steps.

Embeddings may come from an autoencoder (appendix A.1.3): each site sends the mean of its rows' latent vectors, which then stays.
For images whose sides are multiples of 4 it is that of table 9; for other worlds it is ours, x -> 64 -> e -> 64 -> x with ReLU.
The paper takes the mean over validation images; here it is over rows that the autoencoder was not trained on, as no step sees
held-out rows before it scores them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from math import prod

import torch
from torch import Tensor, nn

from tideline.algorithms import hypernetworks
from tideline.algorithms.averaging import scored
from tideline.algorithms.hypernetworks import NU, Counted, Hyper, State, Update
from tideline.core.algorithm import Algorithm, InitialWeights, RunModel, SiteModels
from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.core.phase import Folded, Phase, Plan, Replies, Table, Turn
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, Weights, field, record
from tideline.core.rows import ANYTHING, Takes
from tideline.core.run import ClientId, Role
from tideline.core.settings import BATCH, EPOCHS, RATE, ROUNDS, Plain, pull, setting
from tideline.core.step import Outcome, Site, step
from tideline.learning.local_training import OPTIMISERS
from tideline.numerics.aggregation.hypernetwork import Pulled
from tideline.numerics.aggregation.server_step import alignment, clipping, step_

ROWS, STEPS, PACE, WIDTH = 100, 200, 1e-3, 64
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


def seeds(state: State, turn: Turn[Config]) -> dict[ClientId, Draw]:
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
    given, others = x.batch(rows[:ROWS]), x.at(rows[ROWS:])
    encoder, decoder = autoencoder(order, site.world.inputs)
    net = nn.Sequential(encoder, decoder)
    by = torch.optim.Adam(net.parameters(), lr=PACE)
    value = torch.zeros(())
    for i in range(STEPS):
        value = nn.functional.mse_loss(net(given), given)
        by.zero_grad(set_to_none=True)
        value.backward()  # type: ignore[no-untyped-call]
        by.step()
        site.tick((i + 1) / STEPS)
    with torch.no_grad():
        nu = encoder(
            (others if len(others) >= max(LEAST, site.least_rows) else x).all("hFedF with embeddings by autoencoder")
        ).mean(0)
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
    first, second = nn.Conv2d(c, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
    down = (first, nn.ReLU(), nn.MaxPool2d(2), second, nn.ReLU(), nn.MaxPool2d(2))
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


@dataclass(frozen=True)
class Config(Hyper):
    """Settings of hFedF."""

    rounds: int = setting(200, low=0, high=100_000, sizes=ROUNDS, doc="rounds, T")
    epochs: int = setting(2, low=1, sizes=EPOCHS, doc="local epochs a round, E")
    batch: int = setting(64, low=1, sizes=BATCH, doc="rows in a mini-batch")
    rate: float = setting(1e-3, low=0.0, sizes=RATE, doc="learning rate of local training")
    weight_decay: float = setting(1e-3, low=0.0, sizes=pull("rate"), doc="weight decay of local training")
    optimiser: str = setting("adam", choices=OPTIMISERS, doc="of local training, fresh each round")
    weighting: str = setting("uniform", choices=("uniform", "samples"), doc="of the rest and of buffers: 1 / N, or n_i / n")
    grad_align: bool = setting(True, doc="weigh clients by how their gradients point (algorithm 3); false: all alike")
    align_sign: int = setting(1, choices=(1, -1), doc="1: softmax(gamma), weight grows with agreement; -1: as eq. 9 is printed")
    ema: float = setting(0.95, low=0.01, high=1.0, doc="a of the moving average (algorithm 4); 1: none")
    warm_up: int = setting(10, low=0, doc="rounds before the moving average begins, w")
    embeddings: str = setting(
        "learned",
        choices=("learned", "random", "autoencoder"),
        doc="of clients; autoencoder sends a statistic of each site's rows",
    )


def fuse(state: State, replies: Replies[Update | Counted], turn: Turn[Config]) -> Folded[State]:
    """One step of the optimiser on sum_i w_i g_i, then the moving average; the rest is averaged. Consumes the state."""
    c = turn.config
    found = hypernetworks.pulled(state, tuple(replies), [reply.delta for reply in replies.values()], turn)
    w = weights(found, c)
    if c.server_optimiser == "sgd":  # Adam's step has a length of its own; SGD's would be that of one site's lie
        w = w * clipping(found.gram, w, c.server_clip)
    learnt = hypernetworks.rows_of_nu(state, tuple(replies), found, w) if c.embeddings == "learned" else ()
    after = step_(
        hypernetworks.optimised(state),
        chain(hypernetworks.gradients(found, w), learnt),
        optimiser=c.server_optimiser,
        rate=c.server_rate,
        weight_decay=c.server_weight_decay,
        ema=c.ema if turn.round > c.warm_up else 1.0,
    )
    theta, rest = after.theta, hypernetworks.moved(state.rest, shares(replies))
    if c.embeddings == "random":  # drawn anew after every step (appendix A.1.4)
        theta = {**theta, NU: torch.randn(theta[NU].shape, generator=turn.rng, dtype=theta[NU].dtype)}
    made = replace(state, theta=theta, steps=after.steps, rest=rest)
    table = Table(tuple(replies), ("weight",), tuple((each,) for each in (w / w.sum()).tolist()))
    return Folded(made, tables={"weights of the clients (GradAlign)": table})


def shares(replies: Replies[Update | Counted]) -> Iterator[tuple[float, Weights]]:
    """(p_i, Delta_i): n_i / n where sites send counts, or 1 / N."""
    counts = [reply.samples if isinstance(reply, Counted) else 1 for reply in replies.values()]
    return ((count / sum(counts), reply.delta) for count, reply in zip(counts, replies.values(), strict=True))


def weights(found: Pulled, c: Config) -> Tensor:
    """softmax(gamma) (algorithm 3), or 1 / N."""
    if c.grad_align:
        return alignment(found.gram, c.align_sign)
    return torch.full((len(found.gram),), 1 / len(found.gram), dtype=torch.float64)


def notes(c: Config, world: World) -> tuple[str, ...]:
    """What is done otherwise than asked, and what cannot be relied on."""
    said = "each site's change of its model is needed apart, so secure summation cannot be used"
    idle = f"the moving average begins after round {c.warm_up}, and there are {c.rounds}"
    return (said, idle) if c.ema != 1 and 0 < c.rounds <= c.warm_up else (said,)


def plan(c: Config) -> Plan[Config, State]:
    """(train, score) x R; before it the autoencoder, where it makes the embeddings."""
    first = (Phase("embed", embed, ask=seeds, fold=take),)
    train = hypernetworks.train_counted if c.weighting == "samples" else hypernetworks.train
    work = Phase("train", train, ask=hypernetworks.to_learners, fold=fuse, sampled=True)
    score: Phase[Config, State] = hypernetworks.scoring(lambda state: state, c.confidence)
    return (first if c.embeddings == "autoencoder" and c.rounds else ()) + scored(c, (work,), score)


def takes(c: Config) -> Takes:
    """An autoencoder gives rows back, number by number."""
    return (
        Takes(why="encodes rows as numbers (config.embeddings: learned does not)") if c.embeddings == "autoencoder" else ANYTHING
    )


CLAIMS = (
    "Embeddings and the hypernetwork stay at the coordinator. A site is sent a model, and sends what its training added to it.",
    "The coordinator needs each site's Delta_i apart, for its gradient, so that no sum over sites could take their place.",
    "A site's model is made of what all sites sent, through the hypernetwork. A site that is only scored gets their mean;"
    " with unseen: each the models of all, and so it learns how many there are.",
    "Not claimed: that models tell nothing about rows. They are of the kind that averaging sends.",
)

TAUGHT: Mapping[str, Plain] = {"rounds": 10, "epochs": 1, "batch": 32, "head_init": "matched", "ema": 1.0}

hfedf: Algorithm[Config, State, Nothing] = Algorithm(
    name="hfedf",
    paper="Bartholet, Kim, Beuret, Yun, Buhmann: Non-linear Fusion in Federated Learning: A Hypernetwork Approach to Federated"
    " Domain Generalization, 2024",
    summary="A hypernetwork generates each site's model, for domains that no site has seen",
    config=Config,
    state=State,
    begin=hypernetworks.begin,
    plan=plan,
    fits=hypernetworks.check,
    takes=takes,
    presets={
        "pacs": {"server_weight_decay": 1e-5, "ema": 0.95, "unseen": "each"},
        "office_home": {"server_weight_decay": 1e-5, "ema": 0.75, "unseen": "each"},
        "vlcs": {"server_weight_decay": 1e-3, "ema": 0.75, "unseen": "each"},
        # So few rounds do not teach a hypernetwork all tensors, so most are averaged.
        "demo": {**TAUGHT, "generate": ["classifier.*"], "server_rate": 1e-2},
        "tiny": {"rounds": 2, "epochs": 1, "batch": 16, "server_rate": 3e-3, "warm_up": 1},
    },
    cast=(Role.SOURCE, Role.SOURCE, Role.TARGET),
    notes=notes,
    claims=CLAIMS,
    initial_weights=InitialWeights(hypernetworks.begin_from, hypernetworks.check_initial_weights),
    admins=True,
    result=(
        RunModel(hypernetworks.common, differs=lambda config: hypernetworks.DIFFERS),
        SiteModels(known=hypernetworks.model_of, roles=(Role.SOURCE, Role.PEER)),
    ),
)
