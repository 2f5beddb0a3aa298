"""Scoring and comparing sites as phases like any other: held-out rows, nothing sent but declared metrics and counts.

Accuracy and confidences; which classes are taken for which; and whether classes are as frequent at a target as at the sources.
Aligning features of sites with other shares of classes pulls rows across classes (Zhao et al., "On Learning Invariant
Representations for Domain Adaptation", ICML 2019).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from tideline.core.asked.private import Charge, Meter, Privacy
from tideline.core.asked.scoring import Selection
from tideline.core.phase import MOST_VALUES, RIGHT, WRONG, Folded, Phase, Replies, Table, Tells, Turn, unchanged
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, Record, field, record
from tideline.core.rows import Rows, as_rows
from tideline.core.run import ClientId, Role
from tideline.core.step import AnyStep, Outcome, Site, Step, View
from tideline.learning.loading.ahead import in_parts
from tideline.learning.private.units import Units, units_in
from tideline.learning.scoring import telling
from tideline.learning.scoring.correcting import corrected, correction_at
from tideline.learning.scoring.kept_outputs import kept_outputs, mean_of
from tideline.learning.scoring.score_tables import CONFUSION_NAME, class_names, confusions
from tideline.learning.scoring.telling import Asked, Histogram
from tideline.numerics.labels.confidence import BINS, Tally, calibration_error, nothing, tally
from tideline.numerics.privacy.mechanisms import gaussian
from tideline.numerics.privacy.streams import Stream

C = TypeVar("C")  # settings
S = TypeVar("S")  # the coordinator's state
T = TypeVar("T")  # what a site is sent
M = TypeVar("M")  # its memory
Q = TypeVar("Q")  # what it predicts with: what is sent, or one of several things in that

Offer: TypeAlias = Callable[[S, Turn[C]], Mapping[ClientId, T]]
Predict: TypeAlias = Callable[[Q, M, Site[C], Tensor], Tensor]
Kept: TypeAlias = Callable[[T, M, Site[C]], M]
Several: TypeAlias = Callable[[T], Sequence[Q]]
Corrected: TypeAlias = tuple[Q, Tensor | None]  # a model, and what is added to its logits
ROWS = 512  # rows scored at once
BIN_NAMES = tuple(f"{b / BINS:.2f} to {(b + 1) / BINS:.2f}" for b in range(BINS))
SHIFT_NAME = "label_shift"
SHARES = "share of each class at each site"
SHIFT = "label shift of each source (rows) and target"
TOGETHER = "all sources"


def evaluate(
    offer: Offer[S, C, T],
    predict: Predict[Q, M, C],
    *,
    takes: type[T] = Nothing,  # type: ignore[assignment]
    keeps: type[M] = Nothing,  # type: ignore[assignment]
    name: str = "score",
    phase: str = "",
    metrics: tuple[str, ...] = ("accuracy",),
    confidence: bool = False,
    each: Several[T, Q] = lambda order: (order,),  # type: ignore[assignment,return-value]
    kept: Kept[T, M, C] = lambda order, memory, site: memory,
) -> Phase[C, S]:
    """A phase that scores each asked client's held-out rows.

    offer(state, turn) -> {client: what it needs to predict with}; predict(message, memory, site, x (b, *inputs)) ->
    probabilities or logits (b, classes). The accuracy in [0, 1] is reported under each of `metrics`; a site without labels
    reports nothing. With `confidence` the calibration error `ece` and the histogram of confidences are reported as well,
    from logits or logarithms of probabilities. If an order holds several models, `each` gives them, and their mean is reported.
    kept(order, memory, site): the memory that predicts and stays. phase: its name, if not the step's `name`.
    It may be sampled: its fold takes what there is. A run may ask it for all scores, and for one of validation rows
    (`learning.telling`), and to correct what targets predict (`learning.scoring.correcting`).
    """

    scorer = Scorer(predict=predict, each=each, kept=kept, metrics=metrics, confidence=confidence)
    reported = (*metrics, "ece") if confidence else metrics
    step: AnyStep = Step(
        name=name,
        run=scorer.score_in_bins if confidence else scorer.score,
        takes=takes,
        keeps=keeps,
        gives=Histogram if confidence else Nothing,
        metrics=reported,
        view=View.HELD_OUT,
        spends=None if confidence else scoring_spends,
        reports=() if confidence else metrics,
        by_unit=True,
    )
    fold = histograms if confidence else unchanged
    # A baseline that is scored under another name is no result to select by, or to tell more of.
    report = scorer.report if scorer.corrects else None
    return Phase(phase or name, step, ask=offer, fold=fold, sampled=True, report=report)


@dataclass(frozen=True)
class Scorer(Generic[T, M, C, Q]):
    """What a site runs to score what a method predicts; the fields are those of `evaluate`."""

    predict: Predict[Q, M, C]
    each: Several[T, Q]
    kept: Kept[T, M, C]
    metrics: tuple[str, ...]
    confidence: bool

    @property
    def corrects(self) -> bool:
        """A baseline that is scored under another name stays as it is."""
        return "accuracy" in self.metrics

    def models(self, order: T, memory: M, site: Site[C]) -> tuple[Corrected[Q], ...]:
        """What is predicted with, each with its correction."""
        return tuple((one, correction_of(self.predict, one, memory, site) if self.corrects else None) for one in self.each(order))

    def by_shares(self, one: Corrected[Q], memory: M, site: Site[C], x: Tensor) -> Tensor:
        return corrected(self.predict(one[0], memory, site, x).cpu(), one[1])

    def as_they_are(self, ones: Sequence[Corrected[Q]], memory: M, site: Site[C]) -> dict[str, float]:
        """Accuracies of models that are corrected, without it, under the names of baselines."""
        others = [name for name in self.metrics if name != "accuracy"]
        if not others or correction_in(ones) is None:
            return {}
        values = [value for one, _ in ones if (value := accuracy(self.predict, one, memory, site)) is not None]
        return dict.fromkeys(others, sum(values) / len(values)) if values else {}

    def score(self, order: T, memory: M, site: Site[C]) -> Outcome[Nothing, M]:
        mine = self.kept(order, memory, site)
        ones = self.models(order, mine, site)
        if site.private:
            return Outcome(Nothing(), mine, self.private_metrics(ones, mine, site, site.private))
        values = [value for one in ones if (value := accuracy(self.by_shares, one, mine, site)) is not None]
        reports = dict.fromkeys(self.metrics, sum(values) / len(values)) if values else {}
        return Outcome(Nothing(), mine, reports | self.as_they_are(ones, mine, site), correction=correction_in(ones))

    def private_metrics(self, ones: Sequence[Corrected[Q]], memory: M, site: Site[C], meter: Meter) -> dict[str, float]:
        """The accuracy of two counts with noise, right and wrong: one row, or unit, is 1 in all, so their sensitivity is 1."""
        key = meter.spend(Charge(meter.asked.score_noise), by_unit=True)
        if site.data.y is None:
            return {}
        counts = self.private_counts(ones, memory, site, units_in(site.data, meter.asked))
        right, wrong = gaussian(counts, 1.0, meter.asked.score_noise, Stream(key)).clamp(min=0.0).tolist()
        return dict.fromkeys(self.metrics, right / (right + wrong)) if right + wrong > 0 else {}

    def private_counts(self, ones: Sequence[Corrected[Q]], memory: M, site: Site[C], units: Units | None) -> Tensor:
        """How many held-out rows, or units by their rows, are right and wrong (2,), float64: the mean over the models."""
        right = torch.zeros(len(site.data), dtype=torch.float64)
        for one in ones:
            found = [(out.argmax(1) == y).double() for out, y in predicted(self.by_shares, one, memory, site)]
            right += torch.cat(found) / len(ones) if found else 0.0
        shares = right if units is None else units.shares(right)
        return torch.stack([shares.sum(), (1 - shares).sum()])

    def score_in_bins(self, order: T, memory: M, site: Site[C]) -> Outcome[Histogram, M]:
        mine = self.kept(order, memory, site)
        ones = self.models(order, mine, site)
        found = sum((tallied(self.by_shares, one, mine, site) for one in ones), nothing())
        reports = metrics_of(found, self.metrics) | self.as_they_are(ones, mine, site)
        return Outcome(Histogram(found.right, found.wrong), mine, reports, correction=correction_in(ones))

    def report(self, scoring: Phase[C, S], tells: Tells) -> Phase[C, S]:
        """The same phase that tells more."""
        asked = Asked(self.metrics, self.confidence, tells.whole, tells.selection)
        return telling.telling(scoring, partial(self.score_all, asked, tells), asked)

    def score_all(self, asked: Asked, tells: Tells, order: T, memory: M, site: Site[C]) -> Outcome[Record, M]:
        mine = self.kept(order, memory, site)
        ones = self.models(order, mine, site)
        found = [together(self.by_shares, one, mine, site) for one in ones]
        bins = telling.bins_of(found) if tells.whole or self.confidence else nothing()
        reports = telling.metrics_of(asked, found, bins, telling.seeds(site)) | self.as_they_are(ones, mine, site)
        if tells.selection is not Selection.NONE and site.validation is not None:
            reports |= validated(tells.selection, self.by_shares, ones, mine, telling.on(site, site.validation))
        stays = kept_outputs(site, lambda of: averaged(self.by_shares, ones, mine, of)) if tells.outputs else None
        return Outcome(
            message=telling.message(asked, found, bins),
            memory=mine,
            metrics=reports,
            outputs=stays,
            correction=correction_in(ones),
        )


def scoring_spends(config: object, privacy: Privacy) -> tuple[Charge, ...]:
    """What a scoring costs: two counts."""
    return (Charge(privacy.score_noise),)


def correction_of(predict: Predict[Q, M, C], order: Q, memory: M, site: Site[C]) -> Tensor | None:
    """What a model's logits are corrected by here; None where they stay as they are."""
    return correction_at(site, lambda of: averaged(predict, (order,), memory, of))


