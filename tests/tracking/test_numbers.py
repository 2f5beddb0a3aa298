"""Points of events: what each is called, its step, and what is left out."""

from __future__ import annotations

from typing import Any

import pytest

from tideline.core.errors import Malformed
from tideline.tracking.numbers import Numbers, check_order, plain_name, totals
from tideline.tracking.pages import Point, unwritten

CONTRACT: Any = [
    {"phase": "train", "field": "metrics.loss"},
    {"phase": "score", "field": "metrics.accuracy"},
    {"phase": "adapt", "field": "metrics.loss"},
    {"phase": "train", "field": "model"},
]


def answered(phase: str, number: int, site: str, **metrics: Any) -> Any:
    return {"seq": 1, "kind": "answered", "data": {"phase": phase, "round": number, "client": site, "metrics": metrics}}


def closed(phase: str, number: int) -> Any:
    return {"seq": 2, "kind": "closed", "data": {"phase": phase, "round": number}}


def test_a_round_is_its_sites_and_their_mean() -> None:
    numbers = Numbers(CONTRACT)
    told = [*numbers.answered(answered("score", 2, "a", accuracy=0.5)), *numbers.answered(answered("score", 2, "b", accuracy=1))]
    cost: Any = {"name": "score", "round": 2, "bytes_up": 3, "bytes_down": 4, "seconds": 0.5, "replies": 2}
    told += numbers.closed(closed("score", 2), {("score", 2): cost})
    assert told[:3] == [("accuracy/a", 2, 0.5), ("accuracy/b", 2, 1.0), ("accuracy", 2, 0.75)]
    assert {key: value for key, _, value in told[3:]} == {
        "score.bytes_up": 3.0,
        "score.bytes_down": 4.0,
        "score.seconds": 0.5,
        "score.replies": 2.0,
    }
    assert list(numbers.closed(closed("score", 2), {})) == []


def test_a_metric_of_several_phases_has_the_phase_before_it() -> None:
    numbers = Numbers(CONTRACT)
    assert list(numbers.answered(answered("train", 1, "a", loss=2))) == [("train.loss/a", 1, 2.0)]
    assert list(numbers.answered(answered("adapt", 1, "a", loss=1))) == [("adapt.loss/a", 1, 1.0)]


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), True, "0.5", [1]])
def test_what_is_no_number_is_left_out(value: object) -> None:
    numbers = Numbers(CONTRACT)
    assert list(numbers.answered(answered("score", 1, "a", accuracy=value))) == []
    assert list(numbers.closed(closed("score", 1), {})) == []


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("accuracy", "accuracy"),
        ("<b>", "_b_"),
        ("a/b", "a_b"),
        ("\u202ex", "_x"),
        ("\x1b[31m", "__31m"),
        ("", "_"),
        (".", "_"),
        ("..", "__"),
        ("é", "_"),
    ],
)
def test_names_are_of_characters_that_every_tracker_takes(name: str, made: str) -> None:
    """No slash makes a site of a metric, and nothing turns a line around."""
    assert plain_name(name) == made
    assert len(plain_name("x" * 999)) == 80


def test_events_are_in_order() -> None:
    events: Any = [{"seq": 4}, {"seq": 5}]
    assert check_order(events, 3) and not check_order(events, 1) and check_order([], 9)
    for odd in ([{"seq": 5}, {"seq": 4}], [{"seq": 3}], [{"seq": 4}, {"seq": 4}]):
        with pytest.raises(Malformed, match="out of order"):
            check_order(odd, 3)  # type: ignore[arg-type]


def test_points_stand_once() -> None:
    points = [Point("a", step, 0.0, 0.0) for step in (1, 2, 2, 3)] + [Point("b", 0, 0.0, 0.0)]
    assert [(p.key, p.step) for p in unwritten(points, {"a": 1})] == [("a", 2), ("a", 3), ("b", 0)]


def test_totals_leave_out_what_sites_tell_themselves() -> None:
    sites: Any = [
        {"name": "a", "source_only": 0.25, "bytes_up": 1, "bytes_down": 2},
        {"name": "b", "source_only": None, "bytes_up": 3, "bytes_down": 4},
    ]
    scores = {"a": {"accuracy": {"value": 0.5}, "macro_f1": {"value": 0.4}}}
    result: Any = {"phases": [{"round": 7}], "scores": scores, "clients": sites}
    told = {key: (step, value) for key, step, value in totals(result, frozenset({"accuracy"}))}
    assert told == {
        "macro_f1/a": (7, 0.4),
        "macro_f1": (7, 0.4),
        "source_only/a": (7, 0.25),
        "source_only": (7, 0.25),
        "bytes_up/a": (7, 1.0),
        "bytes_up/b": (7, 3.0),
        "bytes_up": (7, 4.0),
        "bytes_down/a": (7, 2.0),
        "bytes_down/b": (7, 4.0),
        "bytes_down": (7, 6.0),
    }
