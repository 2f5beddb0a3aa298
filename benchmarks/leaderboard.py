"""The leaderboard: methods on targets of real sets, and docs/leaderboard.md with what came of it.

    python benchmarks/leaderboard.py --data DIR --out OUT [--set NAME ...] [--all] [--estimate] [--jobs N]

DIR holds a folder of .npz files, one for each domain, for each of the sets that leaderboard.yaml names: x, y and, of
amazon_review, top400. OUT takes the prepared data, a bench (docs/benchmarks.md) of each set and group of methods, and the fits on
pooled data. Each run and fit that is there is not repeated: give the same command again to go on. --all runs the groups that take
hours, too; --estimate runs one cell of each of their rows, and the page says how long all would take.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import yaml

from benchmarks import leaderboard_pooled as pooled
from benchmarks.leaderboard_data import convert
from tideline.bench.cells import CELLS
from tideline.bench.choices import choices, with_choices
from tideline.bench.estimates import accuracy, by, gain, mean_of, strongest
from tideline.bench.expectations import expected_and_found
from tideline.bench.grid import Cell, read_grid, variants
from tideline.bench.scores import RESULT, Score, Status, json_of, scored
from tideline.bench.tables import RESULTS, estimated, picked, piped, targets
from tideline.client.answers import RunResult
from tideline.core.settings import Plain, parse, setting
from tideline.learning.partition.deals import Deal
from tideline.written.files import read_file

ROOT = Path(__file__).resolve().parents[1]
CORES = 2  # that hours are said of
SHARE = 0.1  # of each source's rows that are held out, as in a grid


@dataclass(frozen=True)
class SetOfDomains:
    classes: int = setting(low=2, doc="number of classes")
    what: str = setting(doc="what it is, for the page")


@dataclass(frozen=True)
class Group:
    """Methods that share a world; keys of a grid but for `long`."""

    name: str = setting(doc="names its folder")
    world: Mapping[str, Plain] = setting(doc="what its world has beside inputs and classes")
    methods: tuple[Plain, ...] = setting(doc="as in a grid")
    baselines: tuple[str, ...] = setting((), doc="as in a grid")
    base: Mapping[str, Plain] = setting({}, doc="as in a grid")
    long: bool = setting(False, doc="run with --all only")


@dataclass(frozen=True)
class Board:
    sets: Mapping[str, SetOfDomains] = setting(doc="by the name of its folder")
    groups: tuple[Group, ...] = setting(doc="of methods")
    pooled: tuple[str, ...] = setting((), doc="estimators on pooled data")
    seeds: int = setting(3, low=1, doc="of each cell")
    rows: int = setting(1000, low=10, doc="at most so many of a domain")
    target_share: float = setting(0.2, low=0.001, high=0.999, doc="of a target's rows that score")


@dataclass(frozen=True)
class Asked:
    """What the command was asked for."""

    board: Board
    data: Path
    out: Path
    jobs: int
    everything: bool = field(kw_only=True)
    estimate: bool = field(kw_only=True)


@dataclass(frozen=True)
class Found:
    """The results of a set: those of runs, those on pooled data, and those of rows that were not run to the end."""

    runs: list[Score]
    pooled: list[Score]
    unfinished: list[Score]

    @property
    def all(self) -> list[Score]:
        return [*with_choices(self.runs, list(choices(self.runs))), *self.pooled]


def main() -> None:
    """Run what is not there yet, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the sets")
    parser.add_argument("--out", type=Path, required=True, help="where data and results go")
    parser.add_argument("--set", action="append", help="one of the sets; repeatable [default: all]")
    parser.add_argument("--all", action="store_true", help="the groups that take hours, too")
    parser.add_argument("--estimate", action="store_true", help="one cell of each row of these groups")
    parser.add_argument("--jobs", type=int, default=CORES, help="how many runs at once")
    parser.add_argument("--board", type=Path, default=ROOT / "benchmarks" / "leaderboard.yaml", help="what to compare")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "leaderboard.md", help="where the page goes")
    args = parser.parse_args()
    board = parse(Board, yaml.safe_load(args.board.read_text(encoding="utf-8")))
    if board.pooled and importlib.util.find_spec("skada") is None:
        raise SystemExit("Estimators on pooled data need skada: pip install skada, or give a --board without `pooled`")
    if unknown := sorted(set(args.set or ()) - set(board.sets)):
        raise SystemExit(f"{args.board} has no set {unknown[0]}; it has {', '.join(board.sets)}")
    asked = Asked(board, args.data, args.out.resolve(), args.jobs, everything=args.all, estimate=args.estimate)
    found = {name: run_set(asked, name) for name in args.set or board.sets}
    words = [f" --set {name}" for name in args.set or ()] + [" --all"] * args.all + [" --estimate"] * args.estimate
    command = "python benchmarks/leaderboard.py --data DIR --out OUT" + "".join(words)
    args.page.write_text(page(board, found, command), encoding="utf-8")
    print(args.page)