def correction_in(ones: Sequence[Corrected[Q]]) -> Tensor | None:
    """That of the one model that is scored; of several none is the site's own."""
    return ones[0][1] if len(ones) == 1 else None


def metrics_of(found: Tally, metrics: tuple[str, ...]) -> dict[str, float]:
    """The accuracy under each name, and the calibration error; empty without rows."""
    n = int((found.right + found.wrong).sum())
    share = int(found.right.sum()) / n if n else 0.0
    return {**dict.fromkeys(metrics, share), "ece": calibration_error(found)} if n else {}


def tallied(predict: Predict[Q, M, C], order: Q, memory: M, site: Site[C]) -> Tally:
    """The confidences of a site's held-out rows; none without labels."""
    return sum((tally(out, y) for out, y in predicted(predict, order, memory, site)), nothing())


def histograms(state: S, replies: Replies[Histogram], turn: Turn[C]) -> S | Folded[S]:
    """The state unchanged, and a table: the histogram of each site that had rows to score."""
    read = dict(replies.items())
    rows = tuple(k for k, each in read.items() if int(each.right.sum() + each.wrong.sum()))
    if not rows or 2 * len(rows) * BINS > MOST_VALUES:
        return state
    tables = {
        name: Table(rows, BIN_NAMES, tuple(tuple(map(float, getattr(read[k], side).tolist())) for k in rows))
        for name, side in ((RIGHT, "right"), (WRONG, "wrong"))
    }
    return Folded(state, tables=tables)


