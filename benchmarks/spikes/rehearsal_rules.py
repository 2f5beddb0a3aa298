"""Which rule chooses an adaptation for a target best, by rehearsals alone: judged on families that it was not chosen on.

    python benchmarks/spikes/rehearsal_rules.py OUT [OUT ...]

Each OUT is what `rehearsal_outcomes.py` or `rehearsal_rows.py` wrote. A rule says how to weigh the candidates' predictions for a
target; its constants are those that gain most on all other families. Gains are differences of accuracy to no adaptation, summed
over targets, in points.
Harm: significantly below no adaptation (paired over rows, 95 %).

of best    of the gain of each target's best candidate. The best of eleven on the rows that it is scored on is lucky, too
of chosen  of the gain of the candidate that is best on half of the target's rows, scored on the other half (mean of 40 halves)
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.limits import table
from benchmarks.spikes import rehearsal_variants as variants
from benchmarks.spikes.rehearsal_outcomes import SETS
from tideline.numerics.rehearsal.choice import SOFTNESS, vote
from tideline.numerics.rehearsal.expectation import Expectation, expected
from tideline.numerics.rehearsal.shifts import Shift, likeness

Array: TypeAlias = NDArray[np.float64]
NO_SHIFT = math.inf
LEVEL = 0.9  # of an interval
KINDS = ("real", "generated", "product")  # that tables tell apart
SOFT = (0.005, 0.01, 0.02, 0.05)
HALVES = 40


@dataclass(frozen=True)
class Outcome:
    """Of each candidate: predictions p (m, n, classes) of rows with labels y (n,); far (2,): the place's distances.

    held (n,): rows that score a run and are not adapted to.
    """

    p: Array
    y: NDArray[np.int64]
    far: Array
    held: NDArray[np.bool_]

    def of(self, rows: NDArray[np.bool_]) -> Outcome:
        return Outcome(self.p[:, rows], self.y[rows], self.far, self.held[rows])

    @property
    def accuracy(self) -> Array:
        found: Array = (self.p.argmax(2) == self.y).mean(1)
        return found

    @property
    def gain(self) -> Array:
        return self.accuracy - self.accuracy[0]

    @property
    def changed(self) -> Array:
        """The share of rows that each candidate predicts otherwise than no adaptation."""
        guess = self.p.argmax(2)
        found: Array = (guess != guess[0]).mean(1)
        return found

    @property
    def by_rows(self) -> Array:
        """The variance of each candidate's gain that so many rows have."""
        right = (self.p.argmax(2) == self.y).astype(float)
        found: Array = (right - right[0]).var(1) / len(self.y)
        return found

    @cached_property
    def chosen_on_half(self) -> float:
        """The gain on one half of the rows of what gains most on the other, mean over halves."""
        right = self.p.argmax(2) == self.y
        difference, rng = right.astype(float) - right[0], np.random.default_rng(0)
        found = 0.0
        for _ in range(HALVES):
            order = rng.permutation(len(self.y))
            a, b = order[: len(order) // 2], order[len(order) // 2 :]
            found += float(difference[difference[:, a].mean(1).argmax(), b].mean())
        return found / HALVES

    @property
    def shift(self) -> Shift:
        return Shift(*map(float, self.far))

    def gained(self, weights: Array) -> tuple[float, float]:
        """The gain of a vote with these weights, and the share of rows whose prediction it changes."""
        guess, none = np.tensordot(weights, self.p, 1).argmax(1), self.p[0].argmax(1)
        return float((guess == self.y).mean() - (none == self.y).mean()), float((guess != none).mean())

    def sure(self, weights: Array) -> tuple[float, float]:
        """The mean confidence and the accuracy of a vote with these weights."""
        p = np.tensordot(weights, self.p, 1)
        return float(p.max(1).mean()), float((p.argmax(1) == self.y).mean())


@dataclass(frozen=True)
class Case:
    """A target, and what was rehearsed for it at each labelled site."""

    family: str
    kind: str
    target: Outcome
    rehearsals: tuple[Outcome, ...]

    @cached_property
    def accuracies(self) -> Array:
        """(sites, m)."""
        return np.stack([each.accuracy for each in self.rehearsals])

    @property
    def gains(self) -> Array:
        """(sites, m)."""
        return self.accuracies - self.accuracies[:, :1]

    @cached_property
    def by_rows(self) -> Array:
        """(sites, m)."""
        return np.stack([each.by_rows for each in self.rehearsals])


Rule: TypeAlias = Callable[[Case], Array]  # the weight of each candidate's predictions (m,), of sum 1


def alike(case: Case, h: float) -> Tensor:
    """How much each rehearsal weighs: as the shift there resembles the target's."""
    return likeness(case.target.shift, [each.shift for each in case.rehearsals], h)


def winner(case: Case, k: float = 0.0, h: float = NO_SHIFT) -> Array:
    """The candidate of the largest mean gain, less k standard errors; none where no mean is above 0."""
    gains = case.gains
    error = gains.std(0) / math.sqrt(len(gains))
    score = alike(case, h).numpy() @ gains - k * error
    return np.eye(len(score))[int(score.argmax()) if score.max() > 0 else 0]


def voted(case: Case, tau: float, h: float = NO_SHIFT) -> Array:
    """`vote` of tideline.numerics.rehearsal.choice."""
    found: Array = vote(torch.from_numpy(case.gains), alike(case, h), tau).numpy()
    return found


def agreement(case: Case) -> Array:
    """The candidate that agrees most with the mean of all of them: no rehearsal."""
    labels = case.target.p.argmax(2)
    return np.eye(len(labels))[int((labels == case.target.p.mean(0).argmax(1)).mean(1).argmax())]


RULES: Mapping[str, Sequence[Rule]] = {
    "mean": (winner,),
    "bound, k = 1": (partial(winner, k=1.0),),
    "mean, alike": [partial(winner, h=h) for h in (0.5, 1.0, 2.0)],
    "vote, as shipped": (partial(voted, tau=SOFTNESS),),
    "vote": [partial(voted, tau=tau) for tau in SOFT],
    "vote, alike": [partial(voted, tau=tau, h=h) for tau in SOFT for h in (0.5, 1.0, 2.0, NO_SHIFT)],
    "agreement": (agreement,),
    "share of errors": [
        partial(variants.of_errors, tau=tau, least=least) for tau in (0.02, 0.05, 0.1, 0.2) for least in (0.01, 0.05, 0.1, 0.3)
    ],
    "log-odds": [partial(variants.log_odds, tau=tau) for tau in (0.03, 0.06, 0.12, 0.25, 0.5)],
    "pooled": [partial(variants.pooled, tau=tau, least=least) for tau in SOFT for least in (0.0, 0.005, 0.01, 0.02)],
    "in noise": [partial(variants.in_noise, k=k, least=least) for k in (0.25, 0.5, 1.0, 2.0) for least in (0.0, 0.005, 0.01)],
    "with mean": [partial(variants.with_mean, tau=tau, share=share) for tau in SOFT for share in (0.0, 0.1, 0.25, 0.5, 0.75)],
    "of losers too": [partial(variants.of_losers_too, tau=tau) for tau in (*SOFT, 0.03, 0.1)],
    "of changes": [partial(variants.of_changes, tau=tau, share=share) for tau in SOFT for share in (0.25, 0.5, 0.75, 1.0)],
}


@dataclass
class Judged:
    """Sums over targets."""

    gain: float = 0.0
    best: float = 0.0
    chosen: float = 0.0
    harmed: int = 0
    targets: int = 0

    def add(self, case: Case, rule: Rule) -> None:
        guess = np.tensordot(rule(case), case.target.p, 1).argmax(1)
        difference = (guess == case.target.y).astype(float) - (case.target.p[0].argmax(1) == case.target.y)
        self.gain += float(difference.mean())
        self.best += float(case.target.gain.max())
        self.chosen += case.target.chosen_on_half
        self.harmed += bool(difference.mean() + 1.96 * difference.std() / math.sqrt(len(difference)) < 0)
        self.targets += 1

    @property
    def cells(self) -> tuple[str, ...]:
        shares = (f"{100 * self.gain / of:.1f} %" if of > 0 else "" for of in (self.best, self.chosen))
        return f"{100 * self.gain:.1f}", *shares, f"{self.harmed} of {self.targets}"


def total(cases: Sequence[Case], rule: Rule) -> float:
    return sum(case.target.gained(rule(case))[0] for case in cases)


def judged(cases: Sequence[Case], among: Sequence[Rule]) -> dict[str, Judged]:
    """By kind: each family by the rule that gains most on all others."""
    families, found = sorted({case.family for case in cases}), {kind: Judged() for kind in KINDS}
    gains = [{f: total([c for c in cases if c.family == f], rule) for f in families} for rule in among]
    for family in families:
        at = max(range(len(among)), key=lambda i: sum(gains[i].values()) - gains[i][family])
        for case in cases:
            if case.family == family:
                found[case.kind].add(case, among[at])
    return {kind: each for kind, each in found.items() if each.targets}


@dataclass(frozen=True)
class Foretold:
    """What was expected of the vote at a target, and what it gained there."""

    case: Case
    expectation: Expectation
    gain: float

    @property
    def score(self) -> float:
        """Of the interval: its width, and what it misses by, 2 / (1 - LEVEL) times (Gneiting, Raftery, 2007)."""
        low, high = self.expectation.low, self.expectation.high
        return high - low + 2 / (1 - LEVEL) * (max(low - self.gain, 0) + max(self.gain - high, 0))

    @property
    def held(self) -> bool:
        return self.expectation.low <= self.gain <= self.expectation.high


def foretold(case: Case) -> Foretold:
    """Each rehearsal of the vote has the weights that follow from all others."""
    own = likeness(case.target.shift, [each.shift for each in case.rehearsals])
    weights: Array = vote(torch.from_numpy(case.gains), own).numpy()
    tried = [site.gained(from_others(case, i, weights)) for i, site in enumerate(case.rehearsals)]
    gains, changed = (torch.tensor(each) for each in zip(*tried, strict=True))
    gain, here = case.target.gained(weights)
    return Foretold(case, expected(gains, changed, own, here, len(case.target.y)), gain)


def from_others(case: Case, i: int, weights: Array) -> Array:
    rest = [each for j, each in enumerate(case.rehearsals) if j != i]
    if not rest:
        return weights
    w = likeness(case.rehearsals[i].shift, [each.shift for each in rest])
    found: Array = vote(torch.tensor(np.stack([each.gain for each in rest])), w).numpy()
    return found


def pooled(cases: Sequence[Foretold]) -> list[Foretold]:
    """The same with the plain spread of gains in other families in place of rehearsals."""
    made = []
    for each in cases:
        others = np.array([o.gain for o in cases if o.case.family != each.case.family])
        low, high = np.quantile(others, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
        made.append(Foretold(each.case, Expectation(float(others.mean()), float(low), float(high)), each.gain))
    return made


def line_of(name: str, cases: Sequence[Foretold]) -> tuple[str, ...]:
    """How many intervals hold, how wide they are, and their score, in points, by kind."""
    cells = [name]
    for kind in kinds_of([each.case for each in cases]):
        of = [each for each in cases if each.case.kind == kind]
        width = float(np.median([each.expectation.high - each.expectation.low for each in of]))
        held, score = np.mean([each.held for each in of]), np.mean([each.score for each in of])
        cells += [f"{100 * held:.1f} %", f"{100 * width:.1f}", f"{100 * score:.1f}"]
    return tuple(cells)


def kinds_of(cases: Sequence[Case]) -> list[str]:
    return [kind for kind in KINDS if any(case.kind == kind for case in cases)]


def cases_in(folders: Sequence[Path]) -> list[Case]:
    return [case for folder in folders for path in sorted(folder.glob("*.npz")) for case in cases_of(path)]


def cases_of(path: Path) -> list[Case]:
    kind, base, *_ = path.stem.split("-")
    file = np.load(path, allow_pickle=False)

    def outcome(target: str, site: str) -> Outcome:
        p, y, far = (file[f"{target}/{site}/{key}"] for key in ("p", "y", "far"))
        held = file[f"{target}/{site}/held"] if f"{target}/{site}/held" in file.files else np.zeros(len(y), bool)
        return Outcome(p.astype(np.float64), y, far, held)

    places = {tuple(key.split("/")[:2]) for key in file.files}
    targets = sorted({target for target, _ in places})
    return [
        Case(
            family=SETS[base],
            kind=kind,
            target=outcome(target, ""),
            rehearsals=tuple(outcome(target, site) for own, site in sorted(places) if own == target and site),
        )
        for target in targets
    ]


def main() -> None:
    """Print a line for each rule."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="+", help="a folder of outcomes")
    cases = cases_in(parser.parse_args().out)
    if not cases:
        parser.error("there are no outcomes; write them with rehearsal_outcomes.py")
    rows = [(name, *(cell for each in judged(cases, among).values() for cell in each.cells)) for name, among in RULES.items()]
    heads = ("rule", *(f"{of}: {name}" for of in kinds_of(cases) for name in ("points", "of best", "of chosen", "harmed")))
    print("\n".join(table(heads, rows)), end="\n\n")
    told = [foretold(case) for case in cases]
    lines = [line_of("rehearsed", told), line_of("spread of gains elsewhere", pooled(told))]
    heads = ("expectation", *(f"{of}: {name}" for of in kinds_of(cases) for name in ("held", "width", "score")))
    print("\n".join(table(heads, lines)))


if __name__ == "__main__":
    main()
