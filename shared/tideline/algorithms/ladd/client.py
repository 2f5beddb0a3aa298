"""What LADD sends and stores, and a site's half: its style, and adaptation.

Who is in which cluster is a field of `State` and of no message.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from tideline import nets
from tideline.algorithms.source_free import source
from tideline.algorithms.source_free.adapting import adapt, optimiser_of, own_labels, seen
from tideline.algorithms.source_free.family import Counted, Mine, Model, Taught
from tideline.algorithms.source_free.private import adapting_spends, seen_rows
from tideline.core.asked.private import Meter
from tideline.core.errors import DataRefused
from tideline.core.privacy import TO_BOTH, Exposure
from tideline.core.record import Nothing, Weights, field, record
from tideline.core.step import AnyStep, Outcome, Site, Step, step
from tideline.learning.fit import fit_at, training_spends
from tideline.learning.loading.ahead import in_parts
from tideline.learning.private.statistics import Bound, each_row, statistics, statistics_spend
from tideline.learning.private.words import SUMMED
from tideline.nets import layers
from tideline.numerics.aggregation.averaging import weighted_sum
from tideline.numerics.alignment.feature_maps import amplitudes, mean_style, transfer, window_side
from tideline.numerics.labels.confidence import NONE, confident

if TYPE_CHECKING:
    from tideline.algorithms.ladd import Ladd, LaddPL, Styled

MEAN = "mean amplitude of the lowest frequencies of up to 100 training images"

M = TypeVar("M")
IMAGES = 100  # of a site, for its style
SURE = 0.9  # the most that a threshold may be (`confident`), which private runs take in the place of medians
TRANSFERRED = 0.5  # of a source's images, on average


@record
class Style:
    """Up, once: a site's style."""

    style: Tensor = field("channels window window", Exposure.STATISTIC, low=0, private=SUMMED, doc=MEAN)


@record
class SharedStyle:
    """Up, once, where sources train on images in the targets' styles: a site's style."""

    style: Tensor = field(
        "channels window window",
        Exposure.STATISTIC,
        audience=TO_BOTH,
        low=0,
        private=SUMMED,
        doc=f"{MEAN}; goes to the sources as it is",
    )


@record
class Lesson(Model):
    """Down, to a source: the network, and the styles that its images take."""

    styles: Tensor = field("N channels window window", doc="the targets' styles, without names")


@record
class Start:
    """Down, in a round of LADD: where training begins, and h_S, which it is held to. A site keeps both: large parts come once."""

    f: Weights = field(doc="f_c, the model of the site's cluster; the model of all for a site without one")
    source: Weights = field(doc="f_S, as the source left it")
    g: Weights = field(doc="the classifier of the source")


@record
class Pupil(Mine):
    """A site's memory under LADD. Empty before it has a model; without a teacher before the running mean begins."""

    source: Weights = field(doc="f_S, kept so that its large parts are not sent again")
    teacher: Weights = field(doc="f of the teacher: the running mean of the models that came")
    taken: int = field(doc="m: how many models it is the mean of")


@record
class State(Model):
    """What the coordinator knows: f is the mean over all sites, at first f_S."""

    source: Weights = field(doc="f_S")
    models: tuple[Weights, ...] = field(doc="f_c of each cluster; none while all have the model of all")
    members: dict[str, int] = field(doc="the cluster of each site that sent its style")
    styles: Weights = field(doc="the style of each of them")


# Style


def describing(shared: bool, memory_type: type[M]) -> AnyStep:
    """The step that sends a site's style: to the coordinator alone, or for sources too. memory_type: the method's."""
    gives = SharedStyle if shared else Style

    def run(order: Nothing, memory: M, site: Site[Styled]) -> Outcome[Style | SharedStyle, M]:
        style = noised_style(site, site.private) if site.private else own_style(site)
        return Outcome(gives(style), memory)

    made: AnyStep = Step(name="describe", run=run, takes=Nothing, keeps=memory_type, gives=gives)
    return replace(made, spends=lambda config, privacy: statistics_spend(privacy))


