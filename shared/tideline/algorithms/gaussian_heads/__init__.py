"""Gaussian heads: one linear classifier from one round of sums, on features that nobody trains.

FedCGS (Guan, Zhou, Gu, AAAI 2025), the classical discriminant of Fisher: each site sends counts and sums by class and the sum of
its features' products; the coordinator solves W = Sigma^-1 mu. Nothing but sums is asked for, so whoever adds them up first
changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from tideline import nets
from tideline.algorithms.averaging import predict_by
from tideline.algorithms.averaging.messages import Model
from tideline.algorithms.gaussian_heads.private import noised, spends
from tideline.algorithms.gaussian_heads.projecting import directions, of_all_features, projected
from tideline.core import phase as phases
from tideline.core.algorithm import Algorithm, RunModel
from tideline.core.asked.secure import SecureSums
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, RosterRefused, StepFailed
from tideline.core.phase import Folded, Phase, Plan, Replies, Turn, marked, to, to_all
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, field, record
from tideline.core.run import ClientId, Role, Roster, described
from tideline.core.settings import Plain, setting
from tideline.core.step import Outcome, Site, step
from tideline.learning.evaluate import evaluate
from tideline.learning.loading.ahead import in_parts
from tideline.nets.layers import CLASSIFIER
from tideline.numerics.labels import gaussian_heads as numerics
from tideline.numerics.labels.gaussian_heads import ClassSums

WEIGHT, BIAS = f"{CLASSIFIER}weight", f"{CLASSIFIER}bias"
MOST_FEATURES = 4096  # their products are 67 MB
PRIVATELY = "of rows shortened to privacy.clip, with noise"


@dataclass(frozen=True)
class GaussianHeads:
    """Settings of Gaussian heads."""

    shrinkage: float = setting(numerics.SHRINKAGE, low=0.0, high=1.0, doc="share of the mean variance in the covariance")
    project: int = setting(
        0, low=0, high=MOST_FEATURES, later=True, doc="random directions that features are told on; 0: all features"
    )
    least_rows: int = setting(2, low=1, doc="rows of a class below which a site tells nothing of it")
    roles: tuple[Role, ...] = setting((Role.SOURCE, Role.PEER), doc="whose labels are learnt from")
    confidence: bool = setting(False, doc="scorings tell the calibration error and confidences, too")


@record
class Sums:
    """Up: sums over a site's labelled training rows, float64."""

    count: Tensor = field("classes", Exposure.COUNT, low=0, private=PRIVATELY, doc="rows of each class")
    total: Tensor = field("classes d", Exposure.STATISTIC, private=PRIVATELY, doc="the sum of features, by class")
    second: Tensor = field(
        "pairs", Exposure.STATISTIC, private=PRIVATELY, doc="the sum of products of two features, each pair once"
    )


# At a site


@step(metrics=("samples",), spends=spends, by_unit=True)
def sums(order: Nothing, memory: Nothing, site: Site[GaussianHeads]) -> Outcome[Sums, Nothing]:
    """Counts, sums and products of classes with `least_rows` rows, or as many as the site's owner wants."""
    y, K, d = site.data.y, site.world.classes, row_size(site.config, site.world)
    assert y is not None, "only labelled sites are asked"
    P = directions(nets.width(site.world), site.config.project)
    if site.private:
        found = noised(site, site.private, max(site.config.least_rows, site.least_per_class), P)
        return Outcome(Sums(found.count, found.total, found.second), memory)
    counts = torch.bincount(y, minlength=K)
    there = counts >= max(site.config.least_rows, site.least_per_class)
    there &= counts[there].sum() >= site.least_rows  # the products are told of all classes together
    found, done = numerics.no_sums(K, d), 0
    for x in in_parts(site.data.x):
        own, done = y[done : done + len(x)], done + len(x)
        kept = there[own]
        found += numerics.class_sums(projected(x.flatten(1)[kept], P), own[kept], K)
        site.tick(done / len(y))
    rows, columns = pairs(d)
    reply = Sums(found.count, found.total, found.second[rows, columns])
    return Outcome(reply, memory, {"samples": int(found.count.sum())})


def pairs(d: int) -> tuple[Tensor, Tensor]:
    """Each pair of features once: rows and columns of the upper triangle, d (d + 1) / 2 each."""
    rows, columns = torch.triu_indices(d, d)
    return rows, columns


def predict(order: Model, memory: Nothing, site: Site[GaussianHeads], x: Tensor) -> Tensor:
    return predict_by(order.model, memory, site, x)


# At the coordinator


def begin(config: GaussianHeads, world: World, roster: Roster, rng: Generator) -> Model:
    return Model({name: torch.zeros(like.shape, dtype=like.dtype) for name, like in nets.template(world).items()})


def solve(state: Model, replies: Replies[Sums], turn: Turn[GaussianHeads]) -> Folded[Model]:
    """The classifier of all sums. Raises StepFailed where they are too few, or those of no rows."""
    d, K = row_size(turn.config, turn.world), turn.world.classes
    found, used = numerics.no_sums(K, d), list[str]()
    for site, reply in replies.items():
        if float(reply.count.sum()) > 0:
            found += ClassSums(reply.count.double(), reply.total.double(), square(reply.second.double(), d))
            used.append(site)
    made = classifier(found, f"the sums of {len(used)} sites", turn)
    return Folded(made, marked({"left out": (site for site in replies if site not in used)}))


