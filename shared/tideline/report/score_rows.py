"""Scores with their intervals as rows of words, for tables on a terminal and on a page."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tideline.client.answers import RunResult, ScoreData
from tideline.core.phase import SCORE_NAMES

TITLES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro F1",
    "auroc": "AUROC",
    "ece": "ECE",
}
NOTHING = "–"


@dataclass(frozen=True)
class ScoreRow:
    """One site, or one class: its name, its role, its number of rows and its scores in words."""

    name: str
    role: str
    rows: int
    cells: tuple[str, ...]


def in_words(score: ScoreData | None) -> str:
    """0.912 (0.85–0.96): a score with its 95 % interval, rounded outwards, so that the score is inside."""
    if score is None:
        return NOTHING
    low, high = math.floor(100 * score["low"]) / 100, math.ceil(100 * score["high"]) / 100
    return f"{score['value']:.3f} ({low:.2f}–{high:.2f})"


def score_heads(result: RunResult) -> list[str]:
    """The names of the scores that some site has."""
    reports = {name for of in (result.get("scores") or {}).values() for name in of}
    return [name for name in SCORE_NAMES if name in reports]


def site_rows(result: RunResult) -> Iterator[ScoreRow]:
    """A row for each site that was scored, in the order of the result."""
    scores, heads = result.get("scores") or {}, score_heads(result)
    for client in result["clients"]:
        if of := scores.get(client["name"]):
            rows = max(each["rows"] for each in of.values())
            yield ScoreRow(client["name"], client["role"], rows, tuple(in_words(of.get(name)) for name in heads))


def class_rows(result: RunResult) -> Iterator[ScoreRow]:
    """A row for each class: its recall over all sites."""
    for name, recall in (result.get("recall") or {}).items():
        yield ScoreRow(name, "", recall["rows"], (in_words(recall),))


def selected(result: RunResult) -> str:
    """Which round is the best by which score, in words; empty where a run selects by nothing, or nothing was told yet."""
    said = result.get("selection")
    if not said or not said["best"] or not said["last"]:
        return ""
    best, last = said["best"], said["last"]
    name = TITLES.get(said["score"], said["score"])
    sites = f"{best['sites']} {'site' if best['sites'] == 1 else 'sites'}"
    return (
        f"best by validation {name}: {best['phase']} {best['round']} with {best['value']:.3f} (mean of {sites});"
        f" last: {last['phase']} {last['round']} with {last['value']:.3f}"
    )
