"""What f-DAN sends and stores, and a site's half: features are drawn to the other side's moment while labels are learnt.

Batch-norm statistics are a field of the memory and of no reply.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Generator, Tensor, nn

from tideline import nets
from tideline.core.asked.private import Charge, Meter, Privacy
from tideline.core.asked.world import World
from tideline.core.errors import DataRefused
from tideline.core.privacy import TO_BOTH, Exposure
from tideline.core.record import Nothing, Weights, field, record
from tideline.core.step import Outcome, Site, charged_before, step
from tideline.learning.evaluate import outputs
from tideline.learning.fit import remeasure, training_spends
from tideline.learning.local_training import criterion, loss_at, train_at
from tideline.learning.private.statistics import Bound, spend_rest, statistics, statistics_spend
from tideline.learning.private.words import NUMBER, SUMMED, TRAINED, UNREAD
from tideline.numerics.aggregation.averaging import weighted_sum
from tideline.numerics.alignment import feature_maps
from tideline.numerics.alignment.feature_maps import LEAST as NARROWEST
from tideline.numerics.alignment.feature_maps import moment, psi, ramp, typical

if TYPE_CHECKING:
    from tideline.algorithms.fdan import FDAN

LEAST = 32  # rows of a site, and of a mini-batch: a mean over fewer would nearly be a row

LONGEST = 1.1  # of psi, whose square is 1 on average and 2 at most: a longer one is shortened in private runs
PAIRS = 500  # features whose distances are looked at
Penalty = Callable[[Tensor], Tensor]
T = TypeVar("T")


@record
class Model:
    """Down: the common model."""

    model: Weights = field(doc="w, what is trained of the network, by name")
    buffers: Weights = field(doc="batch-norm statistics and counters of the beginning, for a site that has none of its own yet")


@record
class Width:
    """Up, once, from the target: how far its features lie apart. It goes to all sites."""

    s2: float = field(
        "", Exposure.METRIC, audience=TO_BOTH, low=1e-12, private=UNREAD, doc="median squared distance of 500 of its features"
    )


@record
class Waves(Model):
    """Down: the common model, and what all sites draw the same random features from."""

    seed: int = field(doc="seed of Omega and of the phases")
    s2: float = field(doc="the target's squared distance, which the kernels are as wide as")


@record
class Moment:
    """Up: a site's features as one vector. The target's goes to the sources; the mean of the sources', to the target."""

    m: Tensor = field(
        "D", Exposure.STATISTIC, audience=TO_BOTH, private=SUMMED, doc="the mean of psi over the site's training rows"
    )
    samples: int = field("", Exposure.COUNT, low=LEAST, private=f"{NUMBER}, {LEAST} at least", doc="training rows at the site")


@record
class Lesson(Waves):
    """Down: the common model, and the moment that features are drawn to."""

    partner: Tensor | None = field("D", doc="to a source m_T, to the target the mean of m_i; none before they are known")
    spread: float = field(doc="to the target, the mean of |m_i|^2 less |partner|^2, which no feature changes; to a source 0")


@record
class Change:
    """Up: what local training changed."""

    delta: Weights = field("like model", Exposure.WEIGHTS, difference=True, private=TRAINED, doc="w_i - w, of what is trained")


@record
class Mine:
    """A site's memory: the batch norm of its own, and the model that it is scored with. Empty before there are any."""

    model: Weights = field(doc="w, once it was scored")
    buffers: Weights = field(doc="batch-norm statistics on the site's own training rows")


@record
class State(Waves):
    """What the coordinator knows; the target's squared distance is 0 before it is known."""

    moments: dict[str, Tensor] = field(doc="the last moment of each site")


def prepare(config: FDAN, site: Site[FDAN]) -> Mine:
    """No statistics and no model yet. Raises DataRefused for a site with few rows."""
    check_rows(site)
    return Mine({}, {})


def training(config: FDAN, privacy: Privacy) -> tuple[Charge, ...]:
    return training_spends(config.epochs, privacy)


def drawing(config: FDAN, privacy: Privacy) -> tuple[Charge, ...]:
    """The site's own moment, and training."""
    return (*statistics_spend(privacy), *training(config, privacy))


