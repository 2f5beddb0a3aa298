"""When notices are sent and tried again, and what a target may be."""

from __future__ import annotations

import doctest

import pytest

from tideline.core.errors import ConfigRefused
from tideline.engine.coordinator.notices.targets import Wanted, form_of, kinds_of, name_of
from tideline.engine.model import notices
from tideline.engine.model.notices import DAY, HOUR, Form, Kind, Notice, Outgoing, next_try

ONE = Outgoing("msg", "t", Notice(kind=Kind.FAILED, at=0.0, words="", source="1", project="cardio"))


def test_the_examples_of_the_rules() -> None:
    """As the module shows them."""
    assert doctest.testmod(notices).failed == 0


@pytest.mark.parametrize("draw", [0.0, 0.5, 1.0])
def test_tries_grow_apart_up_to_a_day(draw: float) -> None:
    """Each pause is longer than the one before until the longest; the last try is a day after the first."""
    now, pauses, attempts = 0.0, list[float](), 1
    while (due := next_try(Outgoing("m", "t", ONE.notice, attempts=attempts), now, draw)) is not None:
        pauses.append(due - now)
        now, attempts = due, attempts + 1
    assert now == DAY and 10 < attempts < 40
    assert pauses[:-1] == sorted(pauses[:-1]) and max(pauses) <= 4 * HOUR


def test_a_receiver_may_ask_for_a_pause() -> None:
    """Of an hour at most."""
    once = Outgoing("m", "t", ONE.notice, attempts=1)
    assert next_try(once, 0.0, 0.0, asked=120.0) == 120.0
    assert next_try(once, 0.0, 0.0, asked=1e9) == HOUR


def test_the_name_of_a_notice_is_the_same_for_all_who_read_it() -> None:
    """Of another target, or of another entry, it is another."""
    other = Notice(kind=Kind.FAILED, at=0.0, words="", source="2", project="cardio")
    assert notices.id_of("t", ONE.notice) == notices.id_of("t", ONE.notice)
    assert len({notices.id_of("t", ONE.notice), notices.id_of("u", ONE.notice), notices.id_of("t", other)}) == 3


def test_a_notice_comes_back_as_it_was_stored() -> None:
    """Through plain data."""
    assert notices.notice_in(ONE.notice.plain()) == ONE.notice  # type: ignore[arg-type]


def test_names_and_forms_that_nobody_gave() -> None:
    """The host, or who gets the mail; JSON, or e-mail."""
    assert (name_of("https://hooks.example/a/b"), name_of("mailto:ann@example.org"), name_of("https://[")) == (
        "hooks.example",
        "ann",
        "",
    )
    assert form_of(Wanted("https://a", ())) is Form.JSON and form_of(Wanted("mailto:a@b", ())) is Form.EMAIL
    for url, form in (("https://a", Form.EMAIL), ("mailto:a@b", Form.SLACK)):
        with pytest.raises(ConfigRefused, match="does not go with this address"):
            form_of(Wanted(url, (), form))


def test_what_a_project_may_hear() -> None:
    """Nothing of the coordinator; each kind once; a test is asked for otherwise."""
    assert kinds_of([Kind.FAILED, Kind.FAILED, Kind.STALLED], "cardio") == (Kind.STALLED, Kind.FAILED)
    assert kinds_of([Kind.DISK], "") == (Kind.DISK,)
    for kinds, scope in (([Kind.DISK], "cardio"), ([], ""), ([Kind.TEST], "")):
        with pytest.raises(ConfigRefused):
            kinds_of(kinds, scope)
