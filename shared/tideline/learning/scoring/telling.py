"""What a run may ask of a scoring beyond the accuracy: all scores with intervals, and a score of validation rows to select by.

A site tells what does not follow from counts: the area under the curve and the calibration error, with their intervals. The other
scores and intervals follow from its counts of rows by label and prediction, and the coordinator works them out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor

from tideline.core.asked.scoring import Selection
from tideline.core.phase import VALIDATION, Folded, Phase, Replies, Table, Turn, folded
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, field, record
from tideline.core.step import Data, Site
from tideline.learning.scoring.score_tables import SiteCounts, of_sites, with_room
from tideline.numerics.labels import scores
from tideline.numerics.labels.confidence import BINS, Tally, binned, calibration_error, nothing
from tideline.numerics.labels.scores import Score

C = TypeVar("C")
S = TypeVar("S")
M = TypeVar("M")
Outputs: TypeAlias = tuple[Tensor, Tensor | None]  # of some rows: outputs (n, classes), labels (n,)
MOST_MATRIX = 100  # classes; with more, rows are counted by class alone
MOST_COUNTED = 2.0**40  # rows of a site, each as often as models are scored on it: what is more is no count
SLACK = 1e-6  # by which rounding may miss the ends of a score, 0 and 1
OF_SITES = ("auroc", "ece")  # scores that a site tells itself, each with its interval
NAMES = tuple(f"{name}{end}" for name in OF_SITES for end in ("", "_low", "_high"))


@record
class Counts:
    """Held-out rows of a site by class: nothing without labels."""

    models: int = field("", Exposure.COUNT, low=0, doc="models whose predictions are counted together")
    matrix: Tensor | None = field(
        "classes classes", Exposure.COUNT, low=0, doc=f"held-out rows by label and prediction, of at most {MOST_MATRIX} classes"
    )
    by_class: Tensor | None = field(
        "3 classes",
        Exposure.COUNT,
        low=0,
        doc="of more classes: held-out rows predicted right, with the label, taken for the class",
    )


@record
class Histogram:
    """Confidences of a scoring: how many held-out rows of each bin were predicted right, and wrong."""

    right: Tensor = field(f"{BINS}", Exposure.COUNT, low=0, doc="held-out rows predicted right, by confidence")
    wrong: Tensor = field(f"{BINS}", Exposure.COUNT, low=0, doc="held-out rows predicted wrong, by confidence")


@record
class Scored:
    """What follows from a site's predictions on held-out rows."""

    counts: Counts


@record
class ScoredInBins(Histogram):
    """The same beside the confidences."""

    counts: Counts


@dataclass(frozen=True)
class Asked:
    """What a scoring is asked: accuracies under these names, confidences, all scores, and a score of validation rows."""

    metrics: tuple[str, ...]
    confidence: bool
    whole: bool
    selection: Selection

    @property
    def gives(self) -> type[Any]:
        return (ScoredInBins if self.confidence else Scored) if self.whole else (Histogram if self.confidence else Nothing)

    @property
    def reported(self) -> tuple[str, ...]:
        ece = ("ece",) if self.confidence else ()
        selected = () if self.selection is Selection.NONE else (validation_name(self.selection),)
        return tuple(dict.fromkeys((*self.metrics, *ece, *(NAMES if self.whole else ()), *selected)))


def validation_name(selection: Selection) -> str:
    """The metric under which a site tells its score of validation rows."""
    return f"{VALIDATION}_{selection.value}"


def message(asked: Asked, found: Sequence[Outputs], bins: Tally) -> Any:
    """What a site sends of its held-out rows. found: of each model."""
    counts = counted(found) if asked.whole else None
    if counts is None:
        return Histogram(bins.right, bins.wrong) if asked.confidence else Nothing()
    return ScoredInBins(bins.right, bins.wrong, counts) if asked.confidence else Scored(counts)


def counted(found: Sequence[Outputs]) -> Counts:
    judged = [(out, y) for out, y in found if y is not None]
    if not judged:
        return Counts(0, None, None)
    classes = judged[0][0].shape[1]
    matrix = torch.stack([scores.confusion(out.argmax(1), y, classes) for out, y in judged]).sum(0)
    if classes > MOST_MATRIX:
        return Counts(len(judged), None, scores.by_class(matrix))
    return Counts(len(judged), matrix, None)


def metrics_of(asked: Asked, found: Sequence[Outputs], bins: Tally, seed: Callable[[], int]) -> dict[str, float]:
    """Accuracies, and what else was asked: means over the models. Nothing without labels."""
    judged = [(out, y) for out, y in found if y is not None and len(y)]
    if not judged:
        return {}
    values = [scores.share_right(out, y) for out, y in judged]
    reports: dict[str, float] = dict.fromkeys(asked.metrics, sum(values) / len(values))
    calibration = scores.calibration_score(bins, seed()) if asked.whole else None
    if asked.confidence and not asked.whole:
        reports["ece"] = calibration_error(bins)
    if calibration is not None:
        reports |= flat("ece", replace(calibration, rows=0))
        areas = [area for out, y in judged if (area := scores.auroc_score(scores.probabilities(out), y, seed())) is not None]
        reports |= flat("auroc", mean_of(areas)) if areas else {}
    return reports