def noised_style(site: Site[Styled], meter: Meter) -> Tensor:
    """The mean style of all training images in a run that protects rows, (c, s, s), not below 0.

    Of an image whose numbers are between -1 and 1 no style is longer than sqrt(c) h w (Parseval); longer ones are shortened.
    """
    c, h, w = site.world.inputs
    s = window_side(h, w)
    (total,) = statistics(site, meter, lambda x: [amplitudes(x.double())], [Bound(math.sqrt(c) * h * w, c * s * s)])
    return (total / meter.asked.rows).clamp_min(0.0).view(c, s, s).float()


def own_style(site: Site[Styled]) -> Tensor:
    """The mean style of up to 100 training images, drawn at random: (c, s, s). Raises DataRefused for fewer than two.

    Of one image the style would be its own, and batch norm wants two or more later.
    """
    if len(site.data) < 2:
        few = "a single training row" if len(site.data) else "no training row"
        raise DataRefused(
            f"The site has {few}, and a style is a mean over two or more", "Leave the site out, or give it more data"
        )
    chosen = torch.randperm(len(site.data), generator=site.rng)[:IMAGES]
    return mean_style(site.data.x.batch(chosen)).float()


def teaching(memory_type: type[M]) -> AnyStep:
    """The step that trains the source model on images in the targets' styles. memory_type: the method's."""

    def run(order: Lesson, memory: M, site: Site[Styled]) -> Outcome[Taught, M]:
        change = restyled_alone(order.styles, site) if site.private else restyled(order.styles, site)
        message, metrics = source.trained(order.f, order.g, site, change)
        return Outcome(message, memory, metrics)

    made = Step(name="train_in_styles", run=run, takes=Lesson, keeps=memory_type, gives=Taught, metrics=("loss", "samples"))
    return replace(made, spends=source.source_spends)


def restyled_alone(styles: Tensor, site: Site[Styled]) -> Callable[[Tensor], Tensor]:
    """The same for each image by itself, with torch's own generator, which private training seeds; any number is valid."""
    given, free = styles.to(site.device), torch.tensor(torch.inf, device=site.device)

    def change(x: Tensor) -> Tensor:
        draw = torch.rand(len(x), 2, device=x.device)
        chosen = (draw[:, 1] * len(given)).long().clamp(max=len(given) - 1)
        made = transfer(x, given[chosen], -free, free)
        return torch.where((draw[:, 0] < TRANSFERRED)[:, None, None, None], made, x)

    return change


def restyled(styles: Tensor, site: Site[Styled]) -> Callable[[Tensor], Tensor]:
    """What gives each image of a batch, every other time, the style of a client drawn for it.

    The valid range is that of the source's own images, channel by channel: they need not lie between 0 and 1.
    """
    bounds = [torch.stack((part.amin((0, 2, 3)), part.amax((0, 2, 3)))) for part in in_parts(site.data.x)]
    lows, highs = torch.stack(bounds, 1)
    low, high = (of[:, None, None].to(site.device) for of in (lows.amin(0), highs.amax(0)))

    def change(x: Tensor) -> Tensor:
        taken = (torch.rand(len(x), generator=site.rng) < TRANSFERRED).nonzero().flatten()
        drawn = styles[torch.randint(len(styles), (len(taken),), generator=site.rng)]
        made = x.clone()
        made[taken.to(x.device)] = transfer(x[taken.to(x.device)], drawn.to(x.device), low, high)
        return made

    return change


# Adaptation


@step(metrics=("loss", "labelled", "samples"), spends=lambda config, privacy: training_spends(config.epochs, privacy))
def follow(order: Start, memory: Pupil, site: Site[Ladd]) -> Outcome[Counted, Pupil]:
    """E epochs from the cluster's model on the labels of which the teacher is sure, held to what h_S says."""
    memory, teacher = taught_by(order, memory, site)
    if site.private:
        return followed_privately(order, memory, teacher, site)
    labels = confident(seen(source.network(site, teacher, order.g), site).p)
    before = seen(source.network(site, order.source, order.g), site).p
    net = source.network(site, order.f, order.g)
    loss = distil(net, site, labels, before)
    share = float((labels != NONE).double().mean())
    return answer(net, replace(memory, source=order.source), site, {"loss": loss, "labelled": share})


