"""Targets' predictions at their own shares of the classes: what the labelled sites count for it, and what a target remembers.

The labelled sites' counts are pooled first, and every target that is scored gets the shares. What it makes of them is in
`tideline.learning.scoring.correcting`, and stays where it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tideline.core.algorithm import CLASS_COUNTS, AnyAlgorithm
from tideline.core.asked.scoring import Prior, Scoring
from tideline.core.errors import ConfigRefused, DataRefused, RosterRefused
from tideline.core.phase import AnyPhase, Phase, Replies, Turn
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, field, record
from tideline.core.run import ClientId, Role, Roster
from tideline.core.step import Outcome, Site, Step
from tideline.learning.around.beside import FEWEST, Beside, remembering, sharing

SHARES = Beside("source_shares", Tensor, "shares of the classes at the labelled sites", dims="classes", scored=True)
CORRECTION = Beside("corrected_by", Tensor, "what is added to the site's own model's logits", dims="classes")
ALONE = "prior is em, which needs the classes' shares at labelled sites; what one counts would reach the targets, and there {are}"
UNCORRECTED = (
    "A target's predictions were corrected for its own shares of the classes, and this model's are not: predict all rows of the"
    " target at once with `tideline predict --prior em`"
)
INSTEAD = "Name two labelled sites or more, or write prior: source"


def shares_in(value: object) -> Tensor | None:
    """The shares of the classes at the labelled sites, beside a state; None where there are none."""
    found: Tensor | None = SHARES.found(value)
    return found


def correction_in(value: object) -> Tensor | None:
    """What a site adds to its own model's logits, beside a memory; None where it adds nothing."""
    found: Tensor | None = CORRECTION.found(value)
    return found


def check_prior(scoring: Scoring, roster: Roster) -> None:
    """Raises ConfigRefused where the shares of one labelled site would be told, and where no target would be corrected."""
    if scoring.prior is not Prior.EM:
        return
    labelled = sum(member.labelled for member in roster)
    if labelled < FEWEST:
        raise ConfigRefused(ALONE.format(are=said(labelled)), INSTEAD, path="prior")
    if all(member.role is not Role.TARGET for member in roster):
        what = "prior is em, which corrects what targets predict, and the roster has no target"
        raise ConfigRefused(what, "Add a target, or leave prior out", path="prior")


def said(labelled: int) -> str:
    return "is one" if labelled else "is none"


def correcting(algorithm: AnyAlgorithm) -> AnyAlgorithm:
    """A method whose labelled sites count their rows by class first, and whose targets correct what they predict."""
    keeps = algorithm.memory is not Nothing
    made = remembering(algorithm, CORRECTION, lambda site: None, remembered, alike) if keeps else algorithm
    return sharing(made, SHARES, counting, lambda world: {"classes": world.classes})


def remembered(site: Site[Any], outcome: Outcome[Any, Any], before: Tensor | None) -> Tensor | None:
    """That of the last scoring."""
    return before if outcome.correction is None else outcome.correction


def alike(one: Tensor | None, other: Tensor | None) -> bool:
    return one is other or (one is not None and other is not None and torch.equal(one, other))


@record
class ClassCounts:
    """Rows that a site trains on."""

    counts: Tensor = field("classes", Exposure.COUNT, low=0, doc="training rows by label")


def counting(memory: type[Any], sampled: bool) -> AnyPhase:
    """The exchange before all others. A run that samples sites pools the counts of those that it draws."""

    def run(order: Nothing, memory: Any, site: Site[Any]) -> Outcome[ClassCounts, Any]:
        y, K = site.data.y, site.world.classes
        counts = torch.zeros(K, dtype=torch.int64) if y is None else torch.bincount(y, minlength=K)
        counts = counts * (counts >= site.least_per_class)
        return Outcome(ClassCounts(counts), memory)

    step = Step(name=CLASS_COUNTS, run=run, takes=Nothing, keeps=memory, gives=ClassCounts)
    return Phase(CLASS_COUNTS, step, ask=asked, fold=pooled, sampled=sampled, floor=FEWEST, needs="counts of several sites")


def asked(state: Any, turn: Turn[Any]) -> dict[ClientId, Nothing]:
    """All sites with labels. Raises RosterRefused for fewer than two: some that were to have labels have none."""
    sites = turn.labelled()
    if len(sites) < FEWEST:
        raise RosterRefused(ALONE.format(are=said(len(sites))), INSTEAD, path="prior")
    return dict.fromkeys(sites, Nothing())


def pooled(state: Any, replies: Replies[ClassCounts], turn: Turn[Any]) -> Any:
    """The shares of the classes in all rows together. Raises DataRefused for no row."""
    counts = torch.stack([each.counts.double() for each in replies.values()]).sum(0)
    if not float(counts.sum()):
        raise DataRefused("The labelled sites have no row to train on, so classes have no shares", "Give them rows")
    return replace(state, **{SHARES.name: counts / counts.sum()})
