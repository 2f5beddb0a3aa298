"""Dealing rows to sites, and splitting a site's rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.rows import MemoryRows
from tideline.core.run import Role
from tideline.core.step import Data, View
from tideline.learning.formats.holdings import Holdings, Rows, listed, split_beside, split_rows
from tideline.learning.partition.deals import at_random, by_domain

names = st.lists(st.text("abc", min_size=1), min_size=1, max_size=6, unique=True).map(tuple)


@given(names, st.integers(1, 20))
def test_the_last_site_has_the_last_domain_to_itself(domains: tuple[str, ...], n_sites: int) -> None:
    """One domain per site; the last domain goes to the last site and, where there is another, to no other site."""
    dealt = by_domain(domains, n_sites)
    assert len(dealt) == n_sites
    assert dealt[-1] == domains[-1]
    assert len(domains) == 1 or domains[-1] not in dealt[:-1]


def test_sites_take_turns_through_the_domains() -> None:
    """With more sites than domains the others are gone through again."""
    assert by_domain(("a", "b", "c"), 6) == ("a", "b", "a", "b", "a", "c")
    assert by_domain(("a", "b", "c"), 3) == ("a", "b", "c")
    assert by_domain(("a", "b", "c"), 2) == ("a", "c")


@given(st.integers(0, 300), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_random_parts_cover_all_rows_once(n_rows: int, n_parts: int, seed: int) -> None:
    """Parts are disjoint, cover everything, and differ in size by at most one."""
    parts = at_random(n_rows, n_parts, seed)
    assert len(parts) == n_parts
    assert sorted(np.concatenate(parts)) == list(range(n_rows))
    sizes = [len(p) for p in parts]
    assert max(sizes) - min(sizes) <= 1


def test_a_seed_fixes_the_deal() -> None:
    first, again, other = at_random(50, 2, 7), at_random(50, 2, 7), at_random(50, 2, 8)
    assert np.array_equal(first[0], again[0])
    assert not np.array_equal(first[0], other[0])


@pytest.mark.parametrize(("n_rows", "n_parts"), [(5, 0), (-1, 2)])
def test_impossible_deals_are_refused(n_rows: int, n_parts: int) -> None:
    with pytest.raises(ConfigRefused):
        at_random(n_rows, n_parts, 0)


@pytest.mark.parametrize(("domains", "n_sites"), [((), 3), (("a",), 0)])
def test_nothing_to_deal_is_refused(domains: tuple[str, ...], n_sites: int) -> None:
    with pytest.raises(ConfigRefused):
        by_domain(domains, n_sites)


@given(st.integers(2, 500), st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_a_split_is_a_partition(n: int, seed: int, share: float) -> None:
    """Every row is on exactly one side, in order; neither side is empty, and the held-out share is as asked."""
    train, held = split_rows(n, seed, share)
    assert sorted([*train, *held]) == list(range(n))
    assert sorted(train) == train.tolist() and sorted(held) == held.tolist()
    assert len(train) >= 1
    assert len(held) == min(max(round(n * share), 1), n - 1)


def test_the_split_never_changes() -> None:
    """The default draw is part of the format: the same rows stay held out across releases."""
    assert split_rows(10)[1].tolist() == [2, 8]
    assert split_rows(20)[1].tolist() == [1, 8, 18, 19]


@pytest.mark.parametrize("n", [0, 1])
def test_one_row_cannot_be_split(n: int) -> None:
    with pytest.raises(DataRefused):
        split_rows(n)


def split_at(n: int, test_idx: np.ndarray[Any, Any]) -> tuple[Rows, Rows]:
    """The split of data that list their held-out rows."""
    return split_beside(n, listed(n, test_idx, "test_idx", "held-out row"), None)


@given(st.integers(1, 100).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_named_rows_are_held_out(case: tuple[int, set[int]]) -> None:
    """An explicit test_idx decides, in any order, and the rest is for training; it may name all rows, or none."""
    n, held_out = case
    train, held = split_at(n, np.array(list(held_out), dtype=np.int32))
    assert held.tolist() == sorted(held_out)
    assert train.tolist() == sorted(set(range(n)) - held_out)


BAD_INDICES = [
    (np.array([0, 5]), "names row 5; the rows are 0 to 4"),
    (np.array([-1]), "names row -1"),
    (np.array([1, 1]), "twice"),
    (np.array([0.0]), "whole numbers"),
    (np.array([True, False, False, False, False]), "whole numbers"),
    (np.array([[0, 1]]), "shape (1, 2)"),
]


@pytest.mark.parametrize(("test_idx", "said"), BAD_INDICES)
def test_bad_indices_are_refused(test_idx: np.ndarray, said: str) -> None:
    with pytest.raises(DataRefused) as refusal:
        split_at(5, test_idx)
    assert said in refusal.value.what


def test_a_view_never_shows_a_targets_training_labels() -> None:
    """Even where labels are there, a target sees its training rows without them; other roles and rows have them."""
    data = Data(MemoryRows(torch.zeros(3, 2)), torch.tensor([0, 1, 0]), torch.zeros(3, dtype=torch.int64), ("a",))
    holdings = Holdings(data, data)
    assert holdings.view(View.TRAIN, Role.TARGET).y is None
    assert holdings.view(View.HELD_OUT, Role.TARGET).labelled
    assert holdings.view(View.TRAIN, Role.SOURCE).labelled
    assert holdings.view(View.TRAIN, Role.PEER).labelled
