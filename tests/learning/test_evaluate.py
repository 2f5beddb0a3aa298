"""Scoring on held-out rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.budgets import examples
from tideline.core.asked.world import World
from tideline.core.phase import RIGHT, WRONG, Folded, Replies
from tideline.core.record import Nothing
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId, Role
from tideline.core.step import Data, Site, View
from tideline.learning.evaluate import ROWS, accuracy, evaluate, outputs
from tideline.numerics.labels.confidence import BINS


def data(n: int, labelled: bool = True) -> Data:
    """Rows whose feature is their number, labels in turn."""
    y = torch.arange(n) % 3
    return Data(
        MemoryRows(torch.arange(n).float().view(n, 1)), y if labelled else None, torch.zeros(n, dtype=torch.int64), ("d",)
    )


def site(given: Data, **more: Any) -> Site:
    return Site(None, World(), ClientId("anna"), Role.TARGET, given, 1, torch.Generator(), **more)


def by_number(order: Any, memory: Any, site: Site, x: Tensor) -> Tensor:
    """Right for even row numbers, wrong for odd ones."""
    row = x[:, 0].long()
    return nn.functional.one_hot((row + row % 2) % 3, 3).float()


@settings(max_examples=examples(50))
@given(st.integers(1, 3 * ROWS))
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
    """A long scoring ticks after each portion of rows."""
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
    """The role does not matter to a scoring."""
    assert accuracy(by_number, None, None, replace(site(data(4)), role=Role.SOURCE)) == 0.5


@settings(max_examples=examples(20))
@given(st.integers(1, 2 * ROWS))
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
