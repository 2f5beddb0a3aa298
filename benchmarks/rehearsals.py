"""How well rehearsals choose, and whether what they expect holds: judged on the runs of the leaderboard.

    python benchmarks/rehearsals.py OUT [--picture FILE]

OUT is what `leaderboard.py` wrote. A case is one run that rehearsed: a target with one seed. Gains are differences of accuracy to
no adaptation on the target's held-out rows, summed over cases, in points.

of best    of the gain of the best method at each case, by the labels that score it: the luckiest of six
of chosen  of the gain of the method that is best at the target with the other seeds, whose held-out rows are others
harmed     significantly below no adaptation, by a test of two shares (95 %); and at most so many, by a sign test, if nothing that
           was predicted otherwise became right
by chance  held by the interval, or off it by no more than chance makes of so few held-out rows (90 %)
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.leaderboard import scores_of
from benchmarks.limits import table
from benchmarks.spikes.rehearsal_outcomes import SETS
from tideline.bench.expectations import within
from tideline.client.answers import Interval
from tideline.report.style import COLOURS, INCHES, MARKS, WORDS, legend, png_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GROUP = "linear"  # whose rows are the candidates
FEWEST = 6  # rows lost and none gained that the sign test calls significant at 95 %


@dataclass(frozen=True)
class Foretold:
    """What was expected, with its interval of 90 %, and what was found."""

    expected: Interval
    found: float
    variance: float  # by chance, of what is found on so few rows

    @property
    def held(self) -> bool:
        return within(self.expected, self.found, 0.0)

    @property
    def held_by_chance(self) -> bool:
        return within(self.expected, self.found, self.variance)

    @property
    def width(self) -> float:
        return self.expected["high"] - self.expected["low"]


@dataclass(frozen=True)
class Case:
    """A run that rehearsed. rows: that score. others: each row's gain at the target; elsewhere: that with the other seeds."""

    family: str
    rows: int
    gain: Foretold
    accuracy: Foretold
    others: Mapping[str, float]
    elsewhere: Mapping[str, float]

    @property
    def best(self) -> float:
        return max(self.others.values())

    @property
    def chosen(self) -> float:
        """The gain of the row that gains most with the other seeds."""
        return self.others[max(self.elsewhere, key=self.elsewhere.__getitem__)]

    @property
    def harmed(self) -> bool:
        lost, mean = -self.gain.found, self.accuracy.found - self.gain.found / 2
        return lost > 1.96 * math.sqrt(2 * mean * (1 - mean) / self.rows)

    @property
    def perhaps_harmed(self) -> bool:
        return round(-self.gain.found * self.rows) >= FEWEST


def cases_in(out: Path) -> list[Case]:
    return [case for file in sorted(out.glob(f"*/{GROUP}.yaml")) for case in cases_of(file)]


def cases_of(file: Path) -> list[Case]:
    """Of one set."""
    scores = list(scores_of(file, file.with_suffix("")))
    plain = {(s.cell.label, s.cell.leave_out, s.cell.seed): s.ood or 0.0 for s in scores if s.expected is None}
    labels = list(dict.fromkeys(label for label, _, _ in plain))

    def gains(target: str, seeds: Sequence[int]) -> dict[str, float]:
        return {
            label: statistics.fmean(plain[label, target, seed] - plain[labels[0], target, seed] for seed in seeds)
            for label in labels
        }

    def whole(target: str) -> set[int]:
        """The seeds with which every row is done."""
        return {seed for _, _, seed in plain if all((label, target, seed) in plain for label in labels)}

    made = []
    for s in scores:
        seeds, told = whole(s.cell.leave_out), s.expected
        if told is None or told.gain is None or told.accuracy is None or s.ood is None or len(seeds | {s.cell.seed}) < 2:
            continue
        if s.cell.seed in seeds:
            made.append(
                Case(
                    family=SETS[file.parent.name],
                    rows=told.rows,
                    gain=Foretold(told.gain, told.found, told.changed / told.rows),
                    accuracy=Foretold(told.accuracy, s.ood, s.ood * (1 - s.ood) / told.rows),
                    others=gains(s.cell.leave_out, [s.cell.seed]),
                    elsewhere=gains(s.cell.leave_out, sorted(seeds - {s.cell.seed})),
                )
            )
    return made


