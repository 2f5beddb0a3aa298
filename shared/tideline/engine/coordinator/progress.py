"""When a round is ready: pure functions of who has answered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from tideline.core.run import ClientId, Waiting
from tideline.engine.model.orders import OrderRow, OrderStatus


class Verdict(StrEnum):
    """What to do with an open round."""

    WAIT = "wait"
    CLOSE = "close"
    STALL = "stall"


@dataclass(frozen=True)
class Progress:
    """Who of the asked is still awaited, who has answered and who has failed, with the reason."""

    waiting: frozenset[ClientId] = frozenset()
    answered: frozenset[ClientId] = frozenset()
    failed: tuple[tuple[ClientId, str], ...] = ()

    @property
    def asked(self) -> int:
        """How many were asked."""
        return len(self.waiting) + len(self.answered) + len(self.failed)


@dataclass(frozen=True)
class Answered:
    """A client's reply was accepted."""

    client: ClientId


@dataclass(frozen=True)
class Failed:
    """A client cannot answer."""

    client: ClientId
    reason: str


@dataclass(frozen=True)
class Expired:
    """The deadline has passed."""


ProgressEvent = Answered | Failed | Expired


def note(progress: Progress, event: ProgressEvent, rules: Waiting, floor: int | None = None) -> tuple[Progress, Verdict]:
    """The progress after an event, and what it means. A client's first answer or failure counts; later ones change nothing."""
    if isinstance(event, Expired):
        return progress, verdict(progress, rules, floor, expired=True)
    if event.client in progress.waiting:
        progress = replace(progress, waiting=progress.waiting - {event.client})
        if isinstance(event, Answered):
            progress = replace(progress, answered=progress.answered | {event.client})
        else:
            progress = replace(progress, failed=tuple(sorted((*progress.failed, (event.client, event.reason)))))
    return progress, verdict(progress, rules, floor)


def verdict(progress: Progress, rules: Waiting, floor: int | None = None, expired: bool = False) -> Verdict:
    """Close at the target, or when nobody is awaited any more or time is up and the quorum is there; else stall."""
    target = progress.asked if rules.target_replies is None else min(rules.target_replies, progress.asked)
    have = len(progress.answered)
    if have >= target and have >= quorum(progress, rules, floor):
        return Verdict.CLOSE
    if progress.waiting and not expired:
        return Verdict.WAIT
    return Verdict.CLOSE if have >= quorum(progress, rules, floor) else Verdict.STALL


def quorum(progress: Progress, rules: Waiting, floor: int | None) -> int:
    """The least number of replies that a round may close with: the run's rule, never less than the phase's floor.

    A phase whose floor is 0 may close without any, where the run's rule says how few will do.
    """
    if floor == 0 and rules.min_replies is not None:
        return 0
    least = rules.min_replies if rules.min_replies is not None else rules.target_replies
    wanted = progress.asked if least is None else min(least, progress.asked)
    return max(wanted, floor or 0)


def progress_of(orders: Iterable[OrderRow]) -> Progress:
    """The progress that the newest order of each client tells."""
    latest = newest(orders)
    return Progress(
        frozenset(o.client for o in latest if o.status is OrderStatus.OPEN),
        frozenset(o.client for o in latest if o.status is OrderStatus.ANSWERED),
        tuple(sorted((o.client, reason(o)) for o in latest if o.status not in (OrderStatus.OPEN, OrderStatus.ANSWERED))),
    )


def newest(orders: Iterable[OrderRow]) -> tuple[OrderRow, ...]:
    """The last attempt of each client, sorted by client."""
    latest: dict[ClientId, OrderRow] = {}
    for order in sorted(orders, key=lambda o: (o.client, o.attempt)):
        latest[order.client] = order
    return tuple(latest.values())


def reason(order: OrderRow) -> str:
    """Why an order has no reply, in words."""
    return order.failure.what if order.failure else f"no answer ({order.status.value})"


def waits_for(progress: Progress, rules: Waiting, seconds_left: float) -> str:
    """The visible reason of a wait."""
    if not progress.waiting:  # seen for a moment, or until another replica takes over from the one that conducted the run
        return f"all {progress.asked} sites have answered; waiting for a coordinator to close the round"
    names = ", ".join(sorted(progress.waiting))
    return f"waiting for {len(progress.waiting)} of {progress.asked} sites ({names}); gives up in {duration(seconds_left)}"


def duration(seconds: float) -> str:
    """Seconds for people."""
    for size, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {word}"
    return f"{max(seconds, 0):.0f} s"
