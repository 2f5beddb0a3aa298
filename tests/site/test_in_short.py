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
        what, tells = WORDS[clause.exposure]
        start = f"{what}, to {readers(clause)} ({tells}): "
        (line,) = [each for each in lines if each.startswith(start)]
        assert named(clause) in line.removeprefix(start).split("; ") or ";" in named(clause)
        assert clause.dims in line


def test_what_tells_most_comes_first() -> None:
    given = [replace(CLAUSE, exposure=each, field=each.value, doc="") for each in Exposure]
    assert [line.split(": ")[1] for line in in_short(given)] == [f"{each.value} (weights)" for each in reversed(Exposure)]


def test_who_gets_it() -> None:
    """Other readers are another line; so is what is made with noise."""
    made = [replace(CLAUSE, audience=each) for each in (TO_COORDINATOR, TO_PEERS, TO_BOTH, TO_SUM)]
    made.append(replace(CLAUSE, private="with noise"))
    made.append(replace(CLAUSE, audience=TO_BOTH | TO_SUM))
    found = sorted(line.removeprefix("weights of models, to ").split(" (")[0] for line in in_short(made))
    assert found == sorted(
        [
            "a sum over sites",
            "the coordinator and other sites, in a sum over sites that may be of one alone",
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
    told = "model (weights), the model after training; head (weights)"
    assert weights == f"weights of models, to the coordinator (much about single rows can be read out of them): {told}"
    assert scores.startswith("scores, to the coordinator (they tell how well it went") and scores.endswith(
        ": auroc low (weights)"
    )


def test_words_hide_nothing() -> None:
    """A method's words are whatever a coordinator says: two fields stay two, and no words push out what these tell."""
    loud = replace(CLAUSE, field="loss_of_each_row", dims="n", exposure=Exposure.STATISTIC, doc="means of classes")
    (line,) = in_short([replace(loud, field="means"), loud])
    assert "means (n)" in line and "loss of each row (n)" in line
    (line,) = in_short([replace(CLAUSE, doc=") counts (they tell nothing of rows)" + " " * 5000 + "x")])
    assert line.startswith("weights of models, to the coordinator (much about single rows can be read out of them): model")
    assert len(line) < 400
