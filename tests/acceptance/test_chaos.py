"""One seed of the chaos, which `make chaos` runs with many; and the checker, which must find what is wrong with a history."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.chaos.__main__ import chaos
from tests.acceptance.chaos.check import RULES, Lines, check
from tests.services import why_no_postgres

RUN = "run-a"


@pytest.mark.nightly(job="journeys")
@pytest.mark.processes
def test_whatever_dies_the_bytes_are_the_same(tmp_path: Path) -> None:
    """A run amid a frozen coordinator, a killed one and a flushed Redis ends as if nothing had been."""
    if why_no_postgres() and os.environ.get("CI", "").lower() != "true":
        pytest.skip(why_no_postgres())
    assert chaos(tmp_path, range(2, 3)) == []


def line(kind: str, **facts: Any) -> dict[str, Any]:
    return {"kind": kind, "run": RUN, **facts}


def good() -> Lines:
    """The history of two rounds and two clients in which nothing is wrong."""
    told = [
        line("started"),
        line("seen", by="one", status="waiting", cursor=-1),
        line("seen", by="two", status="running", cursor=1),
    ]
    told += [line("seen", by="one", status="completed", cursor=2), line("expected", digest="d")]
    told += [line("run", status="completed", cause="", cursor=2, digest="d")]
    for cursor in (-1, 0, 1):
        told.append(line("round", cursor=cursor, next=cursor + 1, folded=["a", "b"]))
        for client in "ab":
            order = f"{cursor}/{client}"
            told.append(line("order", cursor=cursor, client=client, attempt=1, order=order, status="answered", answered=True))
            told.append(line("verdict", site=client, verdict="accepted", order=order))
    events = [("created", {}), *(("closed", {"token": token}) for token in (1, 1, 3)), ("completed", {})]
    return told + [line("event", seq=at + 1, event=kind, data=data) for at, (kind, data) in enumerate(events)]


def find(told: Lines, kind: str, **facts: Any) -> dict[str, Any]:
    """The first line of a kind with these facts."""
    return next(each for each in told if each["kind"] == kind and facts.items() <= each.items())


def change(kind: str, where: dict[str, Any], **facts: Any) -> Callable[[Lines], object]:
    """Write something else into a line."""
    return lambda told: find(told, kind, **where).update(facts)


def drop(kind: str, **where: Any) -> Callable[[Lines], object]:
    return lambda told: told.remove(find(told, kind, **where))


def more(kind: str, **facts: Any) -> Callable[[Lines], object]:
    return lambda told: told.append(line(kind, **facts))


WRONG: dict[str, tuple[Callable[[Lines], object], str]] = {
    "an acknowledged run is gone": (more("started", run="run-b"), "run-b: a run that was acknowledged is not there"),
    "a run failed": (change("run", {}, status="failed", cause="why"), "failed: why"),
    "other bytes": (change("run", {}, digest="e"), "its state is e"),
    "a round is lost": (drop("round", cursor=0), "round -1 leads to 0, and 1 is there"),
    "the first round is lost": (drop("round", cursor=-1), "the first round is not there"),
    "the last round is lost": (drop("round", cursor=1), "the last round leads to 1"),
    "a round is closed twice": (more("round", cursor=0, next=1, folded=["a", "b"]), "round 0 leads to 1, and 0 is there"),
    "a reply twice": (
        more("order", cursor=0, client="a", attempt=2, order="x", status="answered", answered=True),
        "a has 2 replies in round 0",
    ),
    "a client folded twice": (change("round", {"cursor": 0}, folded=["a", "a", "b"]), "round 0 folded a client twice"),
    "a reply is left out": (change("round", {"cursor": 1}, folded=["a"]), "round 1 folded ['a'], and ['a', 'b'] had answered"),
    "a late reply is folded": (change("order", {"order": "1/b"}, status="expired"), "round 1 folded"),
    "an accepted reply is gone": (drop("order", order="0/a"), "order 0/a was accepted and is nowhere"),
    "an accepted reply is open": (change("order", {"order": "0/a"}, status="open"), "order 0/a was accepted and is open"),
    "a reply is accepted twice": (more("verdict", site="a", verdict="accepted", order="1/a"), "order 1/a was accepted 2 times"),
    "back in time": (change("seen", {"by": "one", "cursor": 2}, cursor=0, status="running"), "at 1 by two, then at 0 by one"),
    "an end that was none": (more("seen", by="two", status="running", cursor=2), "completed, then running"),
    "more than there is": (change("seen", {"status": "completed"}, cursor=9), "somebody saw more than there is"),
    "an older token": (change("event", {"seq": 4}, data={"token": 0}), "token 0 after token 1"),
    "no token": (change("event", {"seq": 2}, data={}), "a round was closed without a token"),
    "an event in the middle is lost": (drop("event", seq=3), "a number is missing or there twice"),
}


def test_a_good_history_is_good() -> None:
    """Nothing is wrong with it, and every rule had something to look at."""
    assert check(good()) == []
    assert len(RULES) == 7


@pytest.mark.parametrize(("spoil", "words"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_found(spoil: Callable[[Lines], object], words: str) -> None:
    told = good()
    spoil(told)
    assert any(words in wrong for wrong in check(told))
