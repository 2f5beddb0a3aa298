"""What a target makes of the dictionary: classifiers -R and -E, a choice among them without labels, labelled summaries.

All of it is computed at the target and kept there (section 3.4). Only accuracies leave, and only where its owner has labels to
score with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tideline.algorithms.feddadil.messages import Adapting, Labelled, Linear, Mine
from tideline.core.record import Nothing
from tideline.core.step import Outcome, Site, step
from tideline.numerics import softmax
from tideline.numerics.barycenter import Barycenter, barycenter
from tideline.numerics.selection import merit

if TYPE_CHECKING:
    from tideline.algorithms.feddadil import Config

SOURCE, HEAD = "source", "head"  # candidates that know nothing of the dictionary: the network, the linear layer


@step()
def adapt(order: Adapting, memory: Mine, site: Site) -> Outcome[Nothing, Mine]:
    """Fit -R and -E on the dictionary as it is after this pass; choose among all passes so far; after the last, summarise."""
    c: Config = site.config
    z, y = order.z.float(), order.y.float()
    at = passes(c)[site.round - 1]
    whole = support(z, y, memory.alpha, z.shape[1], site)
    made = {f"r{at}": reconstruction(whole, c), f"e{at}": ensemble(z, y, memory.alpha, c)}
    heads = {HEAD: Linear(order.head.weight[None], order.head.bias[None], torch.ones(1))} if len(order.head.bias) else {}
    candidates = {**memory.candidates, **heads, **made}
    merits = {name: merit(c.choice, guess, memory.z) for name, guess in guesses(candidates, memory).items()}
    mine = replace(memory, candidates=candidates, merits=merits, chosen=best(merits))
    if at == c.rounds:
        mine = replace(mine, picture=Labelled(whole.z, whole.y), summaries=summaries(z, y, memory.alpha, site))
    return Outcome(Nothing(), mine)


def passes(c: Config) -> tuple[int, ...]:
    """After which passes a target adapts: every so many, and after the last."""
    return tuple(r for r in range(1, c.rounds + 1) if r == c.rounds or r % c.adapt_every == 0)


def support(z: Tensor, y: Tensor, alpha: Tensor, n_b: int, site: Site) -> Barycenter:
    """B(alpha; P) with so many points."""
    c: Config = site.config
    return barycenter(*(z, y, alpha, n_b, site.rng), start=c.start, beta=c.beta, entropy=c.entropy, iterations=c.iterations)


def reconstruction(b: Barycenter, c: Config) -> Linear:
    """-R (eq. 14): one classifier on the barycenter's points and soft labels."""
    h = softmax.fit(b.z, b.y, l2=c.classifier_l2)
    return Linear(h.weight[None], h.bias[None], torch.ones(1))


def ensemble(z: Tensor, y: Tensor, alpha: Tensor, c: Config) -> Linear:
    """-E (eq. 15): one classifier an atom, their probabilities weighed by alpha."""
    h = [softmax.fit(z_k, y_k, l2=c.classifier_l2) for z_k, y_k in zip(z, y, strict=True)]
    return Linear(torch.stack([each.weight for each in h]), torch.stack([each.bias for each in h]), alpha)


def probabilities(linear: Linear, z: Tensor) -> Tensor:
    """sum_m share_m h_m(z): z (b, d) -> (b, n_c)."""
    members = zip(linear.share, linear.weight, linear.bias, strict=True)
    return sum((s * softmax.probabilities(softmax.Linear(w, b), z) for s, w, b in members), torch.zeros(()))


def guesses(candidates: Mapping[str, Linear], memory: Mine) -> dict[str, Tensor]:
    """What each candidate makes of the training rows (n_l, n_c); the network's guess was made when the rows were embedded."""
    made = {name: probabilities(linear, memory.z) for name, linear in candidates.items()}
    return {SOURCE: memory.guess, **made} if len(memory.guess) else made


def best(merits: Mapping[str, float]) -> str:
    """The candidate of the largest merit; among equals the first by name, so that nothing depends on the order."""
    return max(sorted(merits), key=lambda name: merits[name])


def summaries(z: Tensor, y: Tensor, alpha: Tensor, site: Site) -> dict[str, Labelled]:
    """Distillation: for each SPC a barycenter of n_c * SPC points, a labelled summary of an unlabelled site."""
    made = {str(spc): support(z, y, alpha, spc * site.world.classes, site) for spc in site.config.distil}
    return {name: Labelled(b.z, b.y) for name, b in made.items()}
