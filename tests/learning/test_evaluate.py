"""Scoring on held-out rows: accuracies, confusions, shares of classes, and counts that no rows could give."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Generator, Tensor, nn

from tests.learning.rows_in_memory import data_of, site_of
from tests.numerics.examples import for_all
from tideline.core.asked.scoring import Selection
from tideline.core.asked.world import World
from tideline.core.phase import MOST_VALUES, RECALLS, RIGHT, SCORE, VALIDATION, WRONG, Folded, Replies, Turn
from tideline.core.record import Nothing
from tideline.core.run import ClientId, Member, Role
from tideline.core.step import Data, Site, View
from tideline.learning.evaluate import (
    ROWS,
    SHARES,
    SHIFT,
    TOGETHER,
    Classes,
    Confusion,
    accuracy,
    confused,
    evaluate,
    label_shift,
    outputs,
)
from tideline.learning.scoring.score_tables import OF_ALL, table
from tideline.learning.scoring.telling import Asked, Counts, Scored, reports_of, tables, validations
from tideline.numerics.labels.confidence import BINS


def data(n: int, labelled: bool = True) -> Data:
    """Return rows whose feature is their number, labels in turn."""
    return data_of(torch.arange(n).float().view(n, 1), torch.arange(n) % 3 if labelled else None)


def site(given: Data, **more: Any) -> Site:
    return site_of(given, World(), **more)


def by_number(order: Any, memory: Any, site: Site, x: Tensor) -> Tensor:
    """Right for even row numbers, wrong for odd ones."""
    row = x[:, 0].long()
    return nn.functional.one_hot((row + row % 2) % 3, 3).float()


@for_all(50, st.integers(1, 3 * ROWS))
def test_accuracy_is_the_share_of_right_rows(n: int) -> None:
    """However many rows are scored at once, the accuracy is the exact share of right ones."""
    assert accuracy(by_number, None, None, site(data(n))) == ((n + 1) // 2) / n


def test_without_labels_nothing_is_told() -> None:
    """A site without labels to score with gives no metric, instead of a wrong one."""
    phase = evaluate(lambda state, turn: {}, by_number)
    assert phase.step is not None
    for given_data in (data(5, labelled=False), data(0)):
        assert dict(phase.step.run(Nothing(), Nothing(), site(given_data)).metrics) == {}


def test_the_step_sends_nothing_and_keeps_its_memory() -> None:
    """A scoring gives Nothing, leaves memory as it is, and tells the accuracy under each declared name."""
    phase = evaluate(lambda state, turn: {}, by_number, name="rate", metrics=("accuracy", "source_only"))
    step, memory = phase.step, Nothing()
    assert step is not None
    assert (step.name, step.gives, step.view, step.metrics) == ("rate", Nothing, View.HELD_OUT, ("accuracy", "source_only"))
    outcome = step.run(Nothing(), memory, site(data(4)))
    assert type(outcome.message) is Nothing
    assert outcome.memory is memory
    assert dict(outcome.metrics) == {"accuracy": 0.5, "source_only": 0.5}
    state = Nothing()
    assert phase.fold(state, {}, None) is state  # type: ignore[arg-type]


@pytest.mark.parametrize("confidence", [False, True])
def test_several_things_to_predict_with_are_told_as_one(confidence: bool) -> None:
    """They predict in turn, each alone; what is told is the mean, and each row is counted once for each of them."""
    seen: list[Any] = []

    def predict(order: Any, memory: Any, site: Site, x: Tensor) -> Tensor:
        seen.append(order)
        return by_number(order, memory, site, x) if order == "half" else nn.functional.one_hot(x[:, 0].long() % 3, 3).float()

    phase = evaluate(lambda state, turn: {}, predict, confidence=confidence, each=lambda order: order)
    assert phase.step is not None
    outcome = phase.step.run(("half", "all", "all"), Nothing(), site(data(10)))
    assert seen == ["half", "all", "all"]
    assert outcome.metrics["accuracy"] == pytest.approx((0.5 + 1 + 1) / 3)
    if confidence:
        assert (int(outcome.message.right.sum()), int(outcome.message.wrong.sum())) == (25, 5)
    assert dict(phase.step.run((), Nothing(), site(data(10))).metrics) == {}
    assert dict(phase.step.run(("all",), Nothing(), site(data(10, labelled=False))).metrics) == {}


def test_progress_rises_to_one() -> None:
    ticks: list[float] = []
    accuracy(by_number, None, None, site(data(2 * ROWS + 1), tick=ticks.append))
    assert ticks == pytest.approx([ROWS / (2 * ROWS + 1), 2 * ROWS / (2 * ROWS + 1), 1.0])


def test_outputs_are_those_of_evaluation_mode() -> None:
    """Dropout is off, batch norm uses its running statistics, and no gradient is kept."""
    net = nn.Sequential(nn.BatchNorm1d(1), nn.Dropout(0.9), nn.Linear(1, 3)).train()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    x = data(6).x
    first, second = outputs(net, x, "cpu"), outputs(net.train(), x, "cpu")
    assert torch.equal(first, second)
    assert not first.requires_grad
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())


def test_a_target_is_scored_with_its_held_out_labels() -> None:
    assert accuracy(by_number, None, None, replace(site(data(4)), role=Role.SOURCE)) == 0.5


@for_all(20, st.integers(1, 2 * ROWS))
def test_confidences_are_told_beside_the_same_accuracy(n: int) -> None:
    """The histogram has every row once; outputs that are one-hot have one confidence, e / (e + 2)."""
    phase = evaluate(lambda state, turn: {}, by_number, metrics=("accuracy", "source_only"), confidence=True)
    assert phase.step is not None and phase.step.metrics == ("accuracy", "source_only", "ece")
    outcome = phase.step.run(Nothing(), Nothing(), site(data(n)))
    share = ((n + 1) // 2) / n
    confidence = torch.tensor([1.0, 0, 0], dtype=torch.float64).softmax(0)[0].item()
    assert outcome.metrics["accuracy"] == outcome.metrics["source_only"] == share
    assert outcome.metrics["ece"] == pytest.approx(abs(share - confidence), abs=1e-9)
    assert int(outcome.message.right.sum()) == (n + 1) // 2 and int((outcome.message.right + outcome.message.wrong).sum()) == n


def test_the_histograms_are_told_to_people_as_tables() -> None:
    """A row for each site that had rows to score; the state stays as it is."""
    phase = evaluate(lambda state, turn: {}, by_number, confidence=True)
    assert phase.step is not None
    answers = {name: phase.step.run(Nothing(), Nothing(), site(given)) for name, given in (("b", data(7)), ("a", data(3, False)))}
    assert dict(answers["a"].metrics) == {}
    told = phase.fold("state", Replies({ClientId(k): lambda each=each: each.message for k, each in answers.items()}), None)
    assert isinstance(told, Folded) and told.state == "state" and set(told.tables) == {RIGHT, WRONG}
    assert told.tables[RIGHT].rows == ("b",) and sum(told.tables[RIGHT].values[0]) == 4 and sum(told.tables[WRONG].values[0]) == 3
    assert len(told.tables[RIGHT].columns) == BINS
    assert phase.fold("state", Replies({}), None) == "state"


WORLD = World(inputs=(1,), classes=3)


def offer(state: Any, turn: Any) -> dict[ClientId, Any]:
    return {}


def shifted(order: Any, memory: Any, site: Site, x: Tensor) -> Tensor:
    """Takes each row for what its feature says."""
    return nn.functional.one_hot(x[:, 0].long(), 3).float()


def counted(x: list[int], y: list[int] | None) -> Tensor:
    """Return the counts that a site of these rows sends."""
    step = confused(offer, shifted).step
    assert step is not None
    outcome = step.run(Nothing(), Nothing(), site_of(data_of(torch.tensor(x).float().view(-1, 1), y), WORLD))
    assert isinstance(outcome.memory, Nothing) and dict(outcome.metrics) == {}
    return outcome.message.counts


@for_all(30, st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=40), st.sampled_from([1, ROWS // 20]))
def test_counts_are_those_of_the_rows(pairs: list[tuple[int, int]], times: int) -> None:
    """A row of the matrix for each class, a column for each prediction; parts of ROWS rows add up."""
    pairs = pairs * times
    found = counted([x for x, _ in pairs], [y for _, y in pairs])
    assert found.tolist() == [[sum(p == (guess, y) for p in pairs) for guess in range(3)] for y in range(3)]


def test_a_site_without_labels_sends_zeros() -> None:
    """It is asked like all others, and its roster does not tell whether it can be scored."""
    assert counted([1, 2], None).tolist() == [[0] * 3] * 3


def test_classes_have_their_names() -> None:
    for names, first in ((("mug", "bike", "x"), "is mug"), (("mug", "bike", "x" * 300), "is 0")):
        world = World(inputs=(1,), classes=3, class_names=names)
        assert table(torch.zeros(3, 3), world).rows[0] == first


def told(**counts: list[list[int]]) -> Any:
    phase = confused(offer, shifted)
    replies = {ClientId(name): lambda c=c: Confusion(torch.tensor(c)) for name, c in counts.items()}  # type: ignore[misc]
    return phase.fold("state", Replies(replies), Turn(None, WORLD, (), 1, torch.Generator()))


def test_people_see_each_site_and_all_together() -> None:
    """Sites without a row stand nowhere; of one site alone there is no sum."""
    one, other = [[1, 2, 0], [0, 3, 0], [0, 0, 4]], [[0, 1, 1], [0, 0, 0], [1, 0, 0]]
    seen = told(anna=one, bert=other, carl=[[0] * 3] * 3)
    assert isinstance(seen, Folded)
    assert set(seen.tables) == {"confusion of anna", "confusion of bert", OF_ALL}
    assert seen.tables[OF_ALL].values == ((1, 3, 1), (0, 3, 0), (1, 0, 4))
    assert seen.tables[OF_ALL].rows == ("is 0", "is 1", "is 2")
    assert seen.tables[OF_ALL].columns == ("taken for 0", "taken for 1", "taken for 2")
    assert set(told(anna=one).tables) == {"confusion of anna"}
    assert told(anna=[[0] * 3] * 3) == "state"


def test_of_many_sites_only_the_sum_is_told() -> None:
    seen = told(**{f"s{i}": [[1, 0, 0], [0, 1, 0], [0, 0, 1]] for i in range(32)})
    assert set(seen.tables) == {OF_ALL}
    assert seen.tables[OF_ALL].values == ((32, 0, 0), (0, 32, 0), (0, 0, 32))


ROLES = {"anna": Role.SOURCE, "bert": Role.SOURCE, "carl": Role.TARGET}


def classes_counted(x: list[int], y: list[int] | None, least: int = 1) -> list[int]:
    """What a site of these rows sends. least: rows of a class, below which its owner lets nothing be shift_tables of it."""
    rows = data_of(torch.tensor(x).float().view(-1, 1), y)
    site = site_of(rows, WORLD, least_per_class=least)
    step = label_shift(offer, shifted, keeps=Nothing).step
    assert step is not None
    return step.run(Nothing(), Nothing(), site).message.counts.tolist()


@for_all(20, st.lists(st.integers(0, 2), min_size=1, max_size=30), st.sampled_from([1, ROWS // 10]))
def test_rows_are_counted_by_label_or_else_by_prediction(classes: list[int], times: int) -> None:
    """A labelled site's own labels count, whatever a model says; in parts of ROWS rows where one is asked."""
    rows = classes * times
    expected = [rows.count(k) for k in range(3)]
    assert classes_counted(rows, None) == expected
    assert classes_counted([0] * len(rows), rows) == expected


