"""A grid's results as files: a line a cell, a line a cell and round, and tables in Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from tideline.bench.choices import Choice, choices, with_choices
from tideline.bench.estimates import Estimate, TargetRow, by, strongest, target_rows
from tideline.bench.expectations import Lines, expected_and_found, plain_of
from tideline.bench.scores import METRICS, Row, Score, Spread, Status, rows
from tideline.client.output import replace_file

Cell = str | float | None
RESULTS, CURVES, TABLE = "results.csv", "curves.csv", "table.md"
COLUMNS = (
    *("label", "method", "left_out", "domains", "seed", "status", "id", "ood", "rows", "rounds", "seconds", "bytes"),
    *("state_digest", "experiment_digest", "folder", "cause"),
)
NOTE = """\
Percent. id: the mean over clients of the accuracy on their own held-out rows; ood: the accuracy on the whole domain that is left
out. Mean over seeds ± sample standard deviation; where a mean is over all left-out domains, it is taken first. "n of m": so many
of the seeds are done. Every number is in results.csv with the digests of its experiment and of its final state.
"""


NOTE_ON_TARGETS = """\
Percent: the accuracy on each target's held-out rows, the mean over seeds with a 95 % interval, the wider one of Student's over
seeds and Wilson's over the rows that score a run. mean: over the targets. gain: of the mean over that of the strongest baseline,
seed by seed on the same rows, with Student's interval over seeds. MB: all messages of a run; seconds: how long it took. "n of m":
so many of the seeds are done. A row that was chosen has at each target the numbers of the row that was chosen there; an oracle
has seen the labels that score, so no method can be compared with it. Every number is in results.csv with the digests of its
experiment and of its final state.
"""


def write_tables(scores: Sequence[Score], out: Path, data: str) -> list[Path]:
    """Write results.csv, curves.csv and table.md, each whole or not at all; what was written. Raises OSError."""
    texts = {RESULTS: results(scores), CURVES: curves(scores), TABLE: markdown(scores, data)}
    for name, text in texts.items():
        replace_file(out / name, text)
    return [out / name for name in texts]


def results(scores: Iterable[Score]) -> str:
    return as_csv([COLUMNS, *(fact.values() for fact in map(facts, scores))])


def facts(score: Score) -> dict[str, Cell]:
    """A cell's values by the names of the columns."""
    cell = score.cell
    place = (cell.label, cell.method, cell.leave_out, cell.domains, cell.seed, score.status.value)
    values = (score.id, score.ood, score.rows, score.rounds, score.seconds, score.bytes)
    return dict(zip(COLUMNS, (*place, *values, score.state_digest, cell.digest, cell.key, score.cause), strict=True))


def curves(scores: Iterable[Score]) -> str:
    lines: list[Sequence[Cell]] = [("label", "left_out", "domains", "seed", "round", "id", "ood")]
    for score in scores:
        cell = (score.cell.label, score.cell.leave_out, score.cell.domains, score.cell.seed)
        lines += [(*cell, p.round, p.id, p.ood) for p in score.curve]
    return as_csv(lines)


def as_csv(lines: Iterable[Iterable[Cell]]) -> str:
    """Lines of cells as CSV; None is an empty cell."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue()


def markdown(scores: Sequence[Score], data: str) -> str:
    """The tables, and what failed."""
    counts = ", ".join(f"{sum(s.status is status for s in scores)} {status.value}" for status in Status)
    note = NOTE_ON_TARGETS if adapts(scores) else NOTE
    parts = [f"# Results\n\n{len(scores)} cells: {counts}. Data: SHA-256 `{data}`.\n\n{note}"]
    for heading, (header, lines) in tables(scores):
        parts.append(f"## {heading}\n\n{piped(header, lines)}")
    failed = [[s.cell.words(), s.cause] for s in scores if s.status is Status.FAILED]
    if failed:
        parts.append("## Failed\n\n" + piped(["cell", "cause"], failed))
    return "\n".join(parts)


def adapts(scores: Sequence[Score]) -> bool:
    return any(score.cell.adapts for score in scores)


def tables(scores: Sequence[Score]) -> Iterator[tuple[str, Lines]]:
    """A grid's tables, each under a heading: of its targets, or over all left-out domains and of each; and what was chosen."""
    chosen = list(choices(scores))
    every = with_choices(scores, chosen)
    if adapts(scores):
        yield from targets(every)
    else:
        made = rows(every)
        yield "All left-out domains", overall(made)
        yield from singles(made)
    if chosen:
        yield "Chosen rows", picked(chosen)
    if rehearsed := [(s.cell, s.expected) for s in scores if s.expected is not None]:
        yield "Expected and found", expected_and_found(rehearsed)


