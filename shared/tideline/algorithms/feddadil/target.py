"""What a target makes of the dictionary: classifiers -R and -E, a choice without labels, labelled summaries.

All of it is computed at the target and kept there (section 3.4). What leaves are metrics: the evidence that the choice was made
from and, where its owner has labels to score with, accuracies. Scoring on held-out rows reports what was chosen, what it was
chosen from, and what a perfect choice would have been.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tideline import nets
from tideline.algorithms.feddadil.client import common, embedded, own
from tideline.algorithms.feddadil.messages import Adapting, Heads, Labelled, Linear, Mine
from tideline.core.asked.world import World
from tideline.core.record import Nothing
from tideline.core.run import Role
from tideline.core.step import Outcome, Site, step
from tideline.learning.evaluate import outputs
from tideline.learning.scoring.judging import Judged
from tideline.numerics.aggregation.averaging import on_simplex
from tideline.numerics.clustering.cosine import plane
from tideline.numerics.labels import softmax
from tideline.numerics.labels.confidence import disagreement, evidence, neighbours
from tideline.numerics.labels.scores import share_right
from tideline.numerics.transport.optimal_transport import Barycenter, barycenter

if TYPE_CHECKING:
    from tideline.algorithms.feddadil import Config

NONE, OWN, COMMITTEE, R, E = "none", "own", "committee", "r", "e"
BY_ROWS, BY_SITES, BY_OWN = range(3)  # the linear layers of the sources
CONTRAST = 0.05  # of the weight must move between sources for s to tell anything
KEPT = 3  # passes of adaptation whose classifiers are averaged

PARTS = {COMMITTEE: dict.fromkeys((NONE, OWN, R, E), 0.25)}
# The accuracy of the unadapted model, and of what there was to choose from.
ACCURACIES = ("source_only", *(f"accuracy_{of}" for of in ("linear", "own", "r", "e", "committee", "oracle")))


@step()
def adapt(order: Adapting, memory: Mine, site: Site[Config]) -> Outcome[Nothing, Mine]:
    """Fit -R and -E on the dictionary as it is after this pass; choose; after the last pass, summarise."""
    c: Config = site.config
    z, y = order.z.float(), on_simplex(order.y.float())
    at = passes(c)[site.round - 1]
    whole = support(z, y, memory.alpha, z.shape[1], site)
    recent = passes(c)[: site.round][-KEPT:]
    h = fitted(whole.z, whole.y, c)
    reconstruction = Linear(h.weight[None], h.bias[None], torch.ones(1))  # -R (eq. 14): on the barycenter
    made = {f"{R}{at}": reconstruction, f"{E}{at}": ensemble(z, y, memory.alpha, c)}
    kept = {name: each for name, each in memory.candidates.items() if int(name[1:]) in recent}
    mine = replace(memory, heads=order.heads, candidates={**kept, **made})
    guess = guesses(mine, order.heads, mine.z, mine.guess, c)
    chosen, found = choice(guess, own(mine, c), c, order.heads.contrast)
    mine = replace(mine, chosen=chosen, evidence=found)
    if at == c.rounds:
        drawn = picture(own(mine, c), guess[chosen], Labelled(whole.z, whole.y))
        mine = replace(mine, picture=drawn, summaries=summaries(z, y, memory.alpha, site))
    return Outcome(Nothing(), mine)


def passes(c: Config) -> tuple[int, ...]:
    """After which passes a target adapts: every so many, and after the last."""
    return tuple(r for r in range(1, c.rounds + 1) if r == c.rounds or r % c.adapt_every == 0)


def support(z: Tensor, y: Tensor, alpha: Tensor, n_b: int, site: Site[Config]) -> Barycenter:
    """B(alpha; P) with so many points."""
    c: Config = site.config
    return barycenter(z, y, alpha, n_b, site.rng, start=c.start, iterations=c.iterations, beta=c.beta, entropy=c.entropy)


def ensemble(z: Tensor, y: Tensor, alpha: Tensor, c: Config) -> Linear:
    """-E (eq. 15): one classifier an atom, their probabilities weighed by alpha."""
    h = [fitted(z_k, y_k, c) for z_k, y_k in zip(z, y, strict=True)]
    return Linear(torch.stack([each.weight for each in h]), torch.stack([each.bias for each in h]), alpha)


def fitted(z: Tensor, y: Tensor, c: Config) -> softmax.Linear:
    """One linear layer and softmax; decay min(1, d / n) unless it is set."""
    return softmax.fit(z, y, l2=min(1.0, z.shape[1] / len(z)) if c.classifier_l2 is None else c.classifier_l2)


def probabilities(linear: Linear, z: Tensor) -> Tensor:
    """sum_m share_m h_m(z): z (b, d) -> (b, n_c)."""
    members = zip(linear.share, linear.weight, linear.bias, strict=True)
    return sum((s * softmax.probabilities(softmax.Linear(w, b), z) for s, w, b in members), torch.zeros(()))


def guesses(memory: Mine, heads: Heads, z: Tensor, network: Tensor, c: Config) -> dict[str, Tensor]:
    """What everything that could predict makes of rows with encoder features z (b, d): name -> (b, n_c).

    none: the network's own guess, or, where data are features, the linear layer of all sources' rows. own: the layer on features
    scaled by each site's own statistics. r, e: the mean of the kept passes. committee: the mean of these four. r5, e5: one pass.
    """
    scaled = own(memory, c, z)
    single = {name: probabilities(linear, scaled) for name, linear in memory.candidates.items()}
    made = {**layers(heads, z, scaled), **single}
    if len(network):
        made[NONE] = network
    for way in (R, E):
        if any(name.startswith(way) for name in single):
            made[way] = mean(guess for name, guess in single.items() if name.startswith(way))
    if {NONE, OWN, R, E} <= made.keys():
        made[COMMITTEE] = mean(made[name] for name in (NONE, OWN, R, E))
    return made


def layers(heads: Heads, z: Tensor, scaled: Tensor) -> dict[str, Tensor]:
    """What the sources' linear layers make of rows; nothing where none were learnt. `sites` serves the choice alone."""
    if not len(heads.bias):
        return {}
    h = [softmax.Linear(w, b) for w, b in zip(heads.weight, heads.bias, strict=True)]
    alike = common(heads, z)
    rows, sites = (softmax.probabilities(h[by], alike) for by in (BY_ROWS, BY_SITES))
    return {NONE: rows, "rows": rows, "sites": sites, OWN: softmax.probabilities(h[BY_OWN], scaled)}