def run_set(asked: Asked, name: str) -> Found:
    """Everything of one set that is not there yet; its results."""
    folder, out, board = asked.out / "data" / name, asked.out / name, asked.board
    width = convert(asked.data / name, folder, board.rows)
    domains = sorted(path.stem for path in folder.glob("*.npz"))
    scores = [score for group in board.groups for score in run_group(asked, name, group, width, domains)]
    whole = {label for label, own in by(scores, lambda s: s.cell.label).items() if len(own) == board.seeds * len(domains)}
    fits = [
        pooled.Pooled(folder, each, Deal(target, len(domains) - 1, 1, seed, SHARE, target_share=board.target_share))
        for seed in range(board.seeds)
        for target in domains
        for each in board.pooled
    ]
    pooled.run(fits, out / "pooled", asked.jobs)
    runs, unfinished = ([s for s in scores if (s.cell.label in whole) == done] for done in (True, False))
    return Found(runs, [pooled.score(each, out / "pooled") for each in fits], unfinished)


def run_group(asked: Asked, name: str, group: Group, width: int, domains: Sequence[str]) -> list[Score]:
    """A group's bench; the scores of its cells, also of those that an earlier command ran."""
    board, out = asked.board, asked.out / name / group.name
    grid: dict[str, Any] = {
        "folder": str(asked.out / "data" / name),
        "protocol": "adapt",
        "target_share": board.target_share,
        "share": SHARE,
        "seeds": board.seeds,
        "world": {"inputs": [width], "classes": board.sets[name].classes, **group.world},
        "methods": list(group.methods),
        "base": dict(group.base),
        **({"baselines": list(group.baselines)} if group.baselines else {}),
    }
    first = name == next(iter(board.sets))
    if group.long and not asked.everything:
        grid |= {"leave_out": domains[0], "seeds": 1}
    file = asked.out / name / f"{group.name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(grid, sort_keys=False), encoding="utf-8")
    if asked.everything or not group.long or (asked.estimate and first):
        command = [sys.executable, "-m", "tideline", "bench", str(file), "--out", str(out), "--jobs", str(asked.jobs)]
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode not in (0, 1):  # 1: a cell has failed
            raise SystemExit(f"{' '.join(command)} could not run")
    return list(scores_of(file, out))


def scores_of(file: Path, out: Path) -> Iterator[Score]:
    """The done cells of a bench, for a grid's rows: those that its results.csv lists."""
    grid, results = read_grid(read_file(file)), out / RESULTS
    rows = {row.label: row for row in variants(grid)}
    baselines = grid.baselines or tuple(rows)[:1]
    for line in csv.DictReader(results.open(encoding="utf-8", newline="")) if results.exists() else ():
        row, result = rows.get(line["label"]), json_of(out / CELLS / line["folder"] / RESULT)
        if row is not None and line["status"] == Status.DONE and line["ood"] and result is not None:
            cell = Cell(
                label=row.label,
                method=line["method"],
                leave_out=line["left_out"],
                domains=int(line["domains"]),
                seed=int(line["seed"]),
                text="",
                digest=line["experiment_digest"],
                key=line["folder"],
                sweep=row.method.name if row.swept else "",
                baseline=row.label in baselines,
                adapts=True,
            )
            yield scored(cell, cast("RunResult", result))


