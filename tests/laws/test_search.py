"""Pieces that the laws look for are found wherever they stand."""

from __future__ import annotations

import random

from tests.laws.search import among


def test_it_finds_what_is_there_and_nothing_else() -> None:
    """At every place, the last one too; pieces of any length; none in nothing."""
    passed = random.Random(4).randbytes(200)
    there = {passed[at : at + size] for size in (1, 7, 8, 9, 32) for at in range(200 - size + 1)}
    others = {piece[:-1] + bytes([piece[-1] ^ 1]) for piece in there if len(piece) > 7}
    assert among(there | others, passed) == there
    assert among(there, b"") == among((), passed) == set()
    assert among(there, passed[:7]) == {piece for piece in there if piece in passed[:7]}
