"""The judge of rehearsals: shares, harm and intervals, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.rehearsals import Case, Foretold, draw, each_row, held, line_of
from tideline.client.answers import Interval


def case(found: float, family: str = "office", accuracy: float = 0.7, **others: float) -> Case:
    """100 rows; a gain of 2 points was expected, by 3 at most, and an accuracy of 70 % to 5 points."""
    gain, right = Interval(value=0.02, low=-0.01, high=0.05), Interval(value=0.7, low=0.65, high=0.75)
    there = {"none": 0.0, **others}
    return Case(
        family=family,
        rows=100,
        gain=Foretold(gain, found, 0.0),
        accuracy=Foretold(right, accuracy, 0.0021),
        others=there,
        elsewhere={"none": 0.0, "site": 0.01},
    )


def test_shares_of_what_could_be_gained() -> None:
    """Of 8 points that the best method gains, and of 6 that the best with other seeds does."""
    cases = [case(0.02, site=0.04, heads=0.06), case(0.01, site=0.02, heads=-0.1)]
    assert line_of("all", cases) == ("all", "2", "3.0", "8.0", "38 %", "50 %", "0, at most 0")
    assert each_row(cases) == [("none", "0.0"), ("site", "6.0"), ("heads", "-4.0")]


@pytest.mark.parametrize(("found", "harmed", "at_most"), [(-0.05, 0, 0), (-0.06, 0, 1), (-0.2, 1, 1), (0.2, 0, 0)])
def test_harm(found: float, harmed: int, at_most: int) -> None:
    """Twenty of a hundred rows are no chance, five are; six may be none, if none became right."""
    assert line_of("all", [case(found, site=0.1)])[-1] == f"{harmed}, at most {at_most}"


def test_intervals() -> None:
    assert held("all", [case(0.05), case(0.06, accuracy=0.76)]) == ("all", "50 %", "50 %", "6.0", "50 %", "100 %", "10.0")


def test_a_picture(tmp_path: Path) -> None:
    draw([case(0.02), case(0.0, "reviews")], tmp_path / "new" / "picture.png")
    assert (tmp_path / "new" / "picture.png").read_bytes().startswith(b"\x89PNG")
