"""Scoring on held-out rows: what was chosen, what it was chosen from, and what a perfect choice would have been."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tideline import nets
from tideline.algorithms.feddadil.client import embedded, own
from tideline.algorithms.feddadil.messages import Heads, Mine
from tideline.algorithms.feddadil.target import COMMITTEE, NONE, OWN, E, R, fitted, guesses
from tideline.core.record import Nothing
from tideline.core.run import Role
from tideline.core.step import AnyStep, Outcome, Site, Step, View
from tideline.learning.evaluate import outputs
from tideline.numerics.labels import softmax

if TYPE_CHECKING:
    from tideline.algorithms.feddadil import Config

TOLD = (
    *(
        "accuracy",
        "source_only",
        "accuracy_linear",
        "accuracy_own",
        "accuracy_r",
        "accuracy_e",
        "accuracy_committee",
        "accuracy_oracle",
    ),
    *("adapted", "evidence_s", "evidence_rho"),
)


def scoring(c: Config) -> AnyStep:
    """The step; its metrics name the summaries that are asked for."""
    return Step("score", score, Heads, Mine, Nothing, (*TOLD, *(f"distilled_{spc}" for spc in c.distil)), View.HELD_OUT)


def score(order: Heads, memory: Mine, site: Site[Config]) -> Outcome[Nothing, Mine]:
    """Accuracies in [0, 1]. A source is scored with the unadapted model: the dictionary serves those without labels."""
    y = site.data.y
    if y is None or not len(y):
        return Outcome(Nothing(), memory)
    z = embedded(memory, site, site.data.x)
    found = {name: accuracy(p, y) for name, p in guesses(memory, order, z, network(memory, site), site.config).items()}
    told = unadapted(found)
    if site.role is Role.TARGET and memory.chosen:
        told |= adapted(found, memory, site.config)
        told |= {f"distilled_{spc}": accuracy(p, y) for spc, p in distilled(memory, site, own(memory, site.config, z))}
    return Outcome(Nothing(), memory, told)


def network(memory: Mine, site: Site[Config]) -> Tensor:
    """What the unadapted network makes of the held-out rows (b, n_c); no rows where data are features."""
    if not memory.model:
        return torch.zeros(0, site.world.classes)
    return outputs(nets.loaded(site.world, memory.model, site.device), site.data.x, site.device).softmax(1)


def accuracy(guess: Tensor, y: Tensor) -> float:
    """The share of rows whose largest output is their label."""
    return float((guess.argmax(1) == y).double().mean())


def distilled(memory: Mine, site: Site[Config], z: Tensor) -> Iterator[tuple[str, Tensor]]:
    """What classifiers learnt from the labelled summaries make of the held-out rows."""
    for spc, summary in memory.summaries.items():
        yield spc, softmax.probabilities(fitted(summary.z, summary.y, site.config), z)


def unadapted(found: Mapping[str, float]) -> dict[str, float]:
    """What knows nothing of the dictionary: the unadapted model, the linear layer on the same features, and that on features
    scaled by the site's own statistics; what there is of them."""
    told = {"accuracy": found[NONE], "source_only": found[NONE]} if NONE in found else {}
    return told | ({"accuracy_linear": found["rows"], "accuracy_own": found[OWN]} if OWN in found else {})


def adapted(found: Mapping[str, float], memory: Mine, c: Config) -> dict[str, float]:
    """What was chosen without labels; -R and -E after the last pass that this target took part in; the best of all, which only
    labels can tell."""
    candidates = {name: value for name, value in found.items() if name not in ("rows", "sites")}
    told = {
        "accuracy": found[memory.chosen],
        "accuracy_r": found[newest(memory, R)],
        "accuracy_e": found[newest(memory, E)],
        "accuracy_oracle": max(candidates.values()),
        "adapted": float(memory.chosen != NONE),
    }
    told |= {"accuracy_committee": found[COMMITTEE]} if COMMITTEE in found else {}
    return told | {f"evidence_{name}": value for name, value in memory.evidence.items()}


def newest(memory: Mine, way: str) -> str:
    """The candidate of a way from the latest pass."""
    return max((name for name in memory.candidates if name.startswith(way)), key=lambda name: int(name[1:]))
