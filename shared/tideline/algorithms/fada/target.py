"""A target's side: G_t is aligned, each source's contribution is weighed by what it does for the target's clusters, and taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from tideline import nets
from tideline.algorithms.fada import client
from tideline.algorithms.fada.client import IMPROVE, Due, extractor, shifted
from tideline.algorithms.fada.messages import Follow, Followed, Identifier, Mine
from tideline.algorithms.fada.settings import FLATTENED, RAW, UNIFORM, Either, aligns, as_fada, forgets
from tideline.core.errors import StepFailed
from tideline.core.record import Weights
from tideline.core.step import Outcome, Site, step
from tideline.learning.fit import uncounted
from tideline.learning.local_training import optimiser, shorten
from tideline.nets.disentangling import logits
from tideline.nets.layers import trained
from tideline.numerics.alignment import adversarial as attention
from tideline.numerics.alignment.adversarial import finite, taken_for_source
from tideline.numerics.clustering.clusters import clusters, looseness, regrouped
from tideline.numerics.clustering.cosine import plane

WEIGHTS = {FLATTENED: attention.flattened, RAW: attention.raw, UNIFORM: attention.uniform}


def follow_metrics(c: Either) -> tuple[str, ...]:
    """Which metrics a target reports beside its gains."""
    watched = () if c.attention == UNIFORM else ("looseness",)
    return (*(("alignment",) if aligns(c) else ()), *watched, "spread")


@step(metrics=("alignment", "looseness", "spread"))
def follow(order: Follow, memory: Mine, site: Site[Either]) -> Outcome[Followed, Mine]:
    """Eq. 5 at the target, of whose earlier work a share is forgotten, eq. 3, and step 6.

    Batch norm measures the target's rows under the new weights.

    Raises StepFailed where G_t or C_t is no longer finite.
    """
    c, memory = site.config, begun_anew(order, memory, site)
    net = client.loaded(memory, site)
    losses = aligned(net, order.di, site)
    memory = forgotten(net, memory, c)
    due = Due(IMPROVE, site.round, trained(nets.weights_of(net)))
    names = client.usable(order.contributions, due, site)
    crowd = Crowd.of(net, memory, site)
    gained = crowd.gains(order, due, last_of(memory, names))
    memory = weighed_anew(memory, names, gained, c)
    now = {name: memory.w[name] for name in names} if gained else last_of(memory, names)
    if names:
        theta = client.applied(c.mode, due.like, client.weighed(order.contributions, now, due, site), c.rate_of(site.round))
        net.load_state_dict({**net.state_dict(), **theta})
    client.measure(net, site)
    model = nets.weights_of(net)
    if not finite(*model.values()):
        raise StepFailed("The target's model is no longer finite", "Lower the learning rate, or check the data")
    return Outcome(Followed(gained, now), pictured(replace(memory, model=model), net, site), losses | crowd.metrics())


def begun_anew(order: Follow, memory: Mine, site: Site[Either]) -> Mine:
    """Where a guide is named, the sources' beginning in place of its own, whose changes of a round it lacks.

    What eq. 5 made of G_t stays: what is left of earlier rounds, and what came in this one.
    """
    if order.guide not in order.contributions:
        return memory
    theta = trained(memory.model)
    made = client.opened(order.contributions[order.guide], order.guide, Due(IMPROVE, site.round, theta), site)
    if made is None or not made.start:
        return memory
    base = {**made.start, **shifted(made.start, memory.drift, 1.0)}
    pulled = {name: theta[name] - w for name, w in memory.common.items() if name in theta}
    common = extractor(base) if memory.common else memory.common
    return replace(memory, model={**memory.model, **base, **shifted(base, pulled, 1.0)}, common=common)


def pictured(memory: Mine, net: nn.Module, site: Site[Either]) -> Mine:
    """The memory with where the watched rows lie by the network, in a plane, and what it takes them for. It stays here."""
    f = nets.features(net, site.data.x.at(memory.rows), site.device)
    with torch.no_grad():
        guess = net.get_submodule("classifier")(f.to(site.device)).argmax(1).cpu()
    return replace(memory, points=plane(f), guess=guess)


def aligned(net: nn.Module, di: Mapping[str, Identifier], site: Site[Either]) -> dict[str, float]:
    """Eq. 5's half of the target's rows over all its pairs, DI and C held; in place. Nothing where G has nothing to learn."""
    moving, weight = list(net.get_submodule("features").parameters()), site.config.weight(site.round)
    if not di or not moving:
        return {}
    c: Either = site.config
    by, losses = optimiser(c, moving, c.rate_of(site.round), c.momentum, c.weight_decay), list[dict[str, float]]()
    pairs = [each.theta.to(site.device) for _, each in sorted(di.items())]
    net.train()
    with uncounted(net):
        for _, x in client.minibatches(site):
            f = net.get_submodule("features")(x)
            loss = weight * sum((taken_for_source(logits(each, f)) for each in pairs), f.new_zeros(())) / len(pairs)
            by.zero_grad(set_to_none=True)
            loss.backward()
            shorten(moving, c)
            by.step()
            losses.append({"alignment": float(loss.detach())})
    return client.averaged(losses)


def forgotten(net: nn.Module, memory: Mine, c: Either) -> Mine:
    """G_t without a share of what eq. 5 made of it in earlier rounds, in place, and what that comes to by now.

    Nothing holds G_t to classes, which it has no labels of: what alignment adds up to moves it away from the sources' classifier.
    """
    if not forgets(c):
        return memory
    before, now = memory.common or extractor(memory.model), extractor(nets.weights_of(net))
    old = memory.drift or {name: torch.zeros_like(w) for name, w in now.items()}
    drift = {name: c.kept * old[name] + w - before[name] for name, w in now.items()}
    net.load_state_dict({name: w - (1 - c.kept) * old[name] for name, w in now.items()}, strict=False)
    return replace(memory, common={}, drift=drift)


def last_of(memory: Mine, names: list[str]) -> dict[str, float]:
    """The weights stored of those who are here, brought to sum one."""
    w = kept_of(memory, names)
    total = sum(w.values())
    return {name: each / total if total else 1 / len(w) for name, each in w.items()}


def kept_of(memory: Mine, names: list[str]) -> dict[str, float]:
    """The weights stored of those who are here; of one that has none, the mean of the others'; equal ones where nobody has."""
    known = [memory.w[name] for name in names if name in memory.w]
    usual = sum(known) / len(known) if sum(known) else 1 / max(len(names), 1)
    return {name: memory.w.get(name, usual) for name in names}


