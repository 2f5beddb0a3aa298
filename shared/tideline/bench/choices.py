"""Which row of a sweep a rule would have chosen for each target, as a row of its own; and the oracle that has seen the labels.

A rule looks at what a comparison may look at. The oracle may not be compared with methods: it is what the best choice would give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tideline.bench.estimates import by
from tideline.bench.scores import Score
from tideline.report.charts import average

ORACLE = "oracle (has seen the targets' labels)"


@dataclass(frozen=True)
class Rule:
    """By what a row is chosen: `value` of the row's scores at a target over seeds, the largest wins; None cannot be chosen."""

    name: str
    value: Callable[[Sequence[Score]], float | None]


@dataclass(frozen=True)
class Choice:
    """The row that was chosen for each target, with d domains a client."""

    label: str
    domains: int
    picks: Mapping[str, str]


def mean_of(metric: Callable[[Score], float | None]) -> Callable[[Sequence[Score]], float | None]:
    """The mean over seeds of a metric; None unless all of them have it."""
    return lambda scores: average([metric(score) for score in scores])


# What may choose within a sweep without a label of the target.
RULES = (Rule("id", mean_of(lambda score: score.id)),)
SEEN = Rule("ood", mean_of(lambda score: score.ood))


def choices(scores: Sequence[Score]) -> Iterator[Choice]:
    """For each d: of each sweep what each rule chooses, then, of a grid that adapts, the oracle over all rows."""
    for d, cells in by(scores, lambda s: s.cell.domains).items():
        sweeps = by([s for s in cells if s.cell.sweep], lambda s: s.cell.sweep)
        made = [Choice(f"{sweep}, chosen by {rule.name}", d, picks(own, rule)) for sweep, own in sweeps.items() for rule in RULES]
        made += [Choice(ORACLE, d, picks(cells, SEEN))] if cells[0].cell.adapts else []
        yield from (each for each in made if each.picks)


def picks(scores: Sequence[Score], rule: Rule) -> dict[str, str]:
    """The label that a rule chooses for each target, of equals the first; nothing unless there is one for every target."""
    chosen = {}
    for target, own in by(scores, lambda s: s.cell.leave_out).items():
        values = {label: rule.value(each) for label, each in by(own, lambda s: s.cell.label).items()}
        known = {label: value for label, value in values.items() if value is not None}
        if not known:
            return {}
        chosen[target] = max(known, key=known.__getitem__)
    return chosen


def with_choices(scores: Sequence[Score], made: Sequence[Choice]) -> list[Score]:
    """The scores, and after them those of the chosen rows under the labels of their choices."""
    return [*scores, *(each for choice in made for each in scores_of(choice, scores))]


def scores_of(choice: Choice, scores: Sequence[Score]) -> Iterator[Score]:
    for score in scores:
        if score.cell.domains == choice.domains and choice.picks.get(score.cell.leave_out) == score.cell.label:
            yield replace(score, cell=replace(score.cell, label=choice.label, sweep="", baseline=False))