def accuracy(predict: Predict[Q, M, C], order: Q, memory: M, site: Site[C]) -> float | None:
    """The share of held-out rows whose largest output is their label; None without labels."""
    right = [int((out.argmax(1) == y).sum()) for out, y in predicted(predict, order, memory, site)]
    return sum(right) / len(site.data) if right else None


def predicted(predict: Predict[Q, M, C], order: Q, memory: M, site: Site[C]) -> Iterator[tuple[Tensor, Tensor]]:
    """Outputs (b, classes) on the CPU and labels (b,) of held-out rows, ROWS at a time; none without labels."""
    if site.data.y is None or not len(site.data):
        return
    done = 0
    for out in shown(predict, order, memory, site):
        yield out, site.data.y[done : done + len(out)]
        done += len(out)


def shown(predict: Predict[Q, M, C], order: Q, memory: M, site: Site[C]) -> Iterator[Tensor]:
    """Outputs (b, classes) of the site's rows on the CPU, ROWS at a time."""
    done = 0
    for x in in_parts(site.data.x, ROWS):
        with torch.no_grad():
            out = predict(order, memory, site, x).cpu()
        done += len(x)
        site.tick(done / len(site.data))
        yield out


def together(predict: Predict[Q, M, C], order: Q, memory: M, site: Site[C]) -> tuple[Tensor, Tensor | None]:
    """Outputs (n, classes) and labels (n,) of all held-out rows; no row without labels."""
    found = list(predicted(predict, order, memory, site))
    if not found:
        return torch.empty(0, site.world.classes), None
    out, y = zip(*found, strict=True)
    return torch.cat(out), torch.cat(y)


def validated(selection: Selection, predict: Predict[Q, M, C], orders: Sequence[Q], memory: M, site: Site[C]) -> dict[str, float]:
    """The score of the site's rows, those for validation, as the mean over the models; empty where there is none."""
    data = site.data
    if not len(data) or (selection.labels and data.y is None):
        return {}
    outs = [torch.cat([predict(one, memory, site, x).detach().cpu() for x in in_parts(data.x, ROWS)]) for one in orders]
    values = [value for out in outs if (value := telling.validated(selection, out, data.y)) is not None]
    return {telling.validation_name(selection): sum(values) / len(values)} if values else {}


def averaged(predict: Predict[Q, M, C], orders: Sequence[Q], memory: M, site: Site[C]) -> Tensor | None:
    """The mean probabilities over the models, as logarithms (n, classes); None without a row."""
    if not len(site.data):
        return None
    return mean_of([torch.cat(list(shown(predict, one, memory, site))) for one in orders])


