"""A round-robin tournament: every pair of N players meets once, and on each day nobody plays twice (the circle method)."""

from __future__ import annotations

from itertools import pairwise

Pair = tuple[int, int]


def days(n: int) -> tuple[tuple[Pair, ...], ...]:
    """The pairs (i, j), i < j, of each day. n - 1 days for an even n; n days for an odd one, where each day somebody else rests.

    Raises ValueError for fewer than two players.
    """
    if n < 2:
        raise ValueError(f"A tournament wants at least two players; there are {n}")
    seats = n + n % 2  # of an odd number the last seat is empty
    return tuple(tuple(sorted(filter(lambda pair: pair[1] < n, day(seats, d)))) for d in range(seats - 1))


def day(seats: int, d: int) -> list[Pair]:
    """The pairs of a day: seat 0 stays, the others have moved on by d places round the table."""
    order = [0, *((i + d) % (seats - 1) + 1 for i in range(seats - 1))]
    pairs = [(order[i], order[seats - 1 - i]) for i in range(seats // 2)]
    return [(min(pair), max(pair)) for pair in pairs]


def blocks(n: int, count: int) -> tuple[tuple[Pair, ...], ...]:
    """The tournament in so many parts of consecutive days, as even as can be; of more parts than days the last are empty."""
    played = days(n)
    cuts = [round(k * len(played) / count) for k in range(count + 1)]
    return tuple(tuple(pair for d in played[a:b] for pair in d) for a, b in pairwise(cuts))
