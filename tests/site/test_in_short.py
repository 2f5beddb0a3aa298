"""What an owner reads in short leaves nothing out, and begins with what tells most."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tideline.algorithms import METHODS
from tideline.core.algorithm import contract, resolve
from tideline.core.asked.scoring import Scoring
from tideline.core.privacy import TO_BOTH, TO_COORDINATOR, TO_PEERS, TO_SUM, Clause, Exposure
from tideline.engine.site.in_short import WORDS, in_short, named, readers

CLAUSE = Clause("train", "fit", "model", "weights", Exposure.WEIGHTS, TO_COORDINATOR, "the model after training")


@pytest.mark.parametrize("name", [name for name, _ in METHODS])
def test_every_field_of_every_method(name: str) -> None:
    """Each is in the line of its kind and its readers, by its words or by its name."""
    method = resolve(METHODS, name)
    agreed = contract(method, method.configure({}, "tiny"), Scoring())
    lines = list(in_short(agreed))
    assert len(lines) == len({(clause.exposure, clause.audience) for clause in agreed})
    for clause in agreed:
        start = f"{WORDS[clause.exposure][0]}, to {readers(clause)}: "
        (line,) = [each for each in lines if each.startswith(start)]
        assert named(clause) in line.removeprefix(start)


def test_what_tells_most_comes_first() -> None:
    given = [replace(CLAUSE, exposure=each, doc=each.value) for each in Exposure]
    given[1] = replace(given[1], field="metric")
    assert [line.split(":")[1].split()[0] for line in in_short(given)] == [each.value for each in reversed(Exposure)]


def test_who_gets_it() -> None:
    """Other readers are another line; so is what is made with noise."""
    made = [replace(CLAUSE, audience=each) for each in (TO_COORDINATOR, TO_PEERS, TO_BOTH, TO_SUM)]
    made.append(replace(CLAUSE, private="with noise"))
    found = sorted(line.removeprefix("weights of models, to ").split(":")[0] for line in in_short(made))
    assert found == sorted(
        [
            "nobody but in a sum over sites",
            "other sites",
            "the coordinator",
            "the coordinator and other sites",
            "the coordinator, with noise",
        ]
    )


def test_each_once() -> None:
    """Of a run and those beside it, what is the same is said once; a score has its name, and what has no words its own."""
    score = replace(CLAUSE, field="metrics.auroc_low", exposure=Exposure.METRIC, doc="one number per reply")
    weights, scores = in_short([CLAUSE, replace(CLAUSE, phase="again"), score, replace(CLAUSE, field="head", doc="")])
    told = "the model after training; head (much about single rows can be read out of them)"
    assert weights == f"weights of models, to the coordinator: {told}"
    assert scores.startswith("scores, to the coordinator: auroc low (they tell how well it went")