def outputs(net: nn.Module, x: Tensor | Rows, device: str) -> Tensor:
    """A network's outputs in evaluation mode: b rows of *inputs, read in parts -> (b, classes), on the CPU."""
    net.eval()
    with torch.no_grad():
        return torch.cat([net(rows.to(device)).cpu() for rows in in_parts(as_rows(x))])


@record
class Confusion:
    """Held-out rows of a site by label and prediction; zeros without labels."""

    counts: Tensor = field("classes classes", Exposure.COUNT, low=0, doc="held-out rows by class and prediction")


def confused(
    offer: Offer[S, C, T],
    predict: Predict[T, M, C],
    *,
    takes: type[T] = Nothing,  # type: ignore[assignment]
    keeps: type[M] = Nothing,  # type: ignore[assignment]
) -> Phase[C, S]:
    """A phase in which each asked client counts held-out rows by label and prediction, as in `evaluate`; zeros without labels."""

    def count(order: T, memory: M, site: Site[C]) -> Outcome[Confusion, M]:
        K = site.world.classes
        counts = torch.zeros(K * K, dtype=torch.int64)
        by = correction_of(predict, order, memory, site)
        for out, y in predicted(predict, order, memory, site):
            out = corrected(out, by)
            counts += torch.bincount(y * K + out.argmax(1), minlength=K * K)
        return Outcome(Confusion(counts.view(K, K)), memory)

    step = Step(name=CONFUSION_NAME, run=count, takes=takes, keeps=keeps, gives=Confusion, metrics=(), view=View.HELD_OUT)
    return Phase(CONFUSION_NAME, step, ask=offer, fold=fold_confusion)


def fold_confusion(state: S, replies: Replies[Confusion], turn: Turn[C]) -> S | Folded[S]:
    """The state unchanged, and a table for each site that had rows and for all of them together."""
    found = confusions({site: r.counts.double() for site, r in replies.items() if int(r.counts.sum())}, turn.world)
    return Folded(state, tables=found) if found else state


@record
class Classes:
    """Training rows of a site by class."""

    counts: Tensor = field("classes", Exposure.COUNT, low=0, doc="training rows by label, or as the model takes them")


def label_shift(offer: Offer[S, C, Nothing], predict: Predict[Nothing, M, C], *, keeps: type[M]) -> Phase[C, S]:
    """A phase in which each asked client counts its training rows by class; `predict` is asked for rows without labels alone."""

    def count(order: Nothing, memory: M, site: Site[C]) -> Outcome[Classes, M]:
        y = site.data.y
        if y is None:
            y = torch.cat([predict(order, memory, site, x).argmax(1).cpu() for x in in_parts(site.data.x, ROWS)])
        counts = torch.bincount(y, minlength=site.world.classes)
        return Outcome(Classes(counts * (counts >= site.least_per_class)), memory)

    step = Step(name=SHIFT_NAME, run=count, takes=Nothing, keeps=keeps, gives=Classes, metrics=())
    return Phase(SHIFT_NAME, step, ask=offer, fold=fold_shift)


def fold_shift(state: S, replies: Replies[Classes], turn: Turn[C]) -> S | Folded[S]:
    """The state unchanged, and tables: each site's shares, and how far those of each target are from each source's."""
    counts = {str(site): reply.counts.double() for site, reply in replies.items()}
    p = {site: each / each.sum() for site, each in counts.items() if float(each.sum())}
    sources, targets = ([c for c in map(str, turn.members(role)) if c in p] for role in (Role.SOURCE, Role.TARGET))
    if not sources or not targets or len(p) * (turn.world.classes + len(p)) > MOST_VALUES:
        return state
    everywhere = torch.stack([counts[name] for name in sources]).sum(0)
    taught = {name: p[name] for name in sources} | {TOGETHER: everywhere / everywhere.sum()}
    here = (*sources, *targets)
    shares = torch.stack([p[name] for name in here], dim=1)
    each = Table(class_names(turn.world), here, tuple(map(tuple, shares.tolist())))
    return Folded(state, tables={SHARES: each, SHIFT: far(taught, p, targets)})


def far(taught: Mapping[str, Tensor], p: Mapping[str, Tensor], targets: list[str]) -> Table:
    """Total variation, 1/2 sum_k |p_k - q_k|: 0 where classes are as frequent here as there, 1 where none is in both."""
    values = tuple(tuple(min(1.0, float((q - p[t]).abs().sum() / 2)) for t in targets) for q in taught.values())
    return Table(tuple(taught), tuple(targets), values)
