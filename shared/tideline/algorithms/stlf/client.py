"""A device's side: train alone, train classifiers with partners (algorithm 1), take the weighted mean of its sources (eq. 12)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import torch
from torch import Generator, Tensor, nn

from tideline import nets
from tideline.algorithms.averaging import predict_by
from tideline.algorithms.averaging.messages import Model, Trained
from tideline.algorithms.stlf import messages
from tideline.algorithms.stlf.messages import Curve, Mine, Span
from tideline.algorithms.stlf.settings import STLF
from tideline.core.asked.world import World
from tideline.core.errors import StepFailed
from tideline.core.handle import Handle, check_due
from tideline.core.record import Nothing, Weights
from tideline.core.run import ClientId
from tideline.core.step import Data, Moved, Outcome, Site, step
from tideline.learning.evaluate import outputs
from tideline.learning.fit import cross_entropy, fit_at, uncounted
from tideline.learning.loading.ahead import in_parts
from tideline.learning.local_training import loss_at, optimiser, rate_at
from tideline.learning.scoring.judging import Judged
from tideline.learning.stepping import Steps
from tideline.nets import layers
from tideline.numerics.aggregation.averaging import weighted_sum
from tideline.numerics.alignment.divergences import exceeding
from tideline.numerics.labels.scores import share_right

MAIN = "plan"  # the rule that is the method's own
OFFERS = 2  # times that sources are asked for their models: again only for links that were made anew as others did not answer


def prepare(config: STLF, site: Site[STLF]) -> Mine:
    """Which labelled rows measure the error, drawn once: never all of them, and none where there are but two."""
    n = len(site.data) if site.data.labelled else 0
    held = min(round(n * config.validation), n - 1) if n > 2 else 0
    rows = torch.randperm(n, generator=site.rng)[:held].sort().values
    return Mine(validation=rows, h={}, own={}, models={}, fetched={}, sent=Span())


def teaching(memory: Mine, data: Data) -> Data:
    """The labelled rows that are learnt from."""
    assert data.y is not None
    kept = torch.ones(len(data), dtype=torch.bool)
    kept[memory.validation] = False
    rows = kept.nonzero().flatten()
    return data if bool(kept.all()) else replace(data, x=data.x.at(rows), y=data.y[rows], domain=data.domain[rows])


def trained(model: Weights, memory: Mine, site: Site[STLF], epochs: int, rate: float) -> tuple[nn.Module, float]:
    """A network after so many epochs on the labelled rows at a rate, and its last mean loss."""
    c, net = site.config, nets.loaded(site.world, model, site.device)
    data = teaching(memory, site.data)
    by = optimiser(c, net.parameters(), rate, c.momentum, c.weight_decay)
    loss = fit_at(
        site, net, loss_at(site, data), by, epochs=epochs, batch=c.batch, data=data, clip=c.clip_gradient, patience=c.patience
    )
    return net, loss


@step(metrics=("loss", "samples"))
def warm(order: Model, memory: Mine, site: Site[STLF]) -> Outcome[messages.Update, Mine]:
    """A round of federated averaging: weights that are to be averaged later must not have drifted apart (section VI)."""
    c: STLF = site.config
    net, loss = trained(order.model, memory, site, c.epochs, rate_at(c, c.rate, site.round, c.rounds))
    count = len(teaching(memory, site.data))
    return Outcome(messages.Update(nets.weights_of(net), count), memory, {"loss": loss, "samples": count})


@step(metrics=("error",))
def train(order: Model, memory: Mine, site: Site[STLF]) -> Outcome[messages.Profile, Mine]:
    """h_i from the common model, and eps_i of eq. 3. Without labels there is no h_i, and every row counts as wrong."""
    data = site.data
    if not data.labelled:
        return Outcome(messages.Profile(data.count, 0, 1.0), memory, {"error": 1.0})
    net, _ = trained(order.model, memory, site, site.config.alone, site.config.rate)
    labelled = len(data) / data.count
    error = labelled * wrong(net, memory, site) + (1 - labelled)
    return Outcome(messages.Profile(data.count, len(data), error), replace(memory, h=nets.weights_of(net)), {"error": error})


def wrong(net: nn.Module, memory: Mine, site: Site[STLF]) -> float:
    """The share of wrong predictions on the rows kept for that; on all labelled ones where none are."""
    data = site.data
    assert data.y is not None
    rows = memory.validation if len(memory.validation) else torch.arange(len(data))
    guess = outputs(net, data.x.at(rows), site.device).argmax(1)
    return float((guess != data.y[rows]).double().mean())


@step(metrics=("separation",))
def separate(order: messages.Pairs, memory: Mine, site: Site[STLF]) -> Outcome[messages.Separated, Mine]:
    """One exchange of algorithm 1 with each partner: both set w to the mean of their halves, and train it on own rows."""
    own: dict[str, Weights] = {}
    losses = []
    for done, partner in enumerate(order.partners):
        theirs = order.theirs.get(partner)
        start = met(theirs, partner, memory, site, site.round - 1) if theirs else order.start
        net = nets.loaded(site.world, start, site.device, telling(2))
        losses.append(separation_epoch(net, int(site.me > partner), site))
        own[partner] = nets.weights_of(net)
        site.tick((done + 1) / len(order.partners))
    handles = {partner: Handle.of(messages.Separator(w), [ClientId(partner)]) for partner, w in own.items()}
    metrics = {"separation": sum(losses) / max(len(losses), 1)}
    return Outcome(messages.Separated(handles), replace(timed(memory, site), own=own), metrics)


def timed(memory: Mine, site: Site[STLF]) -> Mine:
    """The memory with what this exchange's transfers took, if the run is to measure that."""
    if not site.config.measured:
        return memory
    fetched = {str(name): longer(memory.fetched.get(name, Span()), moved) for name, moved in site.transfers.fetched.items()}
    return replace(memory, fetched={**memory.fetched, **fetched}, sent=longer(memory.sent, site.transfers.sent))


