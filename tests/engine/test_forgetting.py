"""A memory without the rows that it declares; all else in it stays."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tideline.algorithms import METHODS
from tideline.core.algorithm import resolve
from tideline.core.privacy import Exposure
from tideline.core.record import Undeclarable, Weights, field, holds_rows, record
from tideline.engine.compute.forgetting import without_rows


@record
class Inner:
    """Rows within."""

    rows: Tensor = field("n d", Exposure.SAMPLES, doc="rows")
    count: int = field(doc="how many")


@record
class Mine:
    """Rows in every place that may hold some."""

    model: Weights = field(doc="stays")
    rows: Tensor = field("n d", Exposure.SAMPLES, doc="goes")
    named: dict[str, Tensor] = field("", Exposure.SAMPLES, doc="goes")
    kept: dict[str, Tensor] = field(doc="stays")
    inner: Inner = field(doc="its rows go")
    by_name: dict[str, Inner] = field(doc="and so do theirs")
    several: tuple[Inner, ...] = field(doc="and theirs")
    maybe: Inner | None = field(doc="and its")


@record
class Counted:
    """A number that is no row."""

    rows: int = field("", Exposure.SAMPLES, doc="cannot be empty")


def inner() -> Inner:
    """Three rows."""
    return Inner(torch.ones(3, 2), 3)


def test_rows_go_and_all_else_stays() -> None:
    """At any depth."""
    one = torch.ones(3, 2)
    left = without_rows(Mine({"w": one}, one, {"a": one}, {"a": one}, inner(), {"a": inner()}, (inner(),), inner()))
    assert left.rows.shape == (0, 2) and left.named == {}
    assert left.model["w"] is one and left.kept["a"] is one
    assert left.maybe is not None
    for each in (left.inner, left.by_name["a"], left.several[0], left.maybe):
        assert each.rows.shape == (0, 2) and each.count == 3


def test_what_cannot_be_empty_is_refused() -> None:
    """By name."""
    with pytest.raises(Undeclarable, match="rows is declared as rows, and cannot be empty"):
        without_rows(Counted(3))


@pytest.mark.parametrize("name", [name for name, _ in METHODS])
def test_a_methods_memory_says_whether_it_holds_rows(name: str) -> None:
    """FedDaDiL's alone holds some: it works on the same features from the first exchange to the last."""
    assert holds_rows(resolve(METHODS, name).memory) == (name == "feddadil")