def test_of_a_class_with_few_rows_no_count_is_told() -> None:
    rows = [0, 0, 0, 1, 2, 2]
    assert classes_counted(rows, None, least=2) == classes_counted([0] * 6, rows, least=2) == [3, 0, 2]


def shift_tables(**counts: list[int]) -> Any:
    phase = label_shift(offer, shifted, keeps=Nothing)
    replies = {ClientId(name): lambda c=c: Classes(torch.tensor(c)) for name, c in counts.items()}  # type: ignore[misc]
    roster = tuple(Member(ClientId(name), role, True) for name, role in ROLES.items())
    world = World(inputs=(1,), classes=len(next(iter(counts.values()))))
    return phase.fold("state", Replies(replies), Turn(None, world, roster, 1, torch.Generator()))


def test_people_see_shares_and_how_far_they_are_apart() -> None:
    """Of the same shares none, of others half the sum of differences, of no class in common 1; sources count by their rows."""
    seen = shift_tables(anna=[4, 0, 0], bert=[2, 6, 4], carl=[0, 30, 10])
    assert isinstance(seen, Folded) and seen.state == "state"
    assert seen.tables[SHARES].columns == ("anna", "bert", "carl")
    assert [row[2] for row in seen.tables[SHARES].values] == [0, 0.75, 0.25]
    far = seen.tables[SHIFT]
    assert far.rows == ("anna", "bert", TOGETHER) and far.columns == ("carl",)
    assert [value for (value,) in far.values] == pytest.approx([1.0, 0.25, 0.375])
    assert shift_tables(anna=[1, 2, 3], carl=[10, 20, 30]).tables[SHIFT].values == ((0.0,), (0.0,))


