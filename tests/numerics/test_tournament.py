"""The round robin: every pair once, nobody twice a day."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideline.numerics.alignment.divergences import blocks, days


@given(st.integers(2, 41))
def test_every_pair_meets_once_and_nobody_plays_twice_a_day(n: int) -> None:
    """In n - 1 days, or n where somebody rests; each day as many play as can."""
    played = days(n)
    assert sorted(pair for each in played for pair in each) == list(combinations(range(n), 2))
    assert len(played) == n - 1 + n % 2
    for each in played:
        players = [player for pair in each for player in pair]
        assert len(players) == len(set(players)) == n - n % 2


@given(st.integers(2, 30), st.integers(1, 40))
def test_blocks_are_the_tournament_in_parts(n: int, count: int) -> None:
    """In its order, and even: no device has more than one pair a day of its block."""
    parts = blocks(n, count)
    assert len(parts) == count
    assert [pair for part in parts for pair in part] == [pair for each in days(n) for pair in each]
    most = -(-len(days(n)) // count)
    for part in parts:
        players = [player for pair in part for player in pair]
        assert max((players.count(player) for player in players), default=0) <= most


def test_one_player_is_none() -> None:
    """There is nobody to meet."""
    with pytest.raises(ValueError, match="at least two players; there are 1"):
        days(1)
