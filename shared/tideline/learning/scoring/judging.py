"""A scoring whose method predicts in a way of its own, such as by one of several models of which it compares all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from torch import Tensor

from tideline.core.asked.scoring import Selection
from tideline.core.phase import Folded, Phase, Replies, Tells, Turn, unchanged
from tideline.core.record import Nothing, Record
from tideline.core.settings import EMPTY
from tideline.core.step import AnyStep, Outcome, Site, Step, View
from tideline.learning.evaluate import Offer
from tideline.learning.scoring import telling
from tideline.learning.scoring.correcting import corrected, correction_at
from tideline.learning.scoring.kept_outputs import kept_outputs
from tideline.learning.scoring.telling import Asked
from tideline.numerics.labels.confidence import nothing

C = TypeVar("C")  # settings
S = TypeVar("S")  # the coordinator's state
T = TypeVar("T")  # what a site is sent
M = TypeVar("M")  # its memory


@dataclass(frozen=True)
class Judged:
    """What a site makes of the rows that it is given.

    out: outputs (n, classes) of what it predicts with, on the CPU; None where it has nothing to predict with. others: metrics
    beside its scores, such as accuracies of models that it does not predict with.
    """

    out: Tensor | None
    others: Mapping[str, float] = field(default_factory=lambda: EMPTY)


Judge: TypeAlias = Callable[[T, M, Site[C]], Judged]


def judged(
    judge: Judge[T, M, C],
    offer: Offer[S, C, T],
    *,
    takes: type[T],
    keeps: type[M],
    others: tuple[str, ...] = (),
    fold: Callable[[S, Replies[Nothing], Turn[C]], S | Folded[S]] = unchanged,
) -> Phase[C, S]:
    """A phase that scores each asked client's held-out rows by what `judge` makes of them; others: the metrics that it adds.

    judge(message, memory, site): of all rows in `site.data`, which are held-out rows, or rows without labels: for validation, and
    where a run keeps or corrects what is predicted. Held-out rows without labels are given for that alone. The accuracy in [0, 1]
    is reported as `accuracy`. A run may ask for all scores, and for one of validation rows, as in `evaluate`.
    """

    def report(scoring: Phase[C, S], tells: Tells) -> Phase[C, S]:
        asked = Asked((*ACCURACY, *others), confidence=False, whole=tells.whole, selection=tells.selection)
        return telling.telling(scoring, scorer(judge, asked, tells.outputs), asked)

    run = scorer(judge, Asked((*ACCURACY, *others), confidence=False, whole=False, selection=Selection.NONE))
    metrics = (*ACCURACY, *others)
    step: AnyStep = Step(name="score", run=run, takes=takes, keeps=keeps, gives=Nothing, metrics=metrics, view=View.HELD_OUT)
    return Phase("score", step, ask=offer, fold=fold, report=report)


ACCURACY = ("accuracy",)


def scorer(judge: Judge[T, M, C], asked: Asked, outputs: bool = False) -> Callable[[T, M, Site[C]], Outcome[Record, M]]:
    """What a site runs. outputs: whether a target keeps what is predicted."""
    own_scores = Asked(ACCURACY, confidence=False, whole=asked.whole, selection=asked.selection)

    def score(order: T, memory: M, site: Site[C]) -> Outcome[Record, M]:
        y, by = site.data.y, correction_at(site, lambda of: judge(order, memory, of).out)

        def judged_by_shares(order: T, memory: M, of: Site[C]) -> Judged:
            made = judge(order, memory, of)
            return made if made.out is None else replace(made, out=corrected(made.out, by))

        own = judged_by_shares(order, memory, site) if y is not None and len(y) else Judged(None)
        found = [] if own.out is None else [(own.out, y)]
        bins = telling.bins_of(found) if asked.whole else nothing()
        reports = {**telling.metrics_of(own_scores, found, bins, telling.seeds(site)), **own.others}
        if asked.selection is not Selection.NONE and site.validation is not None:
            reports |= validated(judged_by_shares, order, memory, telling.on(site, site.validation), asked.selection)
        stays = kept_outputs(site, lambda of: judged_by_shares(order, memory, of).out) if outputs else None
        return Outcome(
            message=telling.message(own_scores, found, bins),
            memory=memory,
            metrics=reports,
            outputs=stays,
            correction=by,
        )

    return score


def validated(judge: Judge[T, M, C], order: T, memory: M, site: Site[C], selection: Selection) -> dict[str, float]:
    """The score of the site's rows, those for validation; empty where there is none."""
    if not len(site.data) or (selection.labels and site.data.y is None):
        return {}
    out = judge(order, memory, site).out
    value = None if out is None else telling.validated(selection, out, site.data.y)
    return {} if value is None else {telling.validation_name(selection): value}
