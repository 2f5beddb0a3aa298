"""What users read of a rehearsal: where it was made, what each candidate gained, what was chosen, and what to expect."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from tideline.core.algorithm import REHEARSAL
from tideline.core.phase import (
    ACCURACIES,
    ACCURACY_COLUMNS,
    EXPECTED,
    EXPECTED_COLUMNS,
    GAIN_COLUMNS,
    GAIN_OF,
    GAINS,
    WEIGHT_OF,
    Table,
)
from tideline.core.run import RunId
from tideline.engine.model.runs import OPEN, RoundRow, RunRow, Status
from tideline.engine.model.verdicts import ExpectedAt, Interval, RehearsedAt, Verdict
from tideline.engine.ports.journal import Journal

REHEARSED, UNLIKE, AGREED = "rehearsed", "unlike anything rehearsed", "not rehearsed"
ASTRAY = (
    "At {site} every candidate has less than half of the accuracy that is usual elsewhere: look at its labels, or leave it out"
)
ALONE, NOWHERE = "Only one site has labels, so nothing was rehearsed", "Nothing was rehearsed at any site"
AGREES = "{why}: the candidate that agrees most with the mean of all of them is taken. Nothing tells whether it helps"


def verdict_of(journal: Journal, run: RunRow, rounds: Sequence[RoundRow]) -> Verdict | None:
    """A rehearsal's verdict, or as much as there is of it; None of other runs. Keys: docs/rehearsal.md."""
    if run.method != REHEARSAL:
        return None
    tables: dict[str, Table] = {}
    for closed in rounds:
        tables |= closed.tables
    candidates = cast("Sequence[str]", run.spec.config["candidates"])
    by_site = cast("Mapping[str, Sequence[str]]", run.spec.config["rehearsals"])
    rows = {row.id: row for row in map(journal.run, run.spec.children) if row is not None}
    gains = tables.get(GAINS)
    done = () if gains is None else gains.rows
    unfinished = sum(row.status in OPEN for row in rows.values())
    left = {site: why(rows, of) for site, of in by_site.items() if site not in done} if gains or run.cursor > 1 else {}
    return {
        "rule": str(run.spec.config["rule"]),
        "candidates": list(candidates),
        "rehearsed_at": list(done),
        "left_out": left,
        "candidates_left_out": without(candidates, gains, rows, by_site),
        "sites": sites_in(tables),
        "gains": {name: numbers(GAIN_COLUMNS, line) for name, line in lines_of(tables.get(GAIN_OF))},
        "targets": targets_in(tables),
        "runs": runs_of(run, candidates),
        "not_run": not_run(rows, runs_of(run, candidates)),
        "unfinished": unfinished,
        "bytes": None if unfinished else bytes_of(journal, rows),
    }


def bytes_of(journal: Journal, runs: Iterable[RunId]) -> int:
    """Of all messages of some runs."""
    return sum(each.bytes_up + each.bytes_down for run in runs for each in journal.site_totals(run).values())


def why(rows: Mapping[RunId, RunRow], of: Iterable[str]) -> str:
    """Why nothing was rehearsed at a site, by the runs in which it played the target."""
    causes = [row.cause for name in of if (row := rows.get(RunId(name))) is not None and row.status is not Status.COMPLETED]
    return causes[0] if causes else "it told nothing of what was predicted there"


