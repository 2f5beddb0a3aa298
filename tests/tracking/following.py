"""Followers for tests: a clock that is set by whoever rests, and trackers that die before one of their writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tideline.algorithms import METHODS
from tideline.client.answers import RunLine
from tideline.client.http import Client
from tideline.tracking.following import Follower
from tideline.tracking.outputs import Wanted
from tideline.tracking.pages import Tracker

NO_MODEL, WITH_MODEL = Wanted(), Wanted(METHODS)


class Pace:
    """Time that passes while somebody rests, and no faster. then: what happens at a rest."""

    def __init__(self, then: Callable[[float], None] = lambda at: None) -> None:
        self.at, self.then = 1000.0, then

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds
        self.then(self.at)


def follower(client: Client, tracker: Tracker, wanted: Wanted = NO_MODEL, **more: Any) -> Follower:
    said = more.pop("said", [])
    return Follower(client, tracker, wanted, pace=more.pop("pace", Pace()), say=said.append, **more)


def one(run: str) -> Callable[[RunLine], bool]:
    return lambda line: line["id"] == run


class KilledError(BaseException):
    """Nobody catches it: what a follower still had in mind is gone, as after kill -9."""


def killed() -> None:
    raise KilledError


class Dying:
    """Passes calls on, and dies before the n-th of those that write."""

    def __init__(self, of: Any, writes: Sequence[str], n: int, die: Callable[[], None] | None = None) -> None:
        self.of, self.writes, self.left, self.die = of, writes, n, die or killed

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.of, name)
        if name not in self.writes:
            return found

        def call(*given: Any, **more: Any) -> Any:
            self.left -= 1
            if self.left <= 0:
                self.die()
            return found(*given, **more)

        return call
