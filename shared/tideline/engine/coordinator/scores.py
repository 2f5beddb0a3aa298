"""What closed rounds say of scores: each site's, each class's, and by which round's validation rows a run selects its best."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tideline.core.asked.scoring import Selection
from tideline.core.phase import RECALLS, SCORE, SCORE_COLUMNS, VALIDATION, Table
from tideline.core.run import ClientId, Role
from tideline.engine.model.orders import Files
from tideline.engine.model.runs import RoundRow

Numbers = dict[str, float | int]  # value, low and high of a score, and the number of rows


@dataclass(frozen=True)
class Validated:
    """One scoring's mean over sites of a score of their validation rows."""

    phase: str
    round: int
    cursor: int
    value: float
    sites: int


def numbers_in(table: Table) -> dict[str, Numbers]:
    """A score's table by row."""
    rows = (dict(zip(SCORE_COLUMNS, values, strict=True)) for values in table.values)
    return {name: {**each, "rows": int(each["rows"])} for name, each in zip(table.rows, rows, strict=True)}


def scores_in(rounds: Iterable[RoundRow]) -> dict[str, dict[str, Numbers]]:
    """Each site's newest scores, by site and name; empty where no scoring told all of them."""
    found: dict[str, dict[str, Numbers]] = {}
    for closed in rounds:
        fresh: dict[str, dict[str, Numbers]] = {}
        for name, table in closed.tables.items():
            if name.startswith(SCORE) and table.columns == SCORE_COLUMNS:
                for site, each in numbers_in(table).items():
                    fresh.setdefault(site, {})[name.removeprefix(SCORE)] = each
        found |= fresh
    return dict(sorted(found.items()))


def recalls_in(rounds: Iterable[RoundRow]) -> dict[str, Numbers]:
    """The recall of each class over all sites, from the newest scoring that told all scores."""
    reports = [closed.tables[RECALLS] for closed in rounds if RECALLS in closed.tables]
    return numbers_in(reports[-1]) if reports else {}


def validated(closed: RoundRow, selection: Selection, roster: Mapping[ClientId, Role]) -> Validated | None:
    """A round's mean over the sites that told a score of validation rows; of one without labels over targets, if any told it."""
    table = closed.tables.get(VALIDATION)
    if selection is Selection.NONE or table is None or table.columns != (selection.value,):
        return None
    reports = {ClientId(site): value for site, (value,) in zip(table.rows, table.values, strict=True)}
    targets = {site: value for site, value in reports.items() if roster.get(site) is Role.TARGET}
    values = list((targets if targets and not selection.labels else reports).values())
    mean, n = sum(values) / len(values), len(values)
    return Validated(phase=closed.phase, round=closed.round, cursor=closed.cursor, value=mean, sites=n)


def better(one: Validated, other: Validated, selection: Selection) -> bool:
    return one.value < other.value if selection.least else one.value > other.value


def best_of(found: Iterable[Validated], selection: Selection) -> Validated | None:
    """The best round, of equal ones the first."""
    best: Validated | None = None
    for each in found:
        if best is None or better(each, best, selection):
            best = each
    return best


def all_validated(rounds: Iterable[RoundRow], selection: Selection, roster: Mapping[ClientId, Role]) -> list[Validated]:
    return [each for closed in rounds if (each := validated(closed, selection, roster)) is not None]


def news(closed: RoundRow, before: RoundRow | None, selection: Selection, roster: Mapping[ClientId, Role]) -> Validated | None:
    """The round's score, if it is better than that of the best round before: its models are the run's best so far."""
    now = validated(closed, selection, roster)
    best = None if before is None else validated(before, selection, roster)
    return now if now is not None and (best is None or better(now, best, selection)) else None


def scored_state(rounds: Iterable[RoundRow], cursor: int) -> Files:
    """The state that is scored at a cursor, among closed rounds; empty where it was not written."""
    return next((closed.state for closed in rounds if closed.next_cursor == cursor), ())


def selection_in(rounds: Iterable[RoundRow], selection: Selection, roster: Mapping[ClientId, Role]) -> dict[str, Any] | None:
    """The run's selection as users read it: its best round and its last one; None for a run that selects by nothing."""
    if selection is Selection.NONE:
        return None
    found = all_validated(rounds, selection, roster)
    best = best_of(found, selection)
    said = {"score": selection.value, "least": selection.least, "best": None, "last": None}
    return said if best is None else said | {"best": vars(best).copy(), "last": vars(found[-1]).copy()}


UNTOLD = (
    "selection: no site told {score} of its validation rows. Scorings of this method may ask targets alone, whose rows have no"
    " labels: select by entropy or information"
)


def selection_notes(said: Mapping[str, Any] | None, ended: bool) -> tuple[str, ...]:
    """What a user should know of a selection that found nothing."""
    return (UNTOLD.format(score=said["score"]),) if said is not None and ended and said["best"] is None else ()


NEAR = 0.05  # above the share of one class among all: a mean of balanced accuracies that is less is near chance
CHANCE = (
    "The sites with labels end near chance: a mean balanced accuracy of {value:.2f} for {classes} classes. Look at the scales of"
    " features (tideline data check), at the learning rate, and at how long it trains"
)


def chance_notes(
    scores: Mapping[str, Mapping[str, Numbers]], roster: Mapping[ClientId, Role], classes: int, ended: bool
) -> tuple[str, ...]:
    """What a user should know of a run that learnt next to nothing where it had labels. scores: by site and name."""
    taught = [site for site, role in roster.items() if role is not Role.TARGET and "balanced_accuracy" in scores.get(site, {})]
    if not ended or not taught:
        return ()
    value = sum(scores[site]["balanced_accuracy"]["value"] for site in taught) / len(taught)
    return (CHANCE.format(value=value, classes=classes),) if value < 1 / classes + NEAR else ()