@step(metrics=("loss",), spends=training)
def warm(order: Model, memory: Mine, site: Site[FDAN]) -> Outcome[Change, Mine]:
    """E epochs of cross-entropy from w: features that no site has trained have no width worth measuring."""
    check_rows(site)
    return changed(order.model, network(order, memory, site), memory, site, None)


@step(spends=charged_before)
def width(order: Model, memory: Mine, site: Site[FDAN]) -> Outcome[Width, Mine]:
    """s2: how far some of the target's features lie apart. In a run that protects rows, a public number."""
    check_rows(site)
    if site.private:
        return Outcome(Width(site.config.width or float(nets.width(site.world))), memory)
    net, mine = measured(order, memory, site)
    rows = torch.randperm(len(site.data), generator=site.rng)[:PAIRS]
    s2 = typical(nets.features(net, site.data.x.at(rows), site.device))
    return Outcome(Width(max(s2, NARROWEST)), mine)


@step(spends=lambda config, privacy: statistics_spend(privacy))
def share(order: Waves, memory: Mine, site: Site[FDAN]) -> Outcome[Moment, Mine]:
    """m: the mean of psi over the site's features by w, with batch-norm statistics of its own."""
    check_rows(site)
    net, mine = measured(order, memory, site)
    if site.private:
        m = noised_moment(waves(order, nets.width(site.world), site), net, site, site.private)
        return Outcome(Moment(m, max(site.samples, LEAST)), mine)
    f = nets.features(net, site.data.x, site.device)
    by = waves(order, f.shape[1], site)
    parts = torch.split(f, nets.ROWS)
    m = sum((len(part) / len(f) * moment(by, part) for part in parts), torch.zeros(len(by.phase)))
    return Outcome(Moment(m, len(f)), mine)


@step(metrics=("loss",), spends=drawing)
def train(order: Lesson, memory: Mine, site: Site[FDAN]) -> Outcome[Change, Mine]:
    """E epochs from w: a source on CE + lambda |mean psi - m_T|^2, the target on lambda (1 / N) sum_i |mean psi - m_i|^2."""
    check_rows(site)
    net = network(order, memory, site)
    if site.private:
        done = changed(order.model, net, memory, site, drawn_row_by_row(order, net, site, site.private))
        spend_rest(site.private, drawing(site.config, site.private.asked))
        return done
    return changed(order.model, net, memory, site, drawn_to(order, nets.width(site.world), site))


@step(spends=charged_before)
def measure_norms(order: Model, memory: Mine, site: Site[FDAN]) -> Outcome[Nothing, Mine]:
    """What batch norm measures at the site by w as it is now, for the scoring that follows. Nothing leaves."""
    _, mine = measured(order, memory, site)
    return Outcome(Nothing(), mine)


def with_model(order: Model, memory: Mine, site: Site[FDAN]) -> Mine:
    """w with the site's own statistics. It stores them, and its owner may export them."""
    return Mine(order.model, memory.buffers or order.buffers)


def drawn_to(order: Lesson, d: int, site: Site[FDAN]) -> Penalty | None:
    """lambda |mean psi(f) - partner|^2 of features f (b, d), the partner a constant; None if lambda is 0 or there is no partner.

    The mean over i of |. - m_i|^2 is |. - mean m_i|^2 plus a spread, which no feature changes.
    """
    c: FDAN = site.config
    weight = c.lam * ramp((site.round - 1) / c.rounds)
    if order.partner is None or not weight:
        return None
    by, partner = waves(order, d, site).to(site.device), order.partner.to(site.device, torch.float32)
    return lambda f: weight * ((psi(by, f).mean(0) - partner).square().sum() + order.spread)


def drawn_row_by_row(order: Lesson, net: nn.Module, site: Site[FDAN], meter: Meter) -> Penalty | None:
    """What each row adds to lambda |m - partner|^2 at the site's own noised moment m: 2 lambda (m - partner) . psi(f).

    Its gradient, as a mean over rows, is that of the distance at the order's weights. m is asked for anew: a memory of an earlier
    version has no place for the one that was sent.
    """
    c: FDAN = site.config
    weight = c.lam * ramp((site.round - 1) / c.rounds)
    if order.partner is None or not weight:
        return None
    by = waves(order, nets.width(site.world), site)
    towards = 2 * weight * (noised_moment(by, net, site, meter) - order.partner.float()).to(site.device)
    by = by.to(site.device)
    return lambda f: (psi(by, f).mean(0) * towards).sum()