def line_of(name: str, cases: Sequence[Case]) -> tuple[str, ...]:
    """How well was chosen."""
    gain, best, chosen = (100 * sum(values) for values in zip(*((c.gain.found, c.best, c.chosen) for c in cases), strict=True))
    shares = (f"{100 * gain / of:.0f} %" if of > 0 else "" for of in (best, chosen))
    harmed, most = sum(c.harmed for c in cases), sum(c.perhaps_harmed for c in cases)
    return name, str(len(cases)), f"{gain:.1f}", f"{best:.1f}", *shares, f"{harmed}, at most {most}"


def held(name: str, cases: Sequence[Case]) -> tuple[str, ...]:
    """How often intervals hold what was found, as it is and by what chance allows for, and how wide they are, in points."""
    cells = [name]
    for of in ([c.gain for c in cases], [c.accuracy for c in cases]):
        cells += [f"{100 * statistics.fmean(each.held for each in of):.0f} %"]
        cells += [f"{100 * statistics.fmean(each.held_by_chance for each in of):.0f} %"]
        cells += [f"{100 * statistics.median(each.width for each in of):.1f}"]
    return tuple(cells)


def each_row(cases: Sequence[Case]) -> list[tuple[str, ...]]:
    """What each row gains by itself at all cases."""
    return [(label, f"{100 * sum(c.others[label] for c in cases):.1f}") for label in cases[0].others]


def draw(cases: Sequence[Case], file: Path) -> None:
    """What was found against what was expected: gains, and accuracies."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(INCHES, 4.0), layout="constrained")
    for axes, title in zip(figure.subplots(1, 2), ("gain, points", "accuracy, percent"), strict=True):
        handles = {}
        for i, family in enumerate(sorted({c.family for c in cases})):
            of = [c.gain if title.startswith("gain") else c.accuracy for c in cases if c.family == family]
            ends = [[abs(each.expected[end] - each.expected["value"]) * 100 for each in of] for end in ("low", "high")]
            x, y = [100 * each.expected["value"] for each in of], [100 * each.found for each in of]
            look: Any = {"fmt": MARKS[i], "color": COLOURS[i], "markersize": 3.5, "elinewidth": 0.5}
            handles[family] = axes.errorbar(x, y, xerr=ends, **look)
        dress(axes, title)
    legend(figure, handles, columns=3)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(png_of(figure))


def dress(axes: Axes, title: str) -> None:
    """Both axes alike, and the line on which what was found is what was expected."""
    axes.set_title(title, fontsize=WORDS, loc="left")
    axes.set_xlabel("expected, with 90 % intervals", fontsize=WORDS)
    axes.set_ylabel("found", fontsize=WORDS)
    low, high = min(axes.get_xlim()[0], axes.get_ylim()[0]), max(axes.get_xlim()[1], axes.get_ylim()[1])
    axes.plot([low, high], [low, high], color="black", linewidth=0.8, zorder=0)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Print how well was chosen and whether expectations hold, by family, and draw both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the folder that leaderboard.py wrote")
    parser.add_argument("--picture", type=Path, help="where the picture goes, a .png")
    args = parser.parse_args()
    cases = cases_in(args.out)
    if not cases:
        parser.error(f"{args.out} has no runs that rehearsed; make them with leaderboard.py")
    parts = [("all", cases), *((f, [c for c in cases if c.family == f]) for f in sorted({c.family for c in cases}))]
    heads = ("family", "cases", "points", "best", "of best", "of chosen", "harmed")
    print("\n".join(table(heads, [line_of(*part) for part in parts])), end="\n\n")
    heads = ("family", "gain: held", "or by chance", "width", "accuracy: held", "or by chance", "width")
    print("\n".join(table(heads, [held(*part) for part in parts])), end="\n\n")
    print("\n".join(table(("row by itself", "points"), each_row(cases))))
    if args.picture:
        draw(cases, args.picture)


if __name__ == "__main__":
    main()