def classifier(found: ClassSums, of: str, turn: Turn[GaussianHeads]) -> Model:
    try:
        made = numerics.heads(found, turn.config.shrinkage)
    except ValueError as error:
        what = f"No classifier follows from {of}: {str(error)[0].lower()}{str(error)[1:]}"
        raise StepFailed(what, "Look at what the sites hold: tideline data check; or lower least_rows") from error
    W = of_all_features(made.weight, directions(nets.width(turn.world), turn.config.project))
    return Model({WEIGHT: W.float(), BIAS: made.bias.clamp_min(numerics.NEVER).float()})


def summed(config: GaussianHeads, world: World) -> dict[str, tuple[int, ...]]:
    """The shapes of a site's sums."""
    K, d = world.classes, row_size(config, world)
    return {"count": (K,), "total": (K, d), "second": (d * (d + 1) // 2,)}


def in_units(reply: Sums, order: Nothing, site: Site[GaussianHeads], asked: SecureSums) -> dict[str, Tensor]:
    """A site's sums, in the most that they can be of so many rows of features up to `clip`."""
    return {name: getattr(reply, name).double() / unit for name, unit in units(asked).items()}


def units(asked: SecureSums) -> dict[str, float]:
    return {"count": asked.rows, "total": asked.rows * asked.clip, "second": asked.rows * asked.clip**2}


def solve_sums(total: Mapping[str, Tensor], state: Model, turn: Turn[GaussianHeads], asked: SecureSums) -> Model:
    """The classifier of sums over sites, of which nobody has seen the parts."""
    found = {name: total[name] * unit for name, unit in units(asked).items()}
    second = square(found["second"], row_size(turn.config, turn.world))
    return classifier(ClassSums(found["count"], found["total"], second), "the sum over sites", turn)


SUMMED: phases.Sums[GaussianHeads, Model] = phases.Sums(
    shapes=lambda order, config, world: summed(config, world), of=in_units, fold=solve_sums
)


def square(upper: Tensor, d: int) -> Tensor:
    """The symmetric matrix (d, d) of an upper triangle."""
    made = upper.new_zeros(d, d)
    made[pairs(d)] = upper
    return made + made.mT - made.diagonal().diag()


def asked(turn: Turn[GaussianHeads]) -> tuple[ClientId, ...]:
    return turn.labelled(*turn.config.roles)


def plan(c: GaussianHeads) -> Plan[GaussianHeads, Model]:
    """Sums, then one scoring of all."""
    first: Phase[GaussianHeads, Model] = Phase("sums", sums, ask=to(asked, Nothing), fold=solve, sums=SUMMED)
    score: Phase[GaussianHeads, Model] = evaluate(to_all(Model), predict, takes=Model, confidence=c.confidence)
    return (first, score)


def fits(config: GaussianHeads, world: World, roster: Roster) -> None:
    """Rows are features, the network is one linear layer, and somebody has labels. Raises ConfigRefused, RosterRefused."""
    nets.check(world)
    if set(nets.template(world)) != {WEIGHT, BIAS}:
        what = f"world.model is {world.model}, which learns its features; Gaussian heads are solved on features that are there"
        todo = "Use model: linear for data that are features, or trains: head over pretrained weights"
        raise ConfigRefused(what, todo, path="world.model")
    if (d := row_size(config, world)) > MOST_FEATURES:
        what = f"There are {d} features; each site would send {d * (d + 1) // 2} products of them"
        raise ConfigRefused(what, "Set config.project, such as 128, or give a network with a bottleneck", path="world.inputs")
    if config.project > nets.width(world):
        what = f"config.project is {config.project}, and there are {nets.width(world)} features"
        raise ConfigRefused(what, "Give fewer directions than features, or 0 for all features", path="config.project")
    if not any(m.labelled and m.role in config.roles for m in roster):
        what = f"No member can teach: the method needs a labelled site in one of its roles; the roster has {described(roster)}"
        raise RosterRefused(what, "Give a labelled site the role source", path="roster")


def row_size(config: GaussianHeads, world: World) -> int:
    """How many numbers a row is in the sums."""
    return config.project or nets.width(world)


def sizes(config: GaussianHeads, world: World) -> Mapping[str, int]:
    d = row_size(config, world)
    return {"d": d, "pairs": d * (d + 1) // 2}


PRESETS: Mapping[str, Mapping[str, Plain]] = {"demo": {"shrinkage": 0.9}, "tiny": {}}
CLAIMS = (
    "What leaves a labelled site are sums over its rows: counts, sums by class, and products over all classes together.",
    "Not claimed: that sums hide rows. Those of two rows of a class come near to telling them; raise least_rows.",
    "Targets send nothing but scores.",
)

gaussian_heads: Algorithm[GaussianHeads, Model, Nothing] = Algorithm(
    name="gaussian_heads",
    paper="Guan, Zhou, Gu: Capture Global Feature Statistics for One-Shot Federated Learning, 2025",
    summary="One linear classifier from one round of sums, on features that are data or a frozen encoder's",
    config=GaussianHeads,
    augments=False,
    state=Model,
    begin=begin,
    plan=plan,
    fits=fits,
    presets=PRESETS,
    sizes=sizes,
    network="linear",
    claims=CLAIMS,
    result=(RunModel(lambda config, world, state: state.model),),
)
