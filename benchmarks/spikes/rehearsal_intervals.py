"""How wide intervals of what to expect should be: judged on families of data that no constant was chosen on.

    python benchmarks/spikes/rehearsal_intervals.py OUT [OUT ...]

Each OUT is what `rehearsal_outcomes.py` or `rehearsal_rows.py` wrote. The constants for each family are those of the least score
on all others: an interval's width, and 20 times what it misses by (Gneiting, Raftery, 2007). All rows of a target score, and in
lines that end in "held-out rows" those that its run does not adapt to.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student_t  # type: ignore[import-untyped,unused-ignore]

from benchmarks.limits import table
from benchmarks.spikes.rehearsal_rules import Case, cases_in, kinds_of, voted
from tideline.numerics.rehearsal.choice import SOFTNESS

Array: TypeAlias = NDArray[np.float64]
Ends: TypeAlias = tuple[float, float]
FLOOR, FEW = 0.01, 0.005


@dataclass(frozen=True)
class Tried:
    """The vote at each site, with the weights of all others: gains, changed, confident, right (s,); and at the target.

    here, confidence: the share that changes and the mean confidence at its `rows` adapted rows. found: gain and accuracy, over
    all rows, and over held-out ones where there are any.
    """

    case: Case
    gains: Array
    changed: Array
    confident: Array
    right: Array
    here: float
    confidence: float
    rows: int
    found: Mapping[str, Ends]


def tried(case: Case) -> Tried:
    s, w = len(case.rehearsals), voted(case, SOFTNESS)
    made = []
    for i, site in enumerate(case.rehearsals):
        rest = tuple(each for j, each in enumerate(case.rehearsals) if j != i) if s > 1 else case.rehearsals
        own = voted(Case(case.family, case.kind, case.target, rest), SOFTNESS)
        made.append((*site.gained(own), *site.sure(own)))
    gains, changed, confident, right = (np.array(each) for each in zip(*made, strict=True))
    adapted, held = (case.target.of(~case.target.held), case.target.of(case.target.held))
    found = {"": case.target, **({"held-out rows": held} if len(held.y) else {})}
    return Tried(
        case=case,
        gains=gains,
        changed=changed,
        confident=confident,
        right=right,
        here=adapted.gained(w)[1],
        confidence=adapted.sure(w)[0],
        rows=len(adapted.y),
        found={name: (of.gained(w)[0], of.sure(w)[1]) for name, of in found.items()},
    )


def variance(of: Array, usual: float, known: int, lone: float) -> float:
    s = len(of)
    return float(((s - 1) * of.var(ddof=1) + known * usual**2) / (s - 1 + known)) if s > 1 else lone**2


def gain(of: Tried, q: float, sites: float, known: int) -> Ends:
    each = float(np.clip((of.gains / np.maximum(of.changed, FEW)).mean(), -1, 1))
    value, spread = (float(of.gains.mean()) + each * of.here) / 2, variance(of.gains, 0.01, known, 0.05)
    off = q * math.sqrt((0.1 * of.here) ** 2 + sites**2 * spread + max(of.here, FLOOR) / of.rows + FLOOR**2)
    return value - off, value + off


def accuracy(of: Tried, slope: float, usual: float, known: int, q: float = 0.0) -> Ends:
    """q: half the width in units of the error; 0: as Student's t says."""
    excess, s = slope * of.confident - of.right, len(of.right)
    value = slope * of.confidence - float(excess.mean())
    off = math.sqrt((1 + 1 / s) * variance(excess, usual, known, 0.1) + 0.25 / of.rows + FLOOR**2)
    off *= q or float(student_t.ppf(0.95, s - 1 + known))
    return max(value - off, 0), min(value + off, 1)


Rule: TypeAlias = Callable[[Tried], Ends]


def gains_by(*settings: tuple[float, float, int]) -> list[Rule]:
    return [lambda of, s=s: gain(of, *s) for s in settings]  # type: ignore[misc]


def accuracies_by(*settings: tuple[float, float, int, float]) -> list[Rule]:
    return [lambda of, s=s: accuracy(of, *s) for s in settings]  # type: ignore[misc]


WIDTHS = [1 + i / 4 for i in range(13)]
SPREADS, SLOPES, DEGREES = (0.02, 0.04, 0.06, 0.08, 0.1, 0.12), (0.0, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0), (1, 2, 4, 8)
OF_GAIN: Mapping[str, Sequence[Rule]] = {
    "before": gains_by((1.5, 0.6, 0)),
    "width": gains_by(*((q, 0.6, 0) for q in WIDTHS)),
    "width, usual spread": gains_by(*itertools.product(WIDTHS, (0.6, 1.0, 1.5), (8,))),
}
OF_ACCURACY: Mapping[str, Sequence[Rule]] = {
    "before": accuracies_by((1.0, 0.0, 0, 1.64)),
    "width": accuracies_by(*((1.0, 0.0, 0, q) for q in WIDTHS)),
    "usual spread": accuracies_by(*((1.0, usual, known, 0.0) for usual in SPREADS for known in DEGREES)),
    "slope, width": accuracies_by(*((slope, 0.0, 0, q) for slope in SLOPES for q in WIDTHS)),
    "slope, usual spread": accuracies_by(*((b, usual, known, 0.0) for b in SLOPES for usual in SPREADS for known in DEGREES)),
}


def score(ends: Ends, found: float) -> float:
    low, high = ends
    return high - low + 20 * (max(low - found, 0) + max(found - high, 0))


def chosen(cases: Sequence[Tried], among: Sequence[Rule], what: int) -> list[Ends]:
    """Each case's interval, by the rule of the least score on all other families."""
    scores = np.array([[score(rule(each), each.found[""][what]) for each in cases] for rule in among])
    families = np.array([each.case.family for each in cases])
    at = {family: int(scores[:, families != family].sum(1).argmin()) for family in set(families)}
    return [among[at[each.case.family]](each) for each in cases]


def lines_of(name: str, cases: Sequence[Tried], among: Sequence[Rule], what: int) -> list[tuple[str, ...]]:
    """How many intervals hold, their median width, and their score, in points. what: 0 of the gain, 1 of the accuracy."""
    lines, ends = list[tuple[str, ...]](), chosen(cases, among, what)
    for kind, rows in itertools.product(kinds_of([each.case for each in cases]), ("", "held-out rows")):
        own = [
            (e, each.found[rows][what])
            for e, each in zip(ends, cases, strict=True)
            if each.case.kind == kind and rows in each.found
        ]
        if own:
            held = np.mean([low <= found <= high for (low, high), found in own])
            width, mean = np.median([high - low for (low, high), _ in own]), np.mean([score(*each) for each in own])
            lines.append((name, f"{kind} {rows}", f"{100 * held:.0f} %", f"{100 * width:.1f}", f"{100 * mean:.1f}"))
    return lines


def main() -> None:
    """Print lines for each way to an interval."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="+", help="a folder of outcomes")
    cases = [tried(case) for case in cases_in(parser.parse_args().out)]
    for what, rules in enumerate((OF_GAIN, OF_ACCURACY)):
        lines = [line for name, among in rules.items() for line in lines_of(name, cases, among, what)]
        print("\n".join(table((("gain", "accuracy")[what], "of", "held", "width", "score"), lines)), end="\n\n")


if __name__ == "__main__":
    main()