def flat(name: str, score: Score) -> dict[str, float]:
    return {name: score.value, f"{name}_low": score.low, f"{name}_high": score.high}


def mean_of(of: Sequence[Score]) -> Score:
    """The mean score, with the means of the intervals' ends: models that are scored on the same rows err together."""
    value, low, high = (sum(each) / len(of) for each in zip(*((s.value, s.low, s.high) for s in of), strict=True))
    return Score(value, low, high, of[0].rows)


def validated(selection: Selection, out: Tensor, y: Tensor | None) -> float | None:
    """A score of validation rows; None where it needs labels and there are none, or where it does not exist."""
    if not len(out) or (selection.labels and y is None):
        return None
    p = scores.probabilities(out)
    if y is None or not selection.labels:
        return scores.entropy(p) if selection is Selection.ENTROPY else scores.information(p)
    if selection is Selection.AUROC:
        return scores.auroc(p, y)
    if selection is Selection.ECE:
        return calibration_error(binned(p.amax(1), out.argmax(1) == y))
    return scores.point(scores.confusion(out.argmax(1), y, out.shape[1]), selection.value)


def telling(phase: Phase[C, S], run: Callable[..., Any], asked: Asked) -> Phase[C, S]:
    """A scoring that tells more: the step runs `run`, and the fold adds tables to what it did before."""
    assert phase.step is not None
    step = replace(phase.step, run=run, gives=asked.gives, metrics=asked.reported)
    before = phase.fold

    def tabulated(state: S, replies: Replies[Any], turn: Turn[C]) -> S | Folded[S]:
        given = before(state, replies, turn)
        more = {**validations(asked, replies), **(tables(replies, turn) if asked.whole else {})}
        return with_room(folded(given), more) if more else given

    return replace(phase, step=step, fold=tabulated)


def validations(asked: Asked, replies: Replies[Any]) -> dict[str, Table]:
    """The score of validation rows of each site that told one. What is none is left out: a site may send any number."""
    name = validation_name(asked.selection)
    given = {site: replies.metrics[site][name] for site in replies if name in replies.metrics.get(site, {})}
    reports = {site: value for site, value in given.items() if in_order(value)}
    return {VALIDATION: Table(tuple(reports), (asked.selection.value,), tuple((v,) for v in reports.values()))} if reports else {}


def tables(replies: Replies[Scored | ScoredInBins], turn: Turn[C]) -> dict[str, Table]:
    """Scores, recalls and confusions of sites that had rows to score. Counts that no rows could give are left out."""
    counts, reports = dict[str, SiteCounts](), dict[str, dict[str, Score]]()
    for site, reply in replies.items():
        c = reply.counts.matrix if reply.counts.matrix is not None else reply.counts.by_class
        if c is None or reply.counts.models < 1 or not sound(c, turn.world.classes):
            continue
        own = SiteCounts(c, whole_rows(c, reply.counts.models))
        counts[site], reports[site] = own, reports_of(replies.metrics.get(site, {}), own.rows)
    seed = int(torch.randint(2**31, (), generator=turn.rng)) if counts else 0
    return of_sites(counts, reports, turn.world, seed) if counts else {}


def sound(counts: Tensor, K: int) -> bool:
    """Whether some rows could have these counts, of labels and predictions (K, K) or by class (3, K): a site may send any."""
    if counts.shape not in ((K, K), (3, K)):
        return False
    c = counts.double()
    if float(c.min()) < 0 or not 1 <= float(c.sum()) <= MOST_COUNTED:
        return False
    if len(c) == K:
        return True
    right, rows, taken = c
    return bool((right <= rows).all() and (right <= taken).all()) and float(rows.sum()) == float(taken.sum())


def whole_rows(counts: Tensor, models: int) -> int:
    of = counts if len(counts) == counts.shape[1] else counts[1]
    return max(int(of.sum()) // models, 1)


def reports_of(metrics: Mapping[str, float], rows: int) -> dict[str, Score]:
    """The scores that a site tells itself, those alone that can be: each inside its interval, and that inside [0, 1]."""
    whole = [name for name in OF_SITES if {name, f"{name}_low", f"{name}_high"} <= metrics.keys()]
    found = {name: Score(metrics[name], metrics[f"{name}_low"], metrics[f"{name}_high"], rows) for name in whole}
    return {name: s for name, s in found.items() if in_order(s.low, s.value, s.high)}


def in_order(*values: float) -> bool:
    """Whether numbers rise, and are in [0, 1], but for rounding."""
    return all(low <= high + SLACK for low, high in pairwise((0.0, *values, 1.0)))


def bins_of(found: Sequence[Outputs]) -> Tally:
    """The confidences of all models' predictions."""
    each = ((scores.probabilities(out).amax(1), out.argmax(1) == y) for out, y in found if y is not None and len(y))
    return sum((binned(p, right) for p, right in each), nothing())


def seeds(site: Site[Any]) -> Callable[[], int]:
    """Seeds of resamples, drawn from the order's generator."""
    return lambda: int(torch.randint(2**31, (), generator=site.rng))


def on(site: Site[C], data: Data) -> Site[C]:
    """The same site as a step sees it whose rows are these."""
    return replace(site, data=data, tick=lambda progress: None)