def longer(span: Span, moved: Moved) -> Span:
    return Span(span.size + moved.size, span.seconds + moved.seconds)


def rate_of(span: Span) -> float:
    """Bit/s; 0 where nothing was measured."""
    return 8 * span.size / span.seconds if span.seconds > 0 else 0.0


def met(handle: Handle[messages.Separator], partner: str, memory: Mine, site: Site[STLF], number: int) -> Weights:
    """The mean of both halves. Raises StepFailed for a half of another, or of another exchange than is due, or network."""
    check_due(handle, partner, "separate", number)
    mine, theirs = memory.own[partner], site.fetch(handle).w
    return weighted_sum([(0.5, mine), (0.5, of_network(theirs, mine, f"classifier of {handle.holder}"))])


def of_network(theirs: Weights, mine: Weights, what: str) -> Weights:
    """What a peer gave. Raises StepFailed where it does not fit this site's network."""
    if not layers.alike(theirs, mine):
        raise StepFailed(f"The {what} is of another network", "Install the same version at both sites")
    return theirs


def telling(devices: int) -> Callable[[World], nn.Module]:
    """What builds the world's network with an output for each of so many devices: two of a pair, mine and yours."""
    return lambda world: nets.build(nets.of_classes(world, max(devices, 2)))


def separation_epoch(net: nn.Module, label: int, site: Site[STLF]) -> float:
    """An epoch of plain SGD on a share of own rows with one label, in place; the mean loss."""
    by, losses = torch.optim.SGD(net.parameters(), lr=site.config.rate), []
    descent = Steps(net, cross_entropy, by)
    net.train()
    with uncounted(net):
        for x in sampled(site.data, site.config.share, site.config.batch, site.rng, site.least_rows):
            losses.append(descent.take(x.to(site.device), torch.full((len(x),), label, device=site.device)))
        descent.flush()
    return sum(map(float, losses)) / len(losses)


def sampled(data: Data, share: float, batch: int, rng: Generator, least: int = 1) -> Iterator[Tensor]:
    """Mini-batches of a share of all rows, or of so many at least, rounded up to full batches, in random order."""
    n = min(math.ceil(max(share * data.count, least) / batch) * batch, data.count)
    for rows in torch.split(torch.randperm(data.count, generator=rng)[:n], batch):
        if len(rows) > 1 or n == 1:  # batch norm has no variance of a single row
            yield rows_of(data, rows, rng)


def rows_of(data: Data, rows: Tensor, rng: Generator) -> Tensor:
    """Rows to train on by number, those without labels behind the others."""
    if data.bare is None:
        return data.x.batch(rows, rng)
    first, rest = rows[rows < len(data)], rows[rows >= len(data)] - len(data)
    return torch.cat([data.x.batch(first, rng), data.bare.batch(rest, rng)])


def every(data: Data) -> Iterator[Tensor]:
    """All rows, as many at once as a network takes."""
    for part in (data.x,) if data.bare is None else (data.x, data.bare):
        yield from in_parts(part)


@step()
def measure(order: messages.Pairs, memory: Mine, site: Site[STLF]) -> Outcome[messages.Errors, Mine]:
    """err_i of algorithm 1 for each partner: how often the finished classifier takes own rows for the partner's."""
    errors: dict[str, Curve] = {}
    for partner in order.partners:
        w = met(order.theirs[partner], partner, memory, site, site.round * site.config.exchanges)
        net = nets.loaded(site.world, w, site.device, telling(2))
        errors[partner] = mistaken(net, int(site.me < partner), int(site.me > partner), site)
    memory = timed(memory, site)
    rates = {partner: rate_of(memory.fetched[partner]) for partner in order.partners if partner in memory.fetched}
    return Outcome(messages.Errors(errors, rates, rate_of(memory.sent)), replace(memory, own={}))