def test_who_has_no_row_stands_nowhere() -> None:
    """Without a source, or without a target, there is nothing to compare."""
    assert shift_tables(anna=[1, 1, 1], bert=[0, 0, 0], carl=[1, 0, 0]).tables[SHIFT].rows == ("anna", TOGETHER)
    assert shift_tables(anna=[1, 1, 1], carl=[0, 0, 0]) == "state"
    assert shift_tables(carl=[1, 0, 0]) == "state"


def test_more_classes_than_may_be_told_are_not_told() -> None:
    assert shift_tables(anna=[1] * MOST_VALUES, carl=[1] * MOST_VALUES) == "state"


WIDE = World(inputs=(8,), classes=120, model="mlp")
FEW = World(inputs=(8,), classes=4, model="mlp")
HONEST, LIAR = ClientId("anna"), ClientId("mallory")


def turn(world: World) -> Turn[None]:
    return Turn(None, world, (), 1, Generator().manual_seed(0))


def matrix(n: int = 5) -> Tensor:
    return n * torch.eye(4, dtype=torch.int64) + 1


def by_class(right: int = 3, rows: int = 5, taken: int = 5) -> Tensor:
    return torch.tensor([right, rows, taken])[:, None].expand(3, 120).contiguous()


def trusted(world: World, honest: Counts, lie: Counts) -> set[str]:
    """Whose accuracy is trusted; no table has a number that is none."""
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
    assert trusted(FEW, Counts(1, matrix(), None), Counts(1, counts, None)) == {HONEST}


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
    assert trusted(WIDE, Counts(1, None, by_class()), Counts(1, None, counts)) == {HONEST}


@pytest.mark.parametrize("models", [0, -3])
def test_no_models(models: int) -> None:
    assert trusted(FEW, Counts(1, matrix(), None), Counts(models, matrix(), None)) == {HONEST}


def test_more_models_than_rows() -> None:
    assert trusted(FEW, Counts(1, matrix(), None), Counts(10**9, matrix(), None)) == {HONEST, LIAR}


def test_a_site_that_counts_nothing_is_left_out() -> None:
    assert trusted(FEW, Counts(1, matrix(), None), Counts(0, None, None)) == {HONEST}


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
