"""FedSR: sites learn one encoder whose representations are simple, so that it holds in domains that no site trained on.

Nguyen, Torr, Lim: FedSR: A Simple and Effective Domain Generalization Method for Federated Learning, NeurIPS 2022. A row's
representation is a distribution; one term keeps it short (L2R), the other near a reference of its class (CMI).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from tideline import nets
from tideline.algorithms.averaging import COMPARED, PRESETS, Training, learners, mean_as, needs_teachers, scored, training
from tideline.algorithms.averaging.messages import Model, State, Trained
from tideline.algorithms.averaging.sums import alike, mean_of
from tideline.algorithms.fedsr.private import PRIVATELY, Beside, loss_beside, shared_draws
from tideline.core.algorithm import Algorithm, RunModel
from tideline.core.asked.world import World
from tideline.core.phase import Phase, Plan, to, to_all
from tideline.core.record import Weights, field, record
from tideline.core.run import Roster
from tideline.core.settings import Plain, setting
from tideline.core.step import Outcome, Site, step
from tideline.learning.evaluate import evaluate
from tideline.learning.local_training import Criterion, criterion, train_at
from tideline.nets import probabilistic
from tideline.nets.forms import MEAN
from tideline.nets.probabilistic import References, class_divergence, encoded, length, log_mean_softmax


@dataclass(frozen=True)
class FedSR(Training):
    """Settings of FedSR."""

    a_l2r: float = setting(1e-2, low=0.0, doc="weight of the representation's length, alpha_L2R")
    a_cmi: float = setting(5e-4, low=0.0, doc="weight of the divergence from the class's reference, alpha_CMI")
    l2r: str = setting("norm", choices=("norm", "squared"), doc="length: the norm of z, or its square as the paper writes")
    draws: int = setting(20, low=0, high=10_000, doc="representations that a prediction is the mean over; 0: mu alone")


@record
class Mine:
    """A site's memory: its own class references, K classes and representations of m numbers."""

    r_mu: Tensor = field("K m", doc="means of the classes' representations")
    r_s: Tensor = field("K m", doc="their scales, before softplus")
    C: float = field(doc="the scale between a representation and its class's reference")


# At a site


def prepare(config: FedSR, site: Site[FedSR]) -> Mine:
    """References before the first round: means of 0, scales of softplus(1), C = 1."""
    shape = site.world.classes, probabilistic.width(site.world)
    return Mine(torch.zeros(shape), torch.ones(shape), 1.0)


@step(metrics=("loss",), spends=training)
def train(order: Model, memory: Mine, site: Site[FedSR]) -> Outcome[Trained, Mine]:
    """E epochs on CE + a_L2R L2R + a_CMI CMI, over encoder, classifier and the site's own references."""
    c: FedSR = site.config
    net = network(order, site)
    references = opened(memory, site.device)
    labels = criterion(c, site.data.y, site.world.classes, site.device)

    if site.private:
        both = Beside(net, references)
        value = train_at(site, both, loss_beside(partial(objective, c, labels=labels)), epochs=c.epochs, batch=c.batch)
        return Outcome(Trained(nets.weights_of(net)), closed(both.references), {"loss": value})

    def loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return objective(c, net, references, x, y, noise(x, references, site), labels)

    moving = (*net.parameters(), *vars(references).values())
    value = train_at(site, net, loss, epochs=c.epochs, batch=c.batch, moving=moving)
    return Outcome(Trained(nets.weights_of(net)), closed(references), {"loss": value})


def objective(
    c: FedSR,
    net: nn.Module,
    references: References,
    x: Tensor,
    y: Tensor,
    eps: Tensor,
    labels: Criterion = functional.cross_entropy,
) -> Tensor:
    """The loss of a batch x (b, *inputs), y (b,), with the draw eps (b, m)."""
    mu, sigma = encoded(net, x)
    z = mu + sigma * eps
    plain = labels(net.get_submodule("classifier")(z), y)
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
    eps = shared_draws(draws, mu) if site.private else torch.randn(draws, *mu.shape, generator=site.rng).to(x.device)
    z = mu + sigma * eps if draws else mu[None]
    return log_mean_softmax(net.get_submodule("classifier")(z))


def network(order: Model, site: Site[FedSR]) -> nn.Module:
    """Encoder and classifier, on the site's device."""
    return nets.loaded(site.world, order.model, site.device, made=probabilistic.build)


def opened(memory: Mine, device: str) -> References:
    """References that can be trained: copies, on the site's device."""
    C = torch.tensor(memory.C, dtype=torch.float32)
    return References(*(nn.Parameter(t.clone().to(device)) for t in (memory.r_mu, memory.r_s, C)))


def closed(references: References) -> Mine:
    r = references
    return Mine(r.r_mu.detach().cpu(), r.r_s.detach().cpu(), float(r.C.detach()))


def begin(config: FedSR, world: World, roster: Roster, rng: Generator) -> State:
    return State(nets.weights_of(probabilistic.build(world)))


def plan(c: FedSR) -> Plan[FedSR, State]:
    sums, whom = mean_of(alike), to(learners, Model)
    work: Phase[FedSR, State] = Phase("train", train, ask=whom, fold=mean_as("model"), sampled=True, sums=sums)
    return scored(c, (work,), evaluate(to_all(Model), predict, takes=Model, keeps=Mine, confidence=c.confidence))


def fits(config: FedSR, world: World, roster: Roster) -> None:
    """The network has an encoder to widen, and a client has labels. Raises ConfigRefused, RosterRefused."""
    nets.check(world, made=probabilistic.build)
    needs_teachers(config, roster)


def model_of(config: FedSR, world: World, state: State) -> Weights:
    """The encoder's means and the classifier."""
    return probabilistic.means(world, state.model)


def differs(config: FedSR) -> str:
    if not config.draws:
        return ""
    return f"Accuracies are of the mean over {config.draws} draws of a representation; the model predicts with its mean"


def keepsakes(config: FedSR, memory: Mine) -> Mapping[str, Mapping[str, Tensor]]:
    """The site's class references, r_mu and r_sigma (K, m), and C, once it has trained them."""
    if not bool(memory.r_mu.any()):
        return {}
    return {"references": {"r_mu": memory.r_mu, "r_sigma": functional.softplus(memory.r_s), "C": torch.tensor(memory.C)}}


CLAIMS = (
    "A site's class references never leave it. The number of its training rows is not sent: all sites weigh alike.",
    "Not claimed: that noise in the representation hides rows. It is drawn anew in training and no bound on it is kept.",
)
TUNED: Mapping[str, Plain] = {**COMPARED, "a_cmi": 5e-4, "evaluate_every": 5}

fedsr = Algorithm(
    name="fedsr",
    paper="Nguyen, Torr, Lim: FedSR: A Simple and Effective Domain Generalization Method for Federated Learning, 2022",
    summary="Federated averaging of an encoder whose representations are kept short and near their classes'",
    config=FedSR,
    state=State,
    begin=begin,
    plan=plan,
    memory=Mine,
    prepare=prepare,
    fits=fits,
    presets={
        **PRESETS,
        "pacs": {**TUNED, "a_l2r": 1e-1, "weight_decay": 1e-5},
        "office_home": {**TUNED, "a_l2r": 1e-1, "weight_decay": 1e-4},
        "vlcs": {**TUNED, "a_l2r": 1e-2, "weight_decay": 1e-4},
    },
    keepsakes=keepsakes,
    claims=CLAIMS,
    privately=PRIVATELY,
    result=(RunModel(model_of, form=MEAN, differs=differs),),
)
