"""What a run would send, in a few lines for an owner: by what it tells, that which tells most first."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from tideline.core.privacy import Audience, Clause, Exposure

ORDER = list(Exposure)
WORDS = {
    Exposure.MASKED: ("keys of masks", "they tell nothing of rows"),
    Exposure.METRIC: ("scores", "they tell how well it went, and with each a little of the rows it was measured on"),
    Exposure.COUNT: ("counts", "they tell how many rows there are of what"),
    Exposure.WEIGHTS: ("weights of models", "much about single rows can be read out of them"),
    Exposure.STATISTIC: ("statistics", "they tell what rows have in common; of few rows, much about each"),
    Exposure.SYNTHETIC: ("made-up rows", "they may look like yours"),
    Exposure.FEATURES: ("features", "they tell something about each single row"),
    Exposure.SAMPLES: ("rows", "your data themselves"),
}
METRICS = "metrics."


def in_short(contract: Iterable[Clause]) -> Iterable[str]:
    """A line for all clauses that tell as much, to the same readers, in the same form."""
    for _, group in groupby(sorted(contract, key=place), key=place):
        clauses = list(group)
        what, tells = WORDS[clauses[0].exposure]
        form = f", {clauses[0].private}" if clauses[0].private else ""
        yield f"{what}, to {readers(clauses[0])}{form}: {'; '.join(dict.fromkeys(map(named, clauses)))} ({tells})"


def place(clause: Clause) -> tuple[int, list[str], str]:
    return -ORDER.index(clause.exposure), sorted(clause.audience), clause.private


def readers(clause: Clause) -> str:
    """Who gets it."""
    names = {
        Audience.COORDINATOR: "the coordinator",
        Audience.PEERS: "other sites",
        Audience.SUM: "nobody but in a sum over sites",
    }
    return " and ".join(names[each] for each in sorted(clause.audience)) or "nobody"


def named(clause: Clause) -> str:
    """What a field is. Scores are known by their names, for all of them are one number."""
    if clause.exposure is Exposure.METRIC or not clause.doc:
        return clause.field.removeprefix(METRICS).replace("_", " ")
    return clause.doc
