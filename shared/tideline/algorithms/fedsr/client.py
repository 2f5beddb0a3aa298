"""FedSR at a site: a representation with noise, kept short and near its class's reference, which stays at home."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from tideline import nets
from tideline.algorithms.averaging.messages import Model
from tideline.algorithms.fedsr.messages import Mine, Update
from tideline.core.step import Outcome, Site, step
from tideline.learning.fit import fit, optimiser
from tideline.nets import probabilistic
from tideline.nets.probabilistic import References, class_divergence, encoded, length, log_mean_softmax

if TYPE_CHECKING:
    from tideline.algorithms.fedsr import FedSR


def prepare(config: FedSR, site: Site[FedSR]) -> Mine:
    """References before the first round: means of 0, scales of softplus(1), C = 1."""
    shape = site.world.classes, probabilistic.width(site.world)
    return Mine(torch.zeros(shape), torch.ones(shape), 1.0)


@step(metrics=("loss",))
def train(order: Model, memory: Mine, site: Site[FedSR]) -> Outcome[Update, Mine]:
    """E epochs on CE + a_L2R L2R + a_CMI CMI, over encoder, classifier and the site's own references."""
    c: FedSR = site.config
    net = network(order, site)
    references = opened(memory, site.device)

    def loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return objective(c, net, references, x, y, noise(x, references, site))

    by = optimiser(c, (*net.parameters(), *trained(references)))
    many = {"epochs": c.epochs, "batch": c.batch}
    value = fit(net, site.data, loss, by, **many, rng=site.rng, device=site.device, tick=site.tick)
    return Outcome(Update(nets.weights_of(net)), closed(references), {"loss": value})


def objective(c: FedSR, net: nn.Module, references: References, x: Tensor, y: Tensor, eps: Tensor) -> Tensor:
    """The loss of a batch x (b, *inputs), y (b,), with the draw eps (b, m)."""
    mu, sigma = encoded(net, x)
    z = mu + sigma * eps
    plain = functional.cross_entropy(net.get_submodule("classifier")(z), y)
    short = length(z, squared=c.l2r == "squared")
    return plain + c.a_l2r * short + c.a_cmi * class_divergence(mu, sigma, y, references)


def noise(x: Tensor, references: References, site: Site[FedSR]) -> Tensor:
    """One standard normal draw for each row of x: (b, m), the same on every device."""
    return torch.randn(len(x), references.r_mu.shape[1], generator=site.rng).to(x.device)


def predict(order: Model, memory: Mine, site: Site[FedSR], x: Tensor) -> Tensor:
    """log of the mean of the softmax over draws of z; of mu alone where `draws` is 0. x (n, *inputs) -> (n, classes)."""
    c: FedSR = site.config
    net = network(order, site).eval()
    with torch.no_grad():
        return torch.cat([predicted(net, rows.to(site.device), c.draws, site).cpu() for rows in torch.split(x, nets.rows_of(x))])


def predicted(net: nn.Module, x: Tensor, draws: int, site: Site[FedSR]) -> Tensor:
    """`predict` for rows that pass through the network at once."""
    mu, sigma = encoded(net, x)
    eps = torch.randn(draws, *mu.shape, generator=site.rng).to(x.device)
    z = mu + sigma * eps if draws else mu[None]
    return log_mean_softmax(net.get_submodule("classifier")(z))


def network(order: Model, site: Site[FedSR]) -> nn.Module:
    """Encoder and classifier, on the site's device."""
    return nets.loaded(site.world, order.model, site.device, made=probabilistic.build)


def opened(memory: Mine, device: str) -> References:
    """References that can be trained: copies, on the site's device."""
    C = torch.tensor(memory.C, dtype=torch.float32)
    return References(*(nn.Parameter(t.clone().to(device)) for t in (memory.r_mu, memory.r_s, C)))


def trained(references: References) -> Iterator[nn.Parameter]:
    """What of them is trained, which is all."""
    for each in (references.r_mu, references.r_s, references.C):
        assert isinstance(each, nn.Parameter)
        yield each


def closed(references: References) -> Mine:
    """The next memory."""
    r = references
    return Mine(r.r_mu.detach().cpu(), r.r_s.detach().cpu(), float(r.C.detach()))