def page(board: Board, found: Mapping[str, Found], command: str) -> str:
    """The page, in Markdown. command: what makes it."""
    parts = [
        HEAD.format(command=command, seeds=board.seeds, share=f"{100 * board.target_share:g}", rows=f"{board.rows:,}"),
        overview(found),
    ]
    for name, of in found.items():
        header, lines = next(iter(targets(of.all)))[1]
        parts.append(f"## {name}\n\n{board.sets[name].what[0].upper()}{board.sets[name].what[1:]}.\n\n{piped(header, lines)}")
        if chosen := list(choices(of.runs)):
            parts.append("What was chosen at each target:\n\n" + piped(*picked(chosen)))
        if rehearsed := [(s.cell, s.expected) for s in of.runs if s.expected is not None]:
            parts.append("What rehearsals expected, and what was found:\n\n" + piped(*expected_and_found(rehearsed)))
    failed = [s for of in found.values() for s in of.pooled if s.status is Status.FAILED]
    if failed:
        parts.append("## Failed\n\n" + piped(["fit", "cause"], [[s.cell.words(), s.cause] for s in failed]))
    return "\n".join([*parts, *not_run(board, found)])


def overview(found: Mapping[str, Found]) -> str:
    """A row a method: its mean over the targets of each set, and its gain, in the mean over sets."""
    labels = dict.fromkeys(score.cell.label for of in found.values() for score in of.all)
    lines = []
    for label in labels:
        means = [accuracy([s for s in of.all if s.cell.label == label]) for of in found.values()]
        gains = [gained(of.all, label) for of in found.values()]
        known = [value for value in gains if value is not None]
        total = f"{100 * sum(known) / len(known):+z.1f}" if len(known) == len(found) else ""
        lines.append([label, *map(estimated, means), total])
    return "## Means over the targets of each set\n\n" + piped(["method", *found, "mean gain"], lines)


def gained(scores: Sequence[Score], label: str) -> float | None:
    """A row's gain over a set's strongest baseline; 0 of that itself."""
    rows = by(scores, lambda s: s.cell.label)
    made = gain(rows.get(label, []), rows.get(strongest(scores), []))
    return None if made is None else made.mean


def not_run(board: Board, found: Mapping[str, Found]) -> Iterator[str]:
    """What takes hours, and how many, from the cells that were run."""
    targets_of_all = sum(len({s.cell.leave_out for s in of.pooled or of.runs}) for of in found.values())
    cells = by([s for of in found.values() for s in of.unfinished], lambda s: s.cell.label)
    lines = []
    for label, own in cells.items():
        seconds = mean_of(s.seconds for s in own) or 0.0
        hours = seconds * board.seeds * targets_of_all / CORES / 3600
        lines.append([label, f"{seconds:.0f}", f"{hours:.2f}"])
    if lines:
        yield TAIL.format(cores=CORES) + piped(["method", "seconds of one run", "hours of all"], lines)


HEAD = """\
<!-- This file is made by a command: {command} -->

# Leaderboard

Methods on targets whose labels nobody learns from. Each domain of a set is the target once: {share} % of its rows score it, and
it trains on all others without their labels; every other domain is a labelled source at a site of its own. Features are given,
and nobody trains an encoder. At most {rows} rows of a domain, {seeds} seeds. [Comparing methods](benchmarks.md) describes the
protocol and how to run your own. `benchmarks/leaderboard.yaml` has each row's settings, which are the same for all sets. Only the
rate of fedavg was chosen, the best of three at one target each of five sets.

Features are on the labelled sites' scale; of methods named *site* each site's are [on its own](normalisation.md). The row *chosen
by rehearsal* [tries](rehearsal.md) the other methods at the labelled sites, and lets those that gained there vote at the target.
Its megabytes and seconds are those of all its runs.

Rows marked *pooled data* are what you could have without a federation, if all rows were in one place: estimators of scikit-learn
and [skada](https://scikit-adaptation.github.io) on the same rows, on the sources' scale and mostly with the defaults of skada,
which nobody tuned for these data. The oracle takes the best of the other rows at each target by the labels that score: it is what
a perfect choice would give, and no method can be compared with it.

Percent: the accuracy on each target's held-out rows, the mean over seeds with a 95 % interval, the wider one of Student's over
seeds and Wilson's over the rows that score a run. mean: over the targets. gain: of the mean over that of the strongest baseline,
seed by seed on the same rows, with Student's interval over seeds. MB: all messages of a run; seconds: how long it took, with
others at work beside it.
"""

TAIL = """\
## Not run here

One run of each of these methods was measured; hours are those of all runs on {cores} cores. `--all` runs them.

"""


if __name__ == "__main__":
    main()
