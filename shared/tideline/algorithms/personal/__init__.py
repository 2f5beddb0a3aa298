"""Methods with one model per client. Local: no site sends anything; the lower reference of personalised learning.

A target has no labels, so it has no model of its own: it is left alone and reported without an accuracy; or, with `unseen`, it
is a domain that no site trained on, and scores the others' models.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from tideline import nets
from tideline.algorithms.averaging import PRESETS, models_in, predict_by, scored
from tideline.algorithms.averaging.messages import Models
from tideline.core.algorithm import Algorithm, SiteModels
from tideline.core.asked.private import Charge, Privacy
from tideline.core.asked.world import World
from tideline.core.errors import RosterRefused
from tideline.core.phase import Folded, Phase, Plan, Replies, Turn, marked, to, unchanged
from tideline.core.privacy import TO_BOTH, Exposure
from tideline.core.record import Nothing, Weights, field, record
from tideline.core.run import ClientId, Role, Roster
from tideline.core.settings import BATCH, EPOCHS, ROUNDS, setting
from tideline.core.step import Outcome, Site, charged_before, step
from tideline.learning.evaluate import evaluate
from tideline.learning.fit import training_spends
from tideline.learning.local_training import LocalTraining, loss_at, train_at
from tideline.learning.private.words import TRAINED
from tideline.nets import layers


@dataclass(frozen=True)
class LocalConfig(LocalTraining):
    """Settings of local training."""

    rounds: int = setting(10, low=1, high=100_000, sizes=ROUNDS, doc="exchanges, R; each site trains R x E epochs in all")
    epochs: int = setting(1, low=1, sizes=EPOCHS, doc="epochs between two exchanges, E")
    batch: int = setting(32, low=1, sizes=BATCH, doc="rows in a mini-batch")
    evaluate_every: int = setting(1, low=1, doc="exchanges between scorings; the last is always scored")
    unseen: bool = setting(False, doc="at the end targets score every site's model, and tell the mean accuracy")
    confidence: bool = setting(False, doc="scorings tell the calibration error and confidences, too")


@record
class Start:
    """What a client is sent: the seed of the common initial weights. As state also what sites have made of them, in the end."""

    seed: int = field(doc="seed of the network's initialisation")
    models: tuple[Weights, ...] = field(doc="the sites' models in the order of their names; only for `unseen`", default=())


@record
class Mine:
    """A client's memory: its own model; empty before the first exchange."""

    model: Weights = field(doc="parameters and buffers by name")


@record
class Shared:
    """What a client answers in the end, for `unseen`. Targets get it as it is, without a name."""

    model: Weights = field(
        "", Exposure.WEIGHTS, audience=TO_BOTH, private=TRAINED, doc="the site's own model, which every target scores"
    )


def prepare(config: LocalConfig, site: Site[LocalConfig]) -> Mine:
    """No model yet: the common seed comes with the first order."""
    return Mine({})


def begin(config: LocalConfig, world: World, roster: Roster, rng: Generator) -> Start:
    """One seed for all, so that sites start from common weights."""
    return Start(int(torch.randint(2**31, (), generator=rng)))


def spends(config: LocalConfig, privacy: Privacy) -> tuple[Charge, ...]:
    return training_spends(config.epochs, privacy)


@step(metrics=("loss",), spends=spends, by_unit=True)
def train(order: Start, memory: Mine, site: Site[LocalConfig]) -> Outcome[Nothing, Mine]:
    """E epochs on the site's own model. Nothing leaves."""
    c: LocalConfig = site.config
    net = nets.loaded(site.world, memory.model or initial(order, site.world), site.device)
    loss = train_at(site, net, loss_at(site), epochs=c.epochs, batch=c.batch)
    return Outcome(Nothing(), Mine(nets.weights_of(net)), {"loss": loss})


def initial(order: Start, world: World) -> dict[str, Tensor]:
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(order.seed)
        return nets.weights_of(nets.build(world))


def predict_own(order: Nothing, memory: Mine, site: Site[LocalConfig], x: Tensor) -> Tensor:
    return predict_by(memory.model, memory, site, x)


def plan(c: LocalConfig) -> Plan[LocalConfig, Start]:
    work: Phase[LocalConfig, Start] = Phase("train", train, ask=to(Turn.labelled, Start), fold=unchanged)
    score: Phase[LocalConfig, Start] = evaluate(to(Turn.labelled, Nothing), predict_own, keeps=Mine, confidence=c.confidence)
    return (*scored(c, (work,), score), *(score_unseen(c.confidence) if c.unseen else ()))


def needs_labels(config: LocalConfig, world: World, roster: Roster) -> None:
    """The network fits the world, and a client has labels."""
    nets.check(world)
    if not any(m.labelled for m in roster):
        raise RosterRefused("No member has labels, so nobody can train", "Add a source or a peer with labels", path="roster")


local = Algorithm(
    name="local",
    paper="Reference point: each site alone, as in the comparisons of personalised federated learning",
    summary="Every labelled site trains alone; nothing is shared",
    config=LocalConfig,
    state=Start,
    begin=begin,
    plan=plan,
    memory=Mine,
    prepare=prepare,
    fits=needs_labels,
    presets=PRESETS,
    result=(SiteModels(lambda config, world, memory: memory.model, roles=(Role.SOURCE, Role.PEER)),),
)


def score_unseen(confidence: bool) -> Plan[LocalConfig, Start]:
    """Every model up once, and all of them to each target."""
    send = Phase("share", share, ask=to(learners_if_scored, Nothing), fold=gather)
    return send, evaluate(
        models_to_targets, predict_by, takes=Models, keeps=Mine, name="unseen", each=models_in, confidence=confidence
    )


@step(spends=charged_before, by_unit=True)
def share(order: Nothing, memory: Mine, site: Site[LocalConfig]) -> Outcome[Shared, Mine]:
    """The site's own model goes up, once; empty where the site has trained none."""
    return Outcome(Shared(memory.model), memory)


def models_to_targets(state: Start, turn: Turn[LocalConfig]) -> dict[ClientId, Models]:
    """All models, without names, to every target."""
    return dict.fromkeys(turn.members(Role.TARGET), Models(state.models)) if state.models else {}


def learners_if_scored(turn: Turn[LocalConfig]) -> tuple[ClientId, ...]:
    """All who have labels; none where there is no target to score a model."""
    return turn.labelled() if turn.members(Role.TARGET) else ()


def gather(state: Start, replies: Replies[Shared], turn: Turn[LocalConfig]) -> Folded[Start]:
    """The models that are the network's by names, shapes and dtypes. A site that has trained none sent none."""
    like = nets.template(turn.world)
    there = {client: reply.model for client, reply in replies.items() if layers.alike(reply.model, like)}
    marks = marked({"left out": (client for client in replies if client not in there)})
    return Folded(replace(state, models=tuple(there.values())), marks)
