"""Counts that no rows could give: the site is left out of scores, and nobody else is."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Generator, Tensor

from tideline.core.asked.scoring import Selection
from tideline.core.asked.world import World
from tideline.core.phase import RECALLS, SCORE, VALIDATION, Replies, Turn
from tideline.core.run import ClientId
from tideline.learning.scoring.telling import Asked, Counts, Scored, reports_of, tables, validations

WIDE = World(inputs=(8,), classes=120, model="mlp")
FEW = World(inputs=(8,), classes=4, model="mlp")
HONEST, LIAR = ClientId("anna"), ClientId("mallory")


def turn(world: World) -> Turn[None]:
    return Turn(None, world, (), 1, Generator().manual_seed(0))


def matrix(n: int = 5) -> Tensor:
    return n * torch.eye(4, dtype=torch.int64) + 1


def by_class(right: int = 3, rows: int = 5, taken: int = 5) -> Tensor:
    return torch.tensor([right, rows, taken])[:, None].expand(3, 120).contiguous()


def told(world: World, honest: Counts, lie: Counts) -> set[str]:
    """Whose accuracy is told; no table has a number that is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = tables(Replies({HONEST: lambda: Scored(honest), LIAR: lambda: Scored(lie)}), turn(world))
    assert all(v == v for t in found.values() for row in t.values for v in row)
    assert found[RECALLS].rows
    return set(found[f"{SCORE}accuracy"].rows)


@pytest.mark.parametrize(
    "counts",
    [
        *(torch.ones(4, 5, dtype=torch.int64), torch.ones(2, 4, dtype=torch.int64), torch.ones(5, 5, dtype=torch.int64)),
        *(torch.ones(16, dtype=torch.int64), torch.zeros(4, 4, dtype=torch.int64), torch.full((4, 4), -1)),
        *(torch.full((4, 4), 2**62), torch.full((4, 4), float("inf")), torch.full((4, 4), float("nan"))),
        matrix() - 3 * torch.eye(4, dtype=torch.int64).flip(0),
    ],
)
def test_a_matrix_that_is_none(counts: Tensor) -> None:
    assert told(FEW, Counts(1, matrix(), None), Counts(1, counts, None)) == {HONEST}


@pytest.mark.parametrize(
    "counts",
    [
        by_class(right=6),  # more right than rows
        by_class(rows=0, right=0),  # taken for a class, and no rows
        by_class(rows=6),  # more rows than predictions
        by_class(taken=2, rows=2),  # more right than taken
        torch.zeros(3, 120, dtype=torch.int64),
        torch.full((3, 120), 2**62),
        torch.ones(3, 121, dtype=torch.int64),
    ],
)
def test_counts_by_class_that_are_none(counts: Tensor) -> None:
    assert told(WIDE, Counts(1, None, by_class()), Counts(1, None, counts)) == {HONEST}


@pytest.mark.parametrize("models", [0, -3])
def test_no_models(models: int) -> None:
    assert told(FEW, Counts(1, matrix(), None), Counts(models, matrix(), None)) == {HONEST}


def test_more_models_than_rows() -> None:
    assert told(FEW, Counts(1, matrix(), None), Counts(10**9, matrix(), None)) == {HONEST, LIAR}


def test_a_site_that_counts_nothing_is_left_out() -> None:
    assert told(FEW, Counts(1, matrix(), None), Counts(0, None, None)) == {HONEST}


def test_scores_of_validation_rows_of_those_that_tell_them() -> None:
    asked = Asked(("accuracy",), confidence=False, whole=False, selection=Selection.ACCURACY)
    metrics = {HONEST: {"validation_accuracy": 0.5}, LIAR: {"validation_ece": 0.1}}
    replies: Replies[Scored] = Replies(
        {HONEST: lambda: Scored(Counts(0, None, None)), LIAR: lambda: Scored(Counts(0, None, None))}, metrics
    )
    assert validations(asked, replies)[VALIDATION].rows == (HONEST,)
    assert validations(asked, Replies({})) == {}


@pytest.mark.parametrize("lie", [1.7e308, 1.01, -0.01, -1e300])
def test_a_score_of_validation_rows_that_is_none(lie: float) -> None:
    asked = Asked(("accuracy",), confidence=False, whole=False, selection=Selection.ACCURACY)
    metrics = {HONEST: {"validation_accuracy": 1.0}, LIAR: {"validation_accuracy": lie}}
    replies: Replies[Scored] = Replies(dict.fromkeys(metrics, lambda: Scored(Counts(0, None, None))), metrics)
    assert validations(asked, replies)[VALIDATION].rows == (HONEST,)


@pytest.mark.parametrize(("value", "low", "high"), [(1e308, 0.1, 0.2), (0.5, 0.6, 0.7), (0.5, 0.4, 0.45), (0.9, 0.8, 1.1)])
def test_intervals_that_are_none(value: float, low: float, high: float) -> None:
    lie = {"auroc": value, "auroc_low": low, "auroc_high": high}
    assert reports_of({**lie, "ece": 0.1, "ece_low": 0.1, "ece_high": 0.2}, 5).keys() == {"ece"}
