"""Both parties' side: where all begin, each one's half of the identifier's gradient, and step 6: what sources send of G and C.

Batch norm's statistics are no part of what is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, count

import torch
from torch import Tensor, nn

from tideline import nets
from tideline.algorithms.fada.messages import Common, Contribution, Half, Halves, Identifiers, Mine
from tideline.algorithms.fada.settings import DELTA, GRAD, LEAST, PARAM, Either, aligns, disentangles
from tideline.core.errors import DataRefused, Malformed, StepFailed
from tideline.core.handle import Handle, check_due
from tideline.core.record import Nothing, Weights
from tideline.core.run import Role
from tideline.core.step import Outcome, Site, step
from tideline.learning.evaluate import outputs
from tideline.learning.fit import batches, remeasure
from tideline.learning.loading.ahead import drawn as in_batches
from tideline.nets.disentangling import beside, logits
from tideline.nets.layers import alike, trained
from tideline.numerics.aggregation.averaging import weighted_sum
from tideline.numerics.alignment.adversarial import bounded, error_of, identifier_loss

NOT_NUMBERS = ("NotFinite", "OutOfRange")

SOURCE = "source"  # the phase of averaging among sources
IMPROVE = "improve"


def extractor(weights: Weights) -> dict[str, Tensor]:
    """What of G is trained."""
    return {name: w for name, w in trained(weights).items() if name.startswith("features.")}


def shifted(theta: Weights, drift: Weights, a: float) -> dict[str, Tensor]:
    """theta + a drift, of what has drifted."""
    return {name: theta[name] + a * d for name, d in drift.items()}


def moved(mode: str, before: Weights, after: Weights) -> dict[str, Tensor]:
    """A contribution after local steps: the change, or what came of it."""
    return {name: w - before[name] if mode == DELTA else w for name, w in after.items()}


def applied(mode: str, theta: Weights, terms: Iterable[tuple[float, Weights]], rate: float) -> dict[str, Tensor]:
    """theta + sum_i w_i Delta_i, theta - eta sum_i w_i g_i, or sum_i w_i theta_i: what has no weight is no part of the sum."""
    used = ((w, each) for w, each in terms if w != 0)
    if mode == PARAM:
        return weighted_sum(used)
    sign = -rate if mode == GRAD else 1.0
    return weighted_sum(chain([(1.0, theta)], ((sign * w, each) for w, each in used)))


def toward(mode: str, theta: Weights, w: float, each: Weights, rate: float) -> dict[str, Tensor]:
    """theta after one source's contribution alone, at its weight."""
    if mode == PARAM:
        return weighted_sum([(1 - w, theta), (w, each)])
    return applied(mode, theta, [(w, each)], rate)


@dataclass(frozen=True)
class Due:
    """Which exchange contributions have to be of, and what they have to be like."""

    phase: str
    round: int
    like: Weights


def fetched(handle: Handle[Contribution], holder: str, due: Due, site: Site[Either]) -> Weights | None:
    """What a source contributes; None where its numbers are not finite. Raises StepFailed as `opened` does."""
    given = opened(handle, holder, due, site)
    return None if given is None else given.theta


def opened(handle: Handle[Contribution], holder: str, due: Due, site: Site[Either]) -> Contribution | None:
    """A source's contribution; None where its numbers are not finite.

    Raises StepFailed for one of another holder or exchange than is due, or of another network.
    """
    check_due(handle, holder, due.phase, due.round)
    try:
        made: Contribution = site.fetch(handle)
    except Malformed as error:
        if error.kind in NOT_NUMBERS:
            return None
        raise
    if not alike(made.theta, due.like) or (made.start and not alike(made.start, due.like)):
        raise StepFailed(f"What {holder} sealed is of another network", "Install the same version at both sites", holder=holder)
    return made


def usable(handles: Mapping[str, Handle[Contribution]], due: Due, site: Site[Either]) -> list[str]:
    """The sources whose contributions can be used, sorted; one of them in memory at a time."""
    return [name for name in sorted(handles) if fetched(handles[name], name, due, site) is not None]


def weighed(
    handles: Mapping[str, Handle[Contribution]], w: Mapping[str, float], due: Due, site: Site[Either]
) -> Iterator[tuple[float, Weights]]:
    """Each usable contribution with its weight, one of them in memory at a time."""
    for name in sorted(w):
        theta = fetched(handles[name], name, due, site)
        assert theta is not None
        yield w[name], theta


def together(
    mode: str, theta: Weights, handles: Mapping[str, Handle[Contribution]], due: Due, site: Site[Either]
) -> dict[str, Tensor]:
    """What all sources made, each counted alike; theta as it is where there is nothing to use."""
    names = usable(handles, due, site)
    if not names:
        return dict(theta)
    return applied(mode, theta, weighed(handles, dict.fromkeys(names, 1 / len(names)), due, site), site.config.rate_of(due.round))


def prepare(config: Either, site: Site[Either]) -> Mine:
    """No model yet. At a target, which rows are clustered: drawn once, so that gains tell of models and not of rows.

    Raises DataRefused for a site without rows, and, where halves are sent, for one of fewer than these may be of.
    """
    n = len(site.data)
    if n == 0:
        raise DataRefused("The site has no training rows", "Give it data, or leave it out of the roster")
    if aligns(site.config):
        enough(n)
    rows = torch.randperm(n, generator=site.rng)[: site.config.clustered].sort().values
    none, mine = rows[:0], rows if site.role is Role.TARGET else rows[:0]
    return Mine(
        model={},
        common={},
        drift={},
        beside={},
        rows=mine,
        points=torch.zeros(0, 2),
        guess=none,
        drawn=none,
        seed=0,
        key=torch.zeros(0, dtype=torch.uint8),
        w={},
        gains={},
    )