def mistaken(net: nn.Module, theirs: int, mine: int, site: Site[STLF]) -> Curve:
    """The share of own rows whose output for the partner is larger than that for this device, by so much."""
    found = [o[:, theirs] - o[:, mine] for o in (outputs(net, x, site.device) for x in every(site.data))]
    return Curve(exceeding(torch.cat(found)))


@step(metrics=("separation",))
def train_shared(order: messages.Whose, memory: Mine, site: Site[STLF]) -> Outcome[Trained, Mine]:
    """The cheaper way: one classifier of all devices, by federated averaging."""
    net = nets.loaded(site.world, order.model, site.device, telling(len(order.names)))
    loss = separation_epoch(net, order.names.index(site.me), site)
    return Outcome(Trained(nets.weights_of(net)), memory, {"separation": loss})


@step()
def measure_all(order: messages.Whose, memory: Mine, site: Site[STLF]) -> Outcome[messages.Errors, Mine]:
    """For each other device, how often its output is larger than this one's."""
    net = nets.loaded(site.world, order.model, site.device, telling(len(order.names)))
    me = order.names.index(site.me)
    return Outcome(
        messages.Errors({n: mistaken(net, i, me, site) for i, n in enumerate(order.names) if i != me}, {}, 0.0), memory
    )


@step()
def describe(order: Nothing, memory: Mine, site: Site[STLF]) -> Outcome[messages.Summary, Mine]:
    """Mean and variance of each number of a row, over all rows."""
    total, squares = (torch.zeros(math.prod(site.world.inputs), dtype=torch.float64) for _ in range(2))
    for x in every(site.data):
        flat = x.flatten(1).double()
        total, squares = total + flat.sum(0), squares + (flat**2).sum(0)
    mean = total / site.data.count
    variance = (squares / site.data.count - mean**2).clamp(min=0)
    return Outcome(messages.Summary(mean.float(), variance.float()), memory)


@step()
def offer(order: messages.Targets, memory: Mine, site: Site[STLF]) -> Outcome[messages.Offered, Mine]:
    """h_i, for the devices that are to get it alone."""
    if not memory.h:
        raise StepFailed("This device has no labels, so no model to offer", "The coordinator asks for what is not there")
    return Outcome(messages.Offered(Handle.of(messages.Hypothesis(memory.h), map(ClientId, order.names))), memory)


@step()
def transfer(order: messages.Assignment, memory: Mine, site: Site[STLF]) -> Outcome[Nothing, Mine]:
    """h_j = sum_i alpha_ij h_i (eq. 12) for each rule by which this device is a target; else it keeps its own."""
    models = {rule: mixed(order, rule, site) if target else memory.h for rule, target in order.target.items()}
    return Outcome(Nothing(), replace(memory, models={rule: model for rule, model in models.items() if model}))


def mixed(order: messages.Assignment, rule: str, site: Site[STLF]) -> dict[str, Tensor]:
    """The weighted mean of a target's sources, one of them in memory at a time."""
    found = [(name, share) for name, share in sorted(order.sources.items()) if share.weight.get(rule, 0.0) > 0]
    if not found:
        raise StepFailed(f"This device is a target by the rule {rule} and gets no model", "See the run's links")
    for name, share in found:
        check_due(share.h, name, "offer", *range(1, OFFERS + 1))
    like, shares = nets.template(site.world), ((share.weight[rule], share.h) for _, share in found)
    return weighted_sum((weight, of_network(site.fetch(h).h, like, f"model of {h.holder}")) for weight, h in shares)


def named(rules: Iterable[str]) -> dict[str, str]:
    """What the accuracy of each compared rule's model is called."""
    return {rule: f"accuracy_{rule}" for rule in rules}


def judge(order: Nothing, memory: Mine, site: Site[STLF]) -> Judged:
    """The method's own model on rows, beside the accuracies of other rules' models."""
    rules = [rule for rule in (MAIN, *site.config.compare) if rule in memory.models]
    found = {rule: predict_by(memory.models[rule], memory, site, site.data.x) for rule in rules}
    out, y = found.pop(MAIN, None), site.data.y
    others = {} if y is None else {named(found)[rule]: share_right(each, y) for rule, each in found.items()}
    return Judged(out, others)


def own_model(config: STLF, world: World, memory: Mine) -> Weights:
    """The device's own model, or the mean of its sources', once it is known which of the two it has."""
    return memory.models.get(MAIN, {})


def keepsakes(config: STLF, memory: Mine) -> Mapping[str, Mapping[str, Tensor]]:
    """The device's model: its own, or the mean of its sources'."""
    return {"model": memory.models[MAIN]} if MAIN in memory.models else {}
