"""Scoring on held-out rows: what was chosen, what it was chosen from, and what a perfect choice would have been."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from tideline import nets
from tideline.algorithms.feddadil.client import held_out_features
from tideline.algorithms.feddadil.messages import Head, Mine
from tideline.algorithms.feddadil.target import HEAD, SOURCE, probabilities
from tideline.core.data import View
from tideline.core.record import Nothing
from tideline.core.run import Role
from tideline.core.step import Outcome, Site, Step
from tideline.learning.evaluate import outputs
from tideline.numerics import softmax

if TYPE_CHECKING:
    from tideline.algorithms.feddadil import Config

TOLD = ("accuracy", "source_only", "accuracy_head", "accuracy_r", "accuracy_e", "accuracy_oracle", "chosen_pass", "chosen_e")


def scoring(c: Config) -> Step:
    """The step; its metrics name the summaries that are asked for."""
    return Step("score", score, Head, Mine, Nothing, (*TOLD, *(f"distilled_{spc}" for spc in c.distil)), View.HELD_OUT)


def score(order: Head, memory: Mine, site: Site) -> Outcome[Nothing, Mine]:
    """Accuracies in [0, 1]. A source is scored with the unadapted model: the dictionary serves those without labels."""
    y = site.data.y
    if y is None or not len(y):
        return Outcome(Nothing(), memory)
    z = held_out_features(memory, site, site.data.x)
    found = {name: accuracy(guess, y) for name, guess in guesses(order, memory, site, z)}
    told = unadapted(found)
    if site.role is Role.TARGET and memory.chosen:
        told |= adapted(found, memory, site.config) | {f"distilled_{s}": accuracy(p, y) for s, p in distilled(memory, site, z)}
    return Outcome(Nothing(), memory, told)


def accuracy(guess: Tensor, y: Tensor) -> float:
    """The share of rows whose largest output is their label."""
    return float((guess.argmax(1) == y).double().mean())


def guesses(order: Head, memory: Mine, site: Site, z: Tensor) -> Iterator[tuple[str, Tensor]]:
    """What each candidate makes of the held-out rows, (b, n_c)."""
    if memory.model:
        yield SOURCE, outputs(nets.loaded(site.world, memory.model, site.device), site.data.x, site.device)
    if len(order.bias):
        yield HEAD, softmax.probabilities(softmax.Linear(order.weight, order.bias), z)
    for name, linear in memory.candidates.items():
        if name != HEAD:
            yield name, probabilities(linear, z)


def distilled(memory: Mine, site: Site, z: Tensor) -> Iterator[tuple[str, Tensor]]:
    """What classifiers learnt from the labelled summaries make of the held-out rows."""
    for spc, summary in memory.summaries.items():
        yield spc, softmax.probabilities(softmax.fit(summary.z, summary.y, l2=site.config.classifier_l2), z)


def unadapted(found: Mapping[str, float]) -> dict[str, float]:
    """The network's accuracy, or the linear layer's where data are features; both, where there are both."""
    if SOURCE in found:
        head = {"accuracy_head": found[HEAD]} if HEAD in found else {}
        return {"accuracy": found[SOURCE], "source_only": found[SOURCE], **head}
    return {"accuracy": found[HEAD], "source_only": found[HEAD]} if HEAD in found else {}


def adapted(found: Mapping[str, float], memory: Mine, c: Config) -> dict[str, float]:
    """What was chosen without labels, -R and -E after the last pass, and the best of all candidates, which only labels tell."""
    chosen = memory.chosen
    return {
        "accuracy": found[chosen],
        "accuracy_r": found[f"r{c.rounds}"],
        "accuracy_e": found[f"e{c.rounds}"],
        "accuracy_oracle": max(found.values()),
        "chosen_pass": 0.0 if chosen in (SOURCE, HEAD) else float(chosen[1:]),
        "chosen_e": float(chosen.startswith("e")),
    }
