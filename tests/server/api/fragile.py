"""A process that ends, or a line to the store that breaks, at a chosen call of the journal: before it is done, or after."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tideline.core.errors import Unreachable
from tideline.engine.ports.journal import Journal

Fault = tuple[int, str]  # the call's number, and what happens there
KINDS = ("dies before", "dies after", "cut before", "cut after")


class Killed(BaseException):
    """The process ends here. No `except` may stop it."""


class Fragile:
    """A journal as a process sees it. After its death nothing more of the process reaches the journal."""

    def __init__(self, journal: Journal, faults: Iterable[Fault] = ()) -> None:
        self._journal, self._faults = journal, dict(faults)
        self._calls, self._dead = 0, False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._journal, name)

        def fragile(*args: Any, **more: Any) -> Any:
            fault = self._faults.get(self._calls, "")
            self._calls += 1
            self._dead = self._dead or fault == "dies before"
            self.go_on(fault == "cut before")
            done = call(*args, **more)
            self._dead = self._dead or fault == "dies after"
            self.go_on(fault == "cut after")
            return done

        return fragile

    def go_on(self, cut: bool) -> None:
        """Raises Killed, or Unreachable where the line is cut."""
        if self._dead:
            raise Killed
        if cut:
            raise Unreachable("The store does not answer: the line was cut", "It is tried again")