def mean(several: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(several)).mean(0)


def choice(guess: Mapping[str, Tensor], z: Tensor, c: Config, contrast: float) -> tuple[str, dict[str, float]]:
    """Which prediction to trust, and from what it was decided; no label is read. z: the rows' scaled features.

    By `guard`, the committee replaces the unadapted model where that does not hinge on how the sources are weighed against each
    other (s, the share of rows that two such weighings label differently, is small), or where the labels that the committee
    changes agree better with those of the rows' neighbours (rho is large). The first counts only where the two weighings differ
    (contrast) and rho does not clearly speak against it. Where no linear layers of the sources are known, -R.
    """
    if c.choice != "guard":
        return c.choice if c.choice in guess else R, {}
    if COMMITTEE not in guess:
        return R, {}
    label = {name: p.argmax(1) for name, p in guess.items()}
    s = disagreement(label["rows"], label["sites"])
    rho = evidence(label[COMMITTEE], label[NONE], neighbours(z, c.neighbours))
    steady = contrast >= CONTRAST and s <= c.stable and rho > -c.convincing
    trusted = steady or rho >= c.convincing
    return COMMITTEE if trusted else NONE, {"s": s, "rho": rho}


def summaries(z: Tensor, y: Tensor, alpha: Tensor, site: Site[Config]) -> dict[str, Labelled]:
    """Distillation: for each SPC a barycenter of n_c * SPC points, a labelled summary of an unlabelled site."""
    made = {str(spc): support(z, y, alpha, spc * site.world.classes, site) for spc in site.config.distil}
    return {name: Labelled(b.z, b.y) for name, b in made.items()}


def keepsakes(config: Config, memory: Mine) -> Mapping[str, Mapping[str, Tensor]]:
    """Empty before the first adaptation, and at sources."""
    if not memory.chosen:
        return {}
    taken = {f"summary_{spc}": summary(each) for spc, each in memory.summaries.items()}
    taken["classifier"] = classifier(memory)
    if memory.picture:
        taken["picture"] = dict(memory.picture)
    return taken


def summary(points: Labelled) -> dict[str, Tensor]:
    """Labelled points in feature space: x (r, d), y (r,), soft (r, n_c)."""
    return {"x": points.z, "y": points.y.argmax(1), "soft": points.y}


def classifier(memory: Mine) -> dict[str, Tensor]:
    """All that predicting takes. The prediction is the sum over members of share times softmax(weight z + bias), where z is

    for `own_*` (m, n_c, d)     the encoder's feature, (x - shift) / stretch, and then as the setting `scaling` says;
    for `common_*` (1, n_c, d)  (x - common_shift) / common_stretch;
    and `network_share` times the whole network's own softmax, whose weights stand under `network/`.
    """
    members = PARTS.get(memory.chosen, {memory.chosen: 1.0})
    linear = [(share, each) for name, share in members.items() for each in on_own_scale(name, memory)]
    taken = {"shift": memory.shift, "stretch": memory.stretch, **{f"network/{n}": w for n, w in memory.model.items()}}
    if NONE in members:
        taken |= unadapted(memory, members[NONE])
    if linear:
        taken |= {f"own_{part}": torch.cat([getattr(each, part) for _, each in linear]) for part in ("weight", "bias")}
        taken["own_share"] = torch.cat([share * each.share for share, each in linear])
    return taken


