"""What scorings tell of classes and sites, as tables of a run's result: confusions, and scores with their intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from tideline.core.asked.world import World
from tideline.core.phase import MOST_TABLES, MOST_VALUES, RECALLS, SCORE, SCORE_COLUMNS, SCORE_NAMES, Folded, Table
from tideline.numerics.labels.scores import Score, counted, counted_by_class, share

S = TypeVar("S")
CONFUSION_NAME = "confusion"
OF_ALL = "confusion of all sites"
LONGEST = 80  # letters of a class name; with longer ones classes have their numbers


@dataclass(frozen=True)
class SiteCounts:
    """A site's held-out rows: by label and prediction (K, K), or where there are many classes by class alone (3, K).

    rows: how many they are; `counts` may count each several times, once for each of several models.
    """

    counts: Tensor
    rows: int

    @property
    def by_class(self) -> Tensor:
        """Rows predicted right, with the label, and taken for the class, (3, K) float64."""
        c = self.counts.double()
        return c if len(c) != c.shape[1] else torch.stack([c.diagonal(), c.sum(1), c.sum(0)])

    @property
    def matrix(self) -> Tensor | None:
        return self.counts if len(self.counts) == self.counts.shape[1] else None

    def scores(self, seed: int) -> dict[str, Score]:
        make = counted if self.matrix is not None else counted_by_class
        return make(self.counts, self.rows, seed)


def fits(count: int, world: World) -> bool:
    return count <= MOST_TABLES and count * world.classes**2 <= MOST_VALUES


def class_names(world: World) -> tuple[str, ...]:
    known = world.class_names if all(len(name) <= LONGEST for name in world.class_names) else ()
    return known or tuple(map(str, range(world.classes)))


def table(counts: Tensor, world: World) -> Table:
    """A row for each class, a column for each that its rows were taken for."""
    names = class_names(world)
    rows, columns = (tuple(f"{words} {name}" for name in names) for words in ("is", "taken for"))
    return Table(rows, columns, tuple(map(tuple, counts.tolist())))


def confusions(seen: Mapping[str, Tensor], world: World) -> dict[str, Table]:
    """A table for each site, if there is room for all, and for all of them together. seen: (K, K) float64 by site."""
    tables = {f"{CONFUSION_NAME} of {site}": counts for site, counts in seen.items()} if fits(len(seen) + 1, world) else {}
    if len(seen) > 1 and fits(1, world):
        tables[OF_ALL] = torch.stack(list(seen.values())).sum(0)
    return {name: table(counts, world) for name, counts in tables.items()}


def score_table(of: Mapping[str, Score]) -> Table:
    """A row for each site."""
    values = tuple((s.value, s.low, s.high, float(s.rows)) for s in of.values())
    return Table(tuple(of), SCORE_COLUMNS, values)


def score_tables(of: Mapping[str, Mapping[str, Score]]) -> dict[str, Table]:
    """A table for each score that some site has. of: score by name, by site."""
    found = {name: {site: scores[name] for site, scores in of.items() if name in scores} for name in SCORE_NAMES}
    return {SCORE + name: score_table(sites) for name, sites in found.items() if sites}


def recall_table(sites: Iterable[SiteCounts], world: World) -> Table | None:
    """The recall of each class that has rows, over all sites; None where none has."""
    parts = [each.by_class * (each.rows / max(float(each.by_class[1].sum()), 1.0)) for each in sites]
    right, rows, _ = torch.stack(parts).sum(0).numpy() if parts else np.zeros((3, world.classes))
    there = np.flatnonzero(np.rint(rows))
    names = class_names(world)
    of = {names[k]: share(float(right[k]), float(rows[k]), round(float(rows[k]))) for k in there}
    return score_table(of) if of else None


def with_room(given: Folded[S], more: Mapping[str, Table]) -> Folded[S]:
    """The same with those of the tables, the first ones first, for which a round still has room and no other has the name."""
    tables = dict(given.tables)
    for name, each in more.items():
        values = sum(len(t.rows) * len(t.columns) for t in (*tables.values(), each))
        if name not in tables and len(tables) < MOST_TABLES and values <= MOST_VALUES:
            tables[name] = each
    return replace(given, tables=tables)


def of_sites(
    counts: Mapping[str, SiteCounts], reports: Mapping[str, Mapping[str, Score]], world: World, seed: int
) -> dict[str, Table]:
    """All tables of a scoring: scores of each site, recalls, confusions. told: scores that sites have themselves.

    Scores that follow from counts are worked out here, where there is room for those of all sites.
    """
    few = len(counts) * len(SCORE_COLUMNS) * len(SCORE_NAMES) <= MOST_VALUES
    scores = {site: {**(own.scores(seed) if few else {}), **reports.get(site, {})} for site, own in counts.items()}
    recalls = recall_table(counts.values(), world)
    matrices = {site: own.matrix.double() for site, own in counts.items() if own.matrix is not None}
    return {
        **(score_tables(scores) if few else {}),
        **({RECALLS: recalls} if recalls else {}),
        **confusions(matrices, world),
    }
