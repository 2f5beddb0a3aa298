"""What notifying needs from outside: a place for targets and notices, and a way to send one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tideline.engine.model.access.projects import EVERY
from tideline.engine.model.notices import Notice, Outgoing, Target


@dataclass(frozen=True)
class Pending:
    """What there is to do: news that nobody has read yet, notices that wait, and whether one of them is due."""

    news: bool = False
    waiting: int = 0
    due: bool = False


class Notices(Protocol):
    """Targets, and the notices that wait for them. Each method is one transaction, and any number of coordinators may call it.

    What changes a target stands in the audit log, written in the same transaction.
    """

    def targets(self, scope: str = EVERY) -> tuple[Target, ...]:
        """The targets of one project, or all, by project and name."""

    def add_target(self, target: Target) -> bool:
        """Write a target; False where its id or, in its project, its name is known. Raises Refused where there are too many."""

    def remove_target(self, target: Target, by: str, now: float) -> bool:
        """Remove a target with what waits for it; False where it is not there."""

    def end_target(self, target: Target, reason: str, now: float) -> None:
        """Send nothing to a target any more, nor what waits for it."""

    def begin_test(self, target: Target, now: float, pause: float) -> float:
        """Note that a target is tried by hand, unless that was done within `pause` seconds; how many of them are left."""

    def pending(self, now: float) -> Pending:
        """What there is to do: one look, which writes nothing."""

    def follow(self, now: float) -> bool:
        """Read what happened since the last time, and queue a notice for each target that wants it. Whether more is left.

        Reading and queueing are one transaction: what was read is queued, once.
        """

    def queue(self, notices: Sequence[Notice], now: float) -> None:
        """Queue notices that stand in no log. One whose source was queued before is not queued again."""

    def claim(self, now: float, claim: str, seconds: float, most: int) -> tuple[tuple[Outgoing, Target], ...]:
        """Take some notices that are due, the oldest of each target: nobody else gets them for so many seconds.

        Each counts one attempt more. What was sent long ago is forgotten.
        """

    def sent(self, outgoing: Outgoing, now: float) -> None:
        """Note that a receiver took a notice, unless another claims it by now."""

    def put_off(self, outgoing: Outgoing, due: float, reason: str) -> None:
        """Note when to try again a notice that was not taken, and why it was not, unless another claims it by now.

        What else waits for its target is not tried before it.
        """

    def give_up(self, outgoing: Outgoing, target: Target, reason: str, now: float) -> None:
        """Note in the audit log that a notice is not tried any more."""


@dataclass(frozen=True)
class Sent:
    """How a try went. gone: the receiver is gone for good. pause: seconds that it asks to be left alone.

    words: what went wrong, without a byte of what the receiver said.
    """

    taken: bool
    words: str
    gone: bool = False
    pause: float = 0.0


class Sender(Protocol):
    """Sends notices. Any number of threads."""

    def check(self, target: Target) -> None:
        """Raises ConfigRefused for an address to which nothing may be sent, or cannot."""

    def send(self, target: Target, outgoing: Outgoing, now: float) -> Sent:
        """Try once. Never raises for what the receiver does."""