def loaded(memory: Mine, site: Site[Either]) -> nn.Module:
    return nets.loaded(site.world, memory.model, site.device)


def met(order: Common, memory: Mine, site: Site[Either], number: int) -> dict[str, Tensor]:
    """The mean of what sources sent in a round of averaging, beside batch norm's statistics of this site."""
    model = memory.model or order.start
    return {**model, **together(PARAM, trained(model), order.models, Due(SOURCE, number, trained(order.start)), site)}


@step(metrics=("missing",))
def share(order: Common, memory: Mine, site: Site[Either]) -> Outcome[Nothing, Mine]:
    """All begin alike: G_i <- G, C_i <- C. A source draws its networks beside them, a target measures its own statistics."""
    memory = replace(memory, model=met(order, memory, site, site.config.source_rounds))
    if site.role is Role.SOURCE:
        own = nets.weights_of(beside(site.world)) if disentangles(site.config) else {}
        return Outcome(Nothing(), replace(memory, beside=own), {"missing": missing(site)})
    net = loaded(memory, site)
    measure(net, site)
    return Outcome(Nothing(), replace(memory, model=nets.weights_of(net)))


def missing(site: Site[Either]) -> int:
    """Classes that a source has no row of."""
    assert site.data.y is not None
    return site.world.classes - len(torch.unique(site.data.y))


def measure(net: nn.Module, site: Site[Either]) -> None:
    """Batch norm's statistics of the target's rows under the weights of now, in place; of a single row they stay as they are."""
    if len(site.data) > 1:
        remeasure(net, site.data.x, nets.rows_of(site.data.x), site.rng, site.device)


@contextmanager
def unmoved(net: nn.Module) -> Iterator[None]:
    """Leave what batch norm measures as it is found."""
    found = {name: b.clone() for name, b in net.named_buffers()}
    yield
    for name, b in net.named_buffers():
        b.copy_(found[name])


def enough(n: int) -> None:
    """Raises DataRefused for fewer rows than a half may be of."""
    if n < LEAST:
        rows = "row" if n == 1 else "rows"
        what = (
            f"The site has {n} training {rows}; what DI learns from them would tell of single rows where they are below {LEAST}"
        )
        raise DataRefused(what, "Leave the site out, or give it more data")


def drawn(site: Site[Either], size: int) -> Tensor:
    """Numbers of the rows of one mini-batch. Raises DataRefused for a site that has fewer than a half may be of."""
    n = len(site.data)
    enough(n)
    return torch.randperm(n, generator=site.rng)[:size]


@step(metrics=("loss", "error"))
def identify(order: Identifiers, memory: Mine, site: Site[Either]) -> Outcome[Halves, Mine]:
    """This party's half of the gradient of eq. 4 for each pair that it is of, G held. Features stay."""
    net = loaded(memory, site)
    net.train()
    with torch.no_grad(), unmoved(net):
        f = net.get_submodule("features")(site.data.x.batch(drawn(site, site.config.identify_batch), site.rng).to(site.device))
    found = {name: half(di.theta, f, site.role is Role.SOURCE) for name, di in order.di.items()}
    halves = {name: each for name, each in found.items() if each is not None}
    n = max(len(halves), 1)
    metrics = {"loss": sum(h.loss for h in halves.values()) / n, "error": sum(h.error for h in halves.values()) / n}
    return Outcome(Halves(halves), memory, metrics if halves else {})


def half(di: Tensor, f: Tensor, source: bool) -> Half | None:
    """The gradient of this party's term by DI, beside what DI makes of its rows; None where a number may not be sent."""
    di = di.to(f.device).requires_grad_()
    z = logits(di, f)
    loss = identifier_loss(z, source=source)
    (g,) = torch.autograd.grad(loss, di)
    if not bounded(g, loss):
        return None
    return Half(g.cpu(), float(loss.detach()), error_of(z.detach(), source=source), len(f))


def minibatches(site: Site[Either]) -> Iterator[tuple[Tensor, Tensor]]:
    """Numbers of rows (b,) and the rows (b, *inputs), for so many epochs or steps. None of a single row: batch norm has no
    variance of it.
    """
    c, n, done = site.config, len(site.data), 0
    if n < 2:
        return
    for epoch in count() if c.steps else range(c.epochs):
        with closing(in_batches(site.data.x, batches(n, c.batch, site.rng), site.rng, site.device)) as fed:
            for i, batch in enumerate(fed):
                yield batch
                done += 1
                site.tick(done / c.steps if c.steps else min(1.0, (epoch + (i + 1) * c.batch / n) / c.epochs))
                if done == c.steps:
                    return


def averaged(metrics: list[dict[str, float]]) -> dict[str, float]:
    """The mean of each metric over mini-batches, of those that are finite."""
    names = metrics[0] if metrics else {}
    means = {name: sum(each[name] for each in metrics) / len(metrics) for name in names}
    return {name: value for name, value in means.items() if abs(value) < float("inf")}


def predict(order: Nothing, memory: Mine, site: Site[Either], x: Tensor) -> Tensor:
    return outputs(loaded(memory, site), x, site.device)


def keepsakes(config: Either, memory: Mine) -> dict[str, Weights]:
    """A site's own network: of a target, G_t and C_t, and where its rows lie by G_t, coloured by C_t."""
    taken = {"model": memory.model} if memory.model else {}
    return {**taken, "picture": {"site": memory.points, "site_class": memory.guess}} if len(memory.points) else taken
