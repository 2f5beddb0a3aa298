"""Scores in words."""

from __future__ import annotations

from tideline.report.score_rows import NOTHING, in_words


def test_an_interval_holds_its_score_as_both_are_written() -> None:
    """Two digits of an interval beside three of the score: its ends are rounded outwards."""
    assert in_words({"value": 0.999, "low": 0.9972, "high": 0.9998, "rows": 250}) == "0.999 (0.99–1.00)"
    assert in_words({"value": 0.0, "low": 0.0, "high": 0.0276, "rows": 136}) == "0.000 (0.00–0.03)"
    assert in_words(None) == NOTHING
