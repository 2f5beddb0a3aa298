"""Points of events: what each is called, its step, and what is left out; and where a model comes from."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.test_private_runs import asked
from tests.laws.stage import Stage
from tests.synthetic import sites
from tideline.algorithms import METHODS
from tideline.client.answers import RunResult
from tideline.core.errors import Malformed
from tideline.core.run import ClientId
from tideline.engine.coordinator.result import result_of
from tideline.engine.model.said.disclosed import Disclosed
from tideline.tracking.cards import lineage_of
from tideline.tracking.numbers import Numbers, check_order, plain_name, totals
from tideline.tracking.pages import Point, unwritten

pytestmark = pytest.mark.quick
CLAUSES = (("train", "metrics.loss"), ("score", "metrics.accuracy"), ("adapt", "metrics.loss"), ("train", "model"))
CONTRACT: Any = [{"phase": phase, "field": field} for phase, field in CLAUSES]


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
    costs = {"score.bytes_up": 3.0, "score.bytes_down": 4.0, "score.seconds": 0.5, "score.replies": 2.0}
    assert {key: value for key, _, value in told[3:]} == costs
    assert list(numbers.closed(closed("score", 2), {})) == []


def test_a_metric_of_several_phases_has_the_phase_before_it() -> None:
    numbers = Numbers(CONTRACT)
    assert list(numbers.answered(answered("train", 1, "a", loss=2))) == [("train.loss/a", 1, 2.0)]
    assert list(numbers.answered(answered("adapt", 1, "a", loss=1))) == [("adapt.loss/a", 1, 1.0)]


def test_what_is_no_number_is_left_out() -> None:
    for value in (None, float("nan"), float("inf"), True, "0.5", [1]):
        numbers = Numbers(CONTRACT)
        assert list(numbers.answered(answered("score", 1, "a", accuracy=value))) == []
        assert list(numbers.closed(closed("score", 1), {})) == []


def test_names_are_of_characters_that_every_tracker_takes() -> None:
    """No slash makes a site of a metric, and nothing turns a line around."""
    names = {"accuracy": "accuracy", "<b>": "_b_", "a/b": "a_b", "\u202ex": "_x", "\x1b[31m": "__31m", "é": "_"}
    for name, plain in {**names, "": "_", ".": "_", "..": "__", "x" * 999: "x" * 80}.items():
        assert plain_name(name) == plain


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
    scores_of_a = {"macro_f1/a": 0.4, "macro_f1": 0.4, "source_only/a": 0.25, "source_only": 0.25}
    sent, received = {"bytes_up/a": 1, "bytes_up/b": 3, "bytes_up": 4}, {"bytes_down/a": 2, "bytes_down/b": 4, "bytes_down": 6}
    assert told == {key: (7, value) for key, value in {**scores_of_a, **sent, **received}.items()}


def played(**more: object) -> RunResult:
    """A run's result, of sites of which two disclose their data."""
    stage = Stage(METHODS, sites())
    for name, digest in (("anna", "b3-a"), ("carl", "b3-c")):
        told = Disclosed.of("", "", digest)
        stage.agents[ClientId(name)].owner.discloses = lambda project, told=told: told  # type: ignore[misc]
    run = stage.start(asked(**more))  # type: ignore[arg-type]
    assert stage.play(run).status == "completed"
    found: RunResult = result_of(stage.journal, run, stage.clock.now(), history=True)  # type: ignore[assignment]
    return found


def test_what_a_private_run_has_cost() -> None:
    result = played()
    paid = [each["epsilon"] for each in result["clients"]]
    assert lineage_of(result, "")["tideline.epsilon"] == f"{max(each for each in paid if each is not None):.6g}"
    assert "tideline.epsilon" not in lineage_of(played(privacy=None), "")


def test_which_data_owners_disclose() -> None:
    result = played(privacy=None)
    assert {each["name"]: each["data"] for each in result["clients"]} == {"anna": "b3-a", "bert": None, "carl": "b3-c"}
    assert lineage_of(result, "anna")["tideline.data"] == "anna b3-a, carl b3-c"
