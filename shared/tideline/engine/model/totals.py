"""What a journal keeps of a run's orders, so that nobody counts them again: totals of each exchange, and of each site.

The open exchange's totals follow each reply. What its orders mean for its sites is added when it closes; from then on only the
bytes of late replies change.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

from tideline.core.run import ClientId
from tideline.core.settings import EMPTY
from tideline.engine.model.orders import Failure, OrderRow, OrderStatus
from tideline.engine.model.runs import JOIN

ACCURACY = re.compile(r"accuracy(_\w+)?|source_only")  # metrics that a site tells only of rows whose labels it has
MISSED = (OrderStatus.FAILED, OrderStatus.EXPIRED)
Scores = tuple[tuple[ClientId, float], ...]  # accuracies in 0..1, sorted by client


@dataclass(frozen=True)
class OrderLine:
    """An order in one line: what becomes of it, without what was sent."""

    cursor: int
    client: ClientId
    attempt: int
    status: OrderStatus
    progress: float
    beat: float
    metrics: Mapping[str, float]
    failure: Failure | None
    answered: float | None
    bytes_down: int
    bytes_up: int
    held: str = ""


@dataclass(frozen=True)
class OrderTimes:
    """What became of an order, and when. stages: when fetching, computing and sending began, where the site has told."""

    cursor: int
    client: ClientId
    attempt: int
    status: OrderStatus
    held: str
    created: float
    beat: float
    answered: float | None
    progress: float
    bytes_down: int
    bytes_up: int
    failure: Failure | None
    stages: list[float] | None = None


AnyOrder = OrderRow | OrderLine
SomeOrder = TypeVar("SomeOrder", bound=AnyOrder)


@dataclass(frozen=True)
class RoundTotals:
    """An exchange: how many sites' newest orders stand how, and the bytes of all attempts.

    scored, accuracy: how many sites told an accuracy, and its mean over them; known once the exchange has closed.
    """

    open: int = 0
    answered: int = 0
    failed: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    scored: int = 0
    accuracy: float | None = None

    @property
    def asked(self) -> int:
        return self.open + self.answered + self.failed


@dataclass(frozen=True)
class SiteTotals:
    """A site in a run: bytes of all of its orders, the newest value of each metric, and the cursor of its last reply.

    answered, scored: how many orders after the join it has answered, and with how many of these answers it told an accuracy.
    """

    bytes_down: int = 0
    bytes_up: int = 0
    metrics: Mapping[str, float] = field(default_factory=lambda: EMPTY)
    answered: int = 0
    scored: int = 0
    last: int = JOIN - 1


def times_of(order: OrderRow) -> OrderTimes:
    return OrderTimes(**{each.name: getattr(order, each.name) for each in fields(OrderTimes)})


def line_of(order: OrderRow) -> OrderLine:
    return OrderLine(
        cursor=order.cursor,
        client=order.client,
        attempt=order.attempt,
        status=order.status,
        progress=order.progress,
        beat=order.beat,
        metrics=order.metrics,
        failure=order.failure,
        answered=order.answered,
        bytes_down=order.bytes_down,
        bytes_up=order.bytes_up,
        held=order.held,
    )


def newest(orders: Iterable[SomeOrder]) -> tuple[SomeOrder, ...]:
    """The last attempt of each client, sorted by client."""
    latest: dict[ClientId, SomeOrder] = {}
    for order in sorted(orders, key=lambda o: (o.client, o.attempt)):
        latest[order.client] = order
    return tuple(latest.values())


def round_totals(orders: Iterable[SomeOrder]) -> RoundTotals:
    """The totals of an exchange, from all of its orders."""
    every = tuple(orders)
    latest = newest(every)
    waiting, answered = (sum(o.status is s for o in latest) for s in (OrderStatus.OPEN, OrderStatus.ANSWERED))
    return RoundTotals(
        open=waiting,
        answered=answered,
        failed=len(latest) - waiting - answered,
        bytes_down=sum(o.bytes_down for o in every),
        bytes_up=sum(o.bytes_up for o in every),
    )


def with_scores(totals: RoundTotals, found: Scores) -> RoundTotals:
    return replace(totals, scored=len(found), accuracy=mean(found))


def scores(orders: Iterable[AnyOrder]) -> Scores:
    """Who told which accuracy. Sorted, so that a mean does not depend on the order of arrival."""
    scored = (o for o in orders if o.status is OrderStatus.ANSWERED and "accuracy" in o.metrics)
    return tuple((o.client, o.metrics["accuracy"]) for o in sorted(scored, key=lambda o: (o.client, o.attempt)))


def mean(found: Scores) -> float | None:
    return sum(accuracy for _, accuracy in found) / len(found) if found else None


def replied(totals: RoundTotals, order: AnyOrder, is_newest: bool) -> RoundTotals:
    """The totals after the first reply to an order, as it is then."""
    moves = int(is_newest and order.status is not OrderStatus.EXPIRED)
    right = moves * (order.status is OrderStatus.ANSWERED)
    return replace(
        totals,
        open=totals.open - moves,
        answered=totals.answered + right,
        failed=totals.failed + moves - right,
        bytes_down=totals.bytes_down + order.bytes_down,
        bytes_up=totals.bytes_up + order.bytes_up,
    )


def given_up(totals: RoundTotals) -> RoundTotals:
    """The totals of an exchange that is over: nobody is awaited any more."""
    return replace(totals, open=0, failed=totals.failed + totals.open)


def with_orders(known: SiteTotals, orders: Iterable[AnyOrder]) -> SiteTotals:
    """A site's totals with its orders of one more exchange."""
    own = sorted(orders, key=lambda o: (o.cursor, o.attempt))
    right = [o for o in own if o.status is OrderStatus.ANSWERED]
    steps = [o for o in right if o.cursor != JOIN]
    metrics = dict(known.metrics)
    for order in right:
        metrics |= order.metrics
    return SiteTotals(
        bytes_down=known.bytes_down + sum(o.bytes_down for o in own),
        bytes_up=known.bytes_up + sum(o.bytes_up for o in own),
        metrics=metrics,
        answered=known.answered + len(steps),
        scored=known.scored + sum(any(map(ACCURACY.fullmatch, o.metrics)) for o in steps),
        last=max([known.last, *(o.cursor for o in own if worked(o))]),
    )


def with_late(known: SiteTotals, order: AnyOrder) -> SiteTotals:
    """A site's totals with a reply to an exchange that has closed."""
    down, up = known.bytes_down + order.bytes_down, known.bytes_up + order.bytes_up
    return replace(known, bytes_down=down, bytes_up=up, last=max(known.last, order.cursor) if worked(order) else known.last)


def worked(order: AnyOrder) -> bool:
    """Whether a site has done what it was asked, in time or not."""
    return order.answered is not None and order.failure is None


def by_client(orders: Iterable[SomeOrder]) -> dict[ClientId, list[SomeOrder]]:
    groups: defaultdict[ClientId, list[SomeOrder]] = defaultdict(list)
    for order in orders:
        groups[order.client].append(order)
    return groups
