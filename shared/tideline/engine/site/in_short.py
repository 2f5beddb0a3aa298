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
NAMES = {Audience.COORDINATOR: "the coordinator", Audience.PEERS: "other sites"}
METRICS, LONGEST = "metrics.", 150  # characters of a method's own words


def in_short(contract: Iterable[Clause]) -> Iterable[str]:
    """A line for all clauses that tell as much, to the same readers, in the same form. What that tells stands before a method's
    own words, which end early; and two fields are two, whatever is said of them.
    """
    for _, group in groupby(sorted(contract, key=place), key=place):
        clauses = list(group)
        what, tells = WORDS[clauses[0].exposure]
        form = f", {clauses[0].private}" if clauses[0].private else ""
        yield f"{what}, to {readers(clauses[0])}{form} ({tells}): {'; '.join(dict.fromkeys(map(named, clauses)))}"


def place(clause: Clause) -> tuple[int, list[str], str]:
    return -ORDER.index(clause.exposure), sorted(clause.audience), clause.private


def readers(clause: Clause) -> str:
    """Who gets it."""
    single = " and ".join(name for each, name in NAMES.items() if each in clause.audience)
    if Audience.SUM not in clause.audience:
        return single or "nobody"
    return f"{single}, in a sum over sites that may be of one alone" if single else "a sum over sites"


def named(clause: Clause) -> str:
    """A field, its size, and what it is. Scores are known by their names, for all of them are one number."""
    name = clause.field.removeprefix(METRICS).replace("_", " ") + (f" ({clause.dims})" if clause.dims else "")
    if clause.exposure is Exposure.METRIC or not clause.doc:
        return name
    return f"{name}, {clause.doc if len(clause.doc) <= LONGEST else clause.doc[:LONGEST] + '...'}"