def model_of(config: Config, world: World, memory: Mine) -> dict[str, Tensor]:
    """The same by the names of the form's tensors; empty before the first choice."""
    return {name.replace("/", "."): w for name, w in classifier(memory).items()} if memory.chosen else {}


def unadapted(memory: Mine, share: float) -> dict[str, Tensor]:
    """The network's share; or, where data are features, the layer of all sources' rows with its share and its scale."""
    whole = torch.tensor([share])
    if memory.model:
        return {"network_share": whole}
    layer = {"common_weight": memory.heads.weight[:1], "common_bias": memory.heads.bias[:1], "common_share": whole}
    return layer | {"common_shift": memory.heads.shift, "common_stretch": memory.heads.stretch}


def on_own_scale(name: str, memory: Mine) -> list[Linear]:
    """The layers on own-scaled features behind a prediction's name, their shares summing to one."""
    if name == OWN:
        return [Linear(memory.heads.weight[BY_OWN:], memory.heads.bias[BY_OWN:], torch.ones(1))]
    if name == NONE:
        return []
    found = [each for key, each in sorted(memory.candidates.items()) if key.startswith(name)]
    return [replace(each, share=each.share / len(found)) for each in found]


def picture(z: Tensor, guess: Tensor, barycenter: Labelled) -> dict[str, Tensor]:
    """The site's rows z (n, d) and their barycenter along the directions in which both vary most, with the classes that are
    guessed (n, n_c). Drawn while the rows are there: the site remembers them no longer than the run lasts."""
    flat = plane(torch.cat([z, barycenter.z]))
    return {
        "site": flat[: len(z)],
        "site_class": guess.argmax(1),
        "barycenter": flat[len(z) :],
        "barycenter_class": barycenter.y.argmax(1),
    }


def judge(order: Heads, memory: Mine, site: Site[Config]) -> Judged:
    """What the site predicts, beside accuracies in [0, 1]. A source is scored with the unadapted model: the dictionary serves
    those without labels."""
    z, y = embedded(memory, site, site.data.x), site.data.y
    made = guesses(memory, order, z, network(memory, site), site.config)
    out = made.get(memory.chosen if adapts(memory, site) else NONE)
    return Judged(out, {} if y is None else compared(made, memory, site, z, y))


def adapts(memory: Mine, site: Site[Config]) -> bool:
    return site.role is Role.TARGET and bool(memory.chosen)


def compared(made: Mapping[str, Tensor], memory: Mine, site: Site[Config], z: Tensor, y: Tensor) -> dict[str, float]:
    """Accuracies of everything that could predict rows with encoder features z (b, d)."""
    found = {name: share_right(p, y) for name, p in made.items()}
    metrics = {"source_only": found[NONE]} if NONE in found else {}
    metrics |= {"accuracy_linear": found["rows"], "accuracy_own": found[OWN]} if OWN in found else {}
    if adapts(memory, site):
        metrics |= adapted(found, memory)
        scaled = own(memory, site.config, z)
        for spc, of in memory.summaries.items():  # classifiers learnt from them
            metrics[f"distilled_{spc}"] = share_right(softmax.probabilities(fitted(of.z, of.y, site.config), scaled), y)
    return metrics


def network(memory: Mine, site: Site[Config]) -> Tensor:
    """What the unadapted network makes of the site's rows (b, n_c); no rows where data are features."""
    if not memory.model:
        return torch.zeros(0, site.world.classes)
    return outputs(nets.loaded(site.world, memory.model, site.device), site.data.x, site.device).softmax(1)


def adapted(found: Mapping[str, float], memory: Mine) -> dict[str, float]:
    """-R and -E after the last pass that this target took part in; the best of all, which only labels can tell."""
    candidates = {name: value for name, value in found.items() if name not in ("rows", "sites")}
    metrics = {
        "accuracy_r": found[newest(memory, R)],
        "accuracy_e": found[newest(memory, E)],
        "accuracy_oracle": max(candidates.values()),
        "adapted": float(memory.chosen != NONE),
    }
    metrics |= {"accuracy_committee": found[COMMITTEE]} if COMMITTEE in found else {}
    return metrics | {f"evidence_{name}": value for name, value in memory.evidence.items()}


def newest(memory: Mine, way: str) -> str:
    """The candidate of a way from the latest pass."""
    return max((name for name in memory.candidates if name.startswith(way)), key=lambda name: int(name[1:]))