def targets(scores: Sequence[Score]) -> Iterator[tuple[str, Lines]]:
    """For each d, under a heading: a method a line, its accuracy at each target and in the mean, its gain and its costs."""
    for d, own in by(scores, lambda s: s.cell.domains).items():
        made, base = target_rows(own), strongest(own)
        names = list(made[0].targets)
        header = ["method", *names, "mean", f"gain over {base}" if base else "gain", "MB", "seconds"]
        yield f"Targets, d = {d}", (header, [target_line(row, names) for row in made])


def target_line(row: TargetRow, names: Sequence[str]) -> list[str]:
    cost = ["" if value is None else f"{value:.{digits}f}" for value, digits in ((row.megabytes, 2), (row.seconds, 1))]
    shares = [estimated(row.targets[name]) for name in names]
    return [row.label, *shares, estimated(row.all), estimated(row.gain, "+"), *cost]


def estimated(estimate: Estimate | None, sign: str = "") -> str:
    """A mean with its interval in percent: 83.2 (79.5 to 86.1)."""
    if estimate is None:
        return ""
    text = f"{100 * estimate.mean:{sign}z.1f}"
    if estimate.low is not None and estimate.high is not None:
        text += f" ({100 * estimate.low:{sign}z.1f} to {100 * estimate.high:{sign}z.1f})"
    return text if estimate.n == estimate.of else f"{text} ({estimate.n} of {estimate.of})"


def picked(chosen: Sequence[Choice]) -> Lines:
    """A choice a line, and the row that it is at each domain."""
    names = list(chosen[0].picks)
    return ["row", "d", *names], [[each.label, str(each.domains), *(each.picks[name] for name in names)] for each in chosen]


def overall(made: Sequence[Row]) -> Lines:
    """A method a line, id and ood for each d."""
    ds = list(dict.fromkeys(row.domains for row in made))
    by_place = {(row.label, row.domains): row for row in made}
    header = ["method", *(f"d = {d}, {metric}" for d in ds for metric in METRICS)]
    labels = dict.fromkeys(row.label for row in made)
    return header, [[label, *(percent(by_place[label, d].all[m]) for d in ds for m in METRICS)] for label in labels]


def singles(made: Sequence[Row]) -> Iterator[tuple[str, Lines]]:
    """For each d, under a heading: a method a line, id and ood for each left-out domain."""
    for d in dict.fromkeys(row.domains for row in made):
        own = [row for row in made if row.domains == d]
        names = list(dict.fromkeys(name for row in own for name in row.each))
        header = ["method", *(f"{name}, {metric}" for name in names for metric in METRICS)]
        lines = [[row.label, *(percent(row.each[name][m]) for name in names for m in METRICS)] for row in own]
        yield f"Each left-out domain, d = {d}", (header, lines)


def percent(spread: Spread | None) -> str:
    """A mean and its standard deviation in percent."""
    if spread is None:
        return ""
    text = f"{100 * spread.mean:.1f}" + ("" if spread.std is None else f" ± {100 * spread.std:.1f}")
    return text if spread.n == spread.of else f"{text} ({spread.n} of {spread.of})"


def piped(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    cells = [header, ["---"] * len(header), *lines]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in cells)


def as_plain(scores: Sequence[Score], data: str) -> dict[str, object]:
    """All results as JSON data. Accuracies are in 0..1."""
    chosen = list(choices(scores))
    every = with_choices(scores, chosen)
    made: dict[str, object] = {"data_digest": data, "cells": list(map(facts, scores)), "rows": list(map(plain_row, rows(every)))}
    made |= {"targets": list(map(asdict, target_rows(every)))} if adapts(scores) else {}
    made |= {"expected": [plain_of(s.cell, s.expected) for s in scores if s.expected is not None]} if adapts(scores) else {}
    return {**made, "chosen": list(map(asdict, chosen))}


def plain_row(row: Row) -> dict[str, object]:
    plain = asdict(row)
    return {"label": row.label, "domains": row.domains, **plain["all"], "left_out": plain["each"]}