def noised_moment(by: feature_maps.Waves, net: nn.Module, site: Site[FDAN], meter: Meter) -> Tensor:
    """m with noise (D,), none of whose numbers is larger than one of psi can be."""
    features, here = net.eval().get_submodule("features"), by.to(site.device)
    D = len(by.phase)
    (total,) = statistics(site, meter, lambda x: [psi(here, features(x))], [Bound(LONGEST, D)])
    most = math.sqrt(2 / D)
    return (total / meter.asked.rows).clamp(-most, most).float()


def waves(order: Waves, d: int, site: Site[FDAN]) -> feature_maps.Waves:
    """The random features that all sites share."""
    return feature_maps.waves(site.config.features, d, order.s2, Generator().manual_seed(order.seed))


def changed(w: Weights, net: nn.Module, memory: Mine, site: Site[FDAN], penalty: Penalty | None) -> Outcome[Change, Mine]:
    """What training makes of w. Where there is nothing to learn from, nothing changes. Statistics of the way are not kept."""
    loss, c = objective(site, penalty), site.config
    value = 0.0
    if loss is not None:
        data = site.data if site.data.labelled else replace(site.data, y=torch.zeros(len(site.data), dtype=torch.int64))
        value = train_at(site, net, loss, epochs=c.epochs, batch=c.batch, data=data, least=LEAST)
    made = nets.weights_of(net)
    delta = weighted_sum([(1.0, {name: made[name] for name in w}), (-1.0, w)])
    return Outcome(Change(delta), memory, {"loss": value})


def objective(site: Site[FDAN], penalty: Penalty | None) -> Callable[[nn.Module, Tensor, Tensor], Tensor] | None:
    """The loss of a batch; None for rows without labels that are drawn nowhere."""
    data = site.data
    if penalty is None:
        return loss_at(site) if data.labelled else None
    labels = criterion(site.config, data.y, site.world.classes, site.device)

    def loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        f = net.get_submodule("features")(x)
        apart = penalty(f)
        return labels(net.get_submodule("classifier")(f), y) + apart if data.labelled else apart

    return loss


def measured(order: Model, memory: Mine, site: Site[FDAN]) -> tuple[nn.Module, Mine]:
    """The network by w with batch-norm statistics of the site's own rows, which it stores."""
    net = network(order, memory, site)
    remeasure(net, site.data.x, site.config.batch, site.rng, site.device, site.tick)
    made = nets.weights_of(net)
    return net, replace(memory, buffers={name: made[name] for name in order.buffers})


def network(order: Model, memory: Mine, site: Site[FDAN]) -> nn.Module:
    """w with the site's own batch-norm statistics, or those of the beginning, on the site's device."""
    return nets.loaded(site.world, {**order.model, **(memory.buffers or order.buffers)}, site.device)


def check_rows(site: Site[FDAN]) -> None:
    """Raises DataRefused for a site with few rows: their moment would nearly be a row."""
    if len(site.data) < LEAST and not site.private:
        raise DataRefused(
            f"The site has {len(site.data)} training rows, and the mean of features over fewer than {LEAST} would nearly be one",
            "Leave the site out, or give it more data",
        )


def predict_own(order: T, memory: Mine, site: Site[FDAN], x: Tensor) -> Tensor:
    """Outputs of the model in the site's memory."""
    net = nets.loaded(site.world, {**memory.model, **memory.buffers}, site.device)
    return outputs(net, x, site.device)


def own_model(config: FDAN, world: World, memory: Mine) -> Weights:
    """w with the site's own statistics, once it was scored."""
    return {**memory.model, **memory.buffers} if memory.model else {}


def keepsakes(config: FDAN, memory: Mine) -> dict[str, dict[str, Tensor]]:
    """w with the site's own statistics as one state dict, once it was scored."""
    return {"model": {**memory.model, **memory.buffers}} if memory.model else {}
