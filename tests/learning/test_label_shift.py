"""Whether classes are as frequent at a target as at the sources."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.budgets import examples
from tideline.core.asked.world import World
from tideline.core.phase import MOST_VALUES, Folded, Replies, Turn
from tideline.core.record import Nothing
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId, Member, Role
from tideline.core.step import Data, Site
from tideline.learning.evaluate import ROWS, SHARES, SHIFT, TOGETHER, Classes, label_shift

WORLD = World(inputs=(1,), classes=3)
ROLES = {"anna": Role.SOURCE, "bert": Role.SOURCE, "carl": Role.TARGET}


def offer(state: Any, turn: Any) -> dict[ClientId, Any]:
    return {}


def as_said(order: Any, memory: Any, site: Site, x: Tensor) -> Tensor:
    """Takes each row for what its feature says."""
    return nn.functional.one_hot(x[:, 0].long(), 3).float()


def counted(x: list[int], y: list[int] | None, least: int = 1) -> list[int]:
    """What a site of these rows sends. least: rows of a class, below which its owner lets nothing be told of it."""
    rows = Data(
        MemoryRows(torch.tensor(x).float().view(-1, 1)),
        None if y is None else torch.tensor(y),
        torch.zeros(len(x)).long(),
        ("d",),
    )
    site = Site(None, WORLD, ClientId("anna"), Role.TARGET, rows, 1, torch.Generator(), least_per_class=least)
    step = label_shift(offer, as_said, keeps=Nothing).step
    assert step is not None
    found: list[int] = step.run(Nothing(), Nothing(), site).message.counts.tolist()
    return found


@settings(max_examples=examples(20))
@given(st.lists(st.integers(0, 2), min_size=1, max_size=30), st.sampled_from([1, ROWS // 10]))
def test_rows_are_counted_by_label_or_else_by_prediction(classes: list[int], times: int) -> None:
    """A labelled site's own labels count, whatever a model says; in parts of ROWS rows where one is asked."""
    rows = classes * times
    expected = [rows.count(k) for k in range(3)]
    assert counted(rows, None) == expected
    assert counted([0] * len(rows), rows) == expected


def test_of_a_class_with_few_rows_no_count_is_told() -> None:
    """By labels, and by predictions."""
    rows = [0, 0, 0, 1, 2, 2]
    assert counted(rows, None, least=2) == counted([0] * 6, rows, least=2) == [3, 0, 2]


def told(**counts: list[int]) -> Any:
    """What people see of such replies."""
    phase = label_shift(offer, as_said, keeps=Nothing)
    replies = {ClientId(name): lambda c=c: Classes(torch.tensor(c)) for name, c in counts.items()}  # type: ignore[misc]
    roster = tuple(Member(ClientId(name), role, True) for name, role in ROLES.items())
    world = World(inputs=(1,), classes=len(next(iter(counts.values()))))
    return phase.fold("state", Replies(replies), Turn(None, world, roster, 1, torch.Generator()))


def test_people_see_shares_and_how_far_they_are_apart() -> None:
    """Of the same shares none, of others half the sum of differences, of no class in common 1; sources count by their rows."""
    seen = told(anna=[4, 0, 0], bert=[2, 6, 4], carl=[0, 30, 10])
    assert isinstance(seen, Folded) and seen.state == "state"
    assert seen.tables[SHARES].columns == ("anna", "bert", "carl")
    assert [row[2] for row in seen.tables[SHARES].values] == [0, 0.75, 0.25]
    far = seen.tables[SHIFT]
    assert far.rows == ("anna", "bert", TOGETHER) and far.columns == ("carl",)
    assert [value for (value,) in far.values] == pytest.approx([1.0, 0.25, 0.375])
    assert told(anna=[1, 2, 3], carl=[10, 20, 30]).tables[SHIFT].values == ((0.0,), (0.0,))


def test_who_has_no_row_stands_nowhere() -> None:
    """Without a source, or without a target, there is nothing to compare."""
    assert told(anna=[1, 1, 1], bert=[0, 0, 0], carl=[1, 0, 0]).tables[SHIFT].rows == ("anna", TOGETHER)
    assert told(anna=[1, 1, 1], carl=[0, 0, 0]) == "state"
    assert told(carl=[1, 0, 0]) == "state"


def test_more_classes_than_may_be_told_are_not_told() -> None:
    """The run goes on without the tables."""
    assert told(anna=[1] * MOST_VALUES, carl=[1] * MOST_VALUES) == "state"