@step(metrics=("loss", "samples"), spends=adapting_spends())
def by_prototypes(order: Model, memory: Mine, site: Site[LaddPL]) -> Outcome[Counted, Mine]:
    """E epochs from the cluster's model on L_IM + lambda L_CE, with its own prototype labels for the whole round."""
    net = source.network(site, order.f, order.g)
    return answer(net, memory, site, {"loss": adapt(net, site, own_labels(site))})


def followed_privately(order: Start, memory: Pupil, teacher: Weights, site: Site[Ladd]) -> Outcome[Counted, Pupil]:
    """`follow` in a run that protects rows: a teacher is sure of a row from SURE on, whatever it says of others."""
    before, said = (said_alone(source.network(site, f, order.g), site) for f in (order.source, teacher))
    top, guess = said.max(1)
    labels = guess.where(top > SURE, NONE)
    net = source.network(site, order.f, order.g)
    return answer(net, replace(memory, source=order.source), site, {"loss": distil(net, site, labels, before)})


def said_alone(net: nn.Module, site: Site[Ladd]) -> Tensor:
    """A network's outputs (n, M), of each row by itself."""
    return each_row(site, lambda x: seen_rows(net, x)[1])


def answer(net: nn.Module, memory: M, site: Site[Styled], metrics: dict[str, float]) -> Outcome[Counted, M]:
    """f_i and n_i, and their metrics."""
    f, n = layers.backbone_of(nets.weights_of(net)), site.samples
    return Outcome(Counted(f, n), memory, {**metrics, "samples": n})


def taught_by(order: Start, memory: Pupil, site: Site[Ladd]) -> tuple[Pupil, Weights]:
    """The teacher's f: the cluster's model as it came; from round t_s on the mean of those that came since, which is kept.

    A site that missed rounds has the mean of what it was sent.
    """
    if site.round < first_mean(site.config):
        return memory, order.f
    m = memory.taken
    terms = [(m / (m + 1), memory.teacher)] if m else []
    teacher = weighted_sum([*terms, (1 / (m + 1), order.f)])
    return replace(memory, teacher=teacher, taken=m + 1), teacher


def first_mean(c: Ladd) -> int:
    """t_s: as set, or half of the rounds."""
    return c.teacher_from or max(1, c.rounds // 2)


def distil(net: nn.Module, site: Site[Ladd], labels: Tensor, before: Tensor) -> float:
    """E epochs of SGD in place, g held: the mean loss of the last. labels (n,), -1 for none; before (n, M): outputs of h_S.

    Raises DataRefused for a site with a single row.
    """
    c: Ladd = site.config
    rows = replace(site.data, y=torch.arange(len(site.data)))

    def loss(net: nn.Module, x: Tensor, at: Tensor) -> Tensor:
        at = at.cpu()
        of = followed_alone if site.private else followed
        return of(net(x), labels[at].to(x.device), before[at].to(x.device), c.lambda_kd)

    return fit_at(site, net, loss, optimiser_of(net, site), epochs=c.epochs, batch=c.batch, data=rows, clip=c.clip_gradient)


def followed_alone(logits: Tensor, labels: Tensor, before: Tensor, lambda_kd: float) -> Tensor:
    """The same of single rows (1, M), without counting labels."""
    ce = functional.cross_entropy(logits, labels.clamp(min=0)) * (labels != NONE).all()
    return ce + lambda_kd * functional.kl_div(logits.log_softmax(1), before, reduction="batchmean")


def followed(logits: Tensor, labels: Tensor, before: Tensor, lambda_kd: float) -> Tensor:
    """CE with the pseudo-labels, over the rows that have one, + lambda_kd KL(h_S(x) || h(x)), over all: a scalar.

    logits (b, M), labels (b,) with -1 for none, before (b, M) probabilities. A batch without any label has no first term.
    """
    some = int((labels != NONE).sum())
    ce = functional.cross_entropy(logits, labels, ignore_index=NONE, reduction="sum") / max(some, 1)
    return ce + lambda_kd * functional.kl_div(logits.log_softmax(1), before, reduction="batchmean")