def weighed_anew(memory: Mine, names: list[str], gained: Mapping[str, float], c: Either) -> Mine:
    """The memory with new weights by the gains. Without any they stay, so that who was away comes back to what it had."""
    if not gained:
        return replace(memory, w={**memory.w, **kept_of(memory, names)})
    so_far = memory.gains if c.attention == RAW else added_up(memory, names, gained)
    counted = gained if c.attention == RAW else so_far
    w = WEIGHTS[c.attention](as_fada(c).sharpness * torch.tensor([counted[k] for k in names], dtype=torch.float64))
    return replace(memory, gains=so_far, w={**memory.w, **dict(zip(names, w.tolist(), strict=True))})


def added_up(memory: Mine, names: list[str], gained: Mapping[str, float]) -> dict[str, float]:
    """Gains so far, each over N w: a contribution that weighs more does more. Flattened weights are never 0."""
    last = last_of(memory, names)
    return {**memory.gains, **{k: memory.gains.get(k, 0.0) + gained[k] / (len(names) * last[k]) for k in names}}


@dataclass(frozen=True)
class Crowd:
    """A fixed batch of the target's rows, as G_t has it: features f, and their clusters; none of fewer rows than classes."""

    net: nn.Module
    x: Tensor
    f: Tensor
    labels: Tensor | None
    site: Site[Either]

    @classmethod
    def of(cls, net: nn.Module, memory: Mine, site: Site[Either]) -> Crowd:
        """k-means, k = K, of features in evaluation mode, where weights depend on it."""
        x, K = site.data.x.batch(memory.rows), site.world.classes
        f = nets.features(net, x, site.device)
        grouped = site.config.attention != UNIFORM and len(f) >= K and finite(f)
        return cls(net, x, f, clusters(f, K, seed=0) if grouped else None, site)

    def gains(self, order: Follow, due: Due, w: Mapping[str, float]) -> dict[str, float]:
        """Eq. 3: how much tighter the clusters become with each source's contribution at its last weight.

        Nothing where there is one source, or weights are equal by rule.
        """
        if len(w) < 2 or self.labels is None:
            return {}
        c, now, found = self.site.config, looseness(self.f, self.labels), {}
        for name in sorted(w):
            theta = client.fetched(order.contributions[name], name, due, self.site)
            assert theta is not None
            found[name] = now - self.after(client.toward(c.mode, due.like, w[name], theta, c.rate_of(due.round)))
        return found

    def after(self, theta: Weights) -> float:
        """How loose the clusters are under other weights. Features that are not finite are no clusters at all."""
        assert self.labels is not None
        before = {name: p.detach().clone() for name, p in self.net.named_parameters()}
        self.net.load_state_dict(theta, strict=False)
        f = nets.features(self.net, self.x, self.site.device)
        self.net.load_state_dict(before, strict=False)
        return looseness(f, regrouped(f, self.site.world.classes, self.labels)) if finite(f) else 1.0

    def metrics(self) -> dict[str, float]:
        """How loose clusters are, and how far features spread, which shows a collapse."""
        spread = {"spread": float(self.f.double().var(0, correction=0).sum())} if finite(self.f) else {}
        return spread if self.labels is None else spread | {"looseness": looseness(self.f, self.labels)}