def without(
    candidates: Sequence[str], gains: Table | None, rows: Mapping[RunId, RunRow], by_site: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """The candidates that too few sites have rehearsed, each with the reason."""
    if gains is None:
        return {}
    gone = [(i, name) for i, name in enumerate(candidates) if name not in gains.columns]
    return {name: why(rows, [of[i] for of in by_site.values()]) for i, name in gone}


def lines_of(table: Table | None) -> Iterable[tuple[str, Sequence[float]]]:
    return () if table is None else zip(table.rows, table.values, strict=True)


def numbers(columns: Sequence[str], line: Sequence[float], of: Sequence[str] = GAIN_COLUMNS) -> Interval:
    """Value, low and high, by the names of their columns."""
    by_name = dict(zip(columns, line, strict=True))
    value, low, high = (by_name[name] for name in of)
    return {"value": value, "low": low, "high": high}


def sites_in(tables: Mapping[str, Table]) -> list[RehearsedAt]:
    """Each site that rehearsed: accuracy and gain of each candidate."""
    accuracies, gains = tables.get(ACCURACIES), tables.get(GAINS)
    if accuracies is None or gains is None:
        return []
    both = zip(gains.rows, accuracies.values, gains.values, strict=True)
    return [
        {
            "name": site,
            "accuracy": dict(zip(accuracies.columns, right, strict=True)),
            "gain": dict(zip(gains.columns, gained, strict=True)),
        }
        for site, right, gained in both
    ]


def targets_in(tables: Mapping[str, Table]) -> list[ExpectedAt]:
    """Each target: what was chosen for it, what to expect there, and how far to trust that."""
    weights = dict(lines_of(tables.get(WEIGHT_OF)))
    named = tables[WEIGHT_OF].columns if WEIGHT_OF in tables else ()
    return [target(name, line, dict(zip(named, weights[name], strict=True))) for name, line in lines_of(tables.get(EXPECTED))]


def target(name: str, line: Sequence[float], weights: Mapping[str, float]) -> ExpectedAt:
    said = dict(zip(EXPECTED_COLUMNS, line, strict=True))
    chosen = {candidate: w for candidate, w in sorted(weights.items(), key=lambda each: -each[1]) if w > 0}
    rehearsed = bool(said["gain is known"])
    return {
        "name": name,
        "chosen": chosen,
        "gain": numbers(EXPECTED_COLUMNS, line) if rehearsed else None,
        "accuracy": numbers(EXPECTED_COLUMNS, line, ACCURACY_COLUMNS) if said["accuracy is known"] else None,
        "trust": (UNLIKE if said["unlike"] else REHEARSED) if rehearsed else AGREED,
        "distance": said["distance"],
        "changed": said["changed"] if rehearsed else None,
    }


def runs_of(run: RunRow, candidates: Sequence[str]) -> dict[str, str]:
    """The run in which each candidate was trained for the targets; empty where that was not asked for."""
    there = cast("Sequence[str]", run.spec.config["at_targets"])
    return dict(zip(candidates, there, strict=False))


def not_run(rows: Mapping[RunId, RunRow], at_targets: Mapping[str, str]) -> dict[str, str]:
    """The candidates whose run at the targets came to no end, each with the reason."""
    found = {name: rows.get(RunId(run)) for name, run in at_targets.items()}
    return {name: row.cause for name, row in found.items() if row and row.status in (Status.CANCELLED, Status.FAILED)}


def verdict_notes(said: Verdict | None, ended: bool) -> tuple[str, ...]:
    """What a user should know of a verdict beside its numbers."""
    if said is None:
        return ()
    left = [f"Not rehearsed at {site}: {cause}" for site, cause in said["left_out"].items()]
    left += [f"The candidate {name} is left out: {cause}" for name, cause in said["candidates_left_out"].items()]
    left += [f"The run of {name} at the targets has no model: {cause}" for name, cause in said["not_run"].items()]
    odd = [each["name"] for each in said["targets"] if each["trust"] == UNLIKE]
    unlike = [f"{', '.join(odd)}: unlike anything rehearsed, so expect less of the expectation"] if odd else []
    agreed = ended and any(each["trust"] == AGREED for each in said["targets"])
    alone = [AGREES.format(why=NOWHERE if said["left_out"] else ALONE)] if agreed else []
    return (*left, *astray(said), *unlike, *alone)


def astray(said: Verdict) -> list[str]:
    """Sites at which every candidate is far below what it has elsewhere: their labels may be wrong."""
    best = {site["name"]: max(site["accuracy"].values()) for site in said["sites"]}
    usual = statistics.median(best.values()) if len(best) > 2 else 0.0
    return [ASTRAY.format(site=site) for site, value in best.items() if value < usual / 2]
