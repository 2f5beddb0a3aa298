"""A target's rows are dealt by classes as asked for, and a wrong word says what it should be."""

from __future__ import annotations

from argparse import Namespace

import pytest
import torch

from benchmarks.alignment_report import gathered, shares_of
from benchmarks.domains import Domain, dealt


def images(*many: int) -> Domain:
    """So many rows of each class, and one of class 0 more, which is held out."""
    y = torch.cat([torch.zeros(1, dtype=torch.int64), *(torch.full((m,), label) for label, m in enumerate(many))])
    return Domain(torch.rand(len(y), 3, 4, 4), y, torch.tensor([0]), torch.arange(1, len(y)))


def test_each_class_comes_in_its_share() -> None:
    """As many rows as the scarcest class allows, or as were asked for; a class of no share gives none."""
    y = torch.tensor([0] * 40 + [1] * 10 + [2] * 30)
    order = torch.arange(len(y))
    for shares, rows, expected in (
        ([1 / 3, 1 / 3, 1 / 3], 800, [10, 10, 10]),
        ([0.5, 0.25, 0.25], 800, [20, 10, 10]),
        ([0.5, 0.25, 0.25], 20, [10, 5, 5]),
        ([0.6, 0.0, 0.4], 800, [40, 0, 27]),
    ):
        got = dealt(order, y, torch.tensor(shares), rows)
        assert torch.bincount(y[got], minlength=3).tolist() == expected
        assert len(set(got.tolist())) == len(got)


def test_only_the_target_is_dealt() -> None:
    """Evenly, or as the rows that another domain does not hold out; the sources keep what they have."""
    all_of = {"a": images(300, 240), "b": images(9, 3)}
    for asked, expected in (("even", [240, 240]), ("b", [300, 100]), ("", [300, 240])):
        sites = gathered(all_of, "a", Namespace(dealt=asked, rows=1000))
        counts = [torch.bincount(y).tolist() for name in ("a", "b") if (y := sites[name].train.y) is not None]
        assert counts == [expected, [9, 3]]
    with pytest.raises(SystemExit, match="b has fewer than 500 rows, and is seen whole"):
        gathered(all_of, "b", Namespace(dealt="even", rows=1000))
    assert shares_of(all_of, "b").tolist() == [0.75, 0.25]


def test_an_unknown_domain_is_refused() -> None:
    with pytest.raises(SystemExit, match="--dealt c is neither even nor one of a, b"):
        shares_of({"a": images(2, 2), "b": images(2, 2)}, "c")
    with pytest.raises(SystemExit, match="--dealt deals images"):
        shares_of({"a": Domain(torch.rand(4, 7), torch.tensor([0, 0, 1, 1]), torch.tensor([0]), torch.arange(1, 4))}, "even")
