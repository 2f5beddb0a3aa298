"""The totals of exchanges and of sites within a process. The journal's lock makes each change whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tideline.core.run import ClientId, RunId
from tideline.engine.model import totals
from tideline.engine.model.orders import OrderRow, OrderStatus
from tideline.engine.model.totals import RoundTotals, Scores, SiteTotals


class KeptTotals:
    """By run: the totals of each exchange, by its cursor; of each site; and the accuracies of each closed exchange."""

    def __init__(self) -> None:
        self.rounds: defaultdict[RunId, dict[int, RoundTotals]] = defaultdict(dict)
        self.sites: defaultdict[RunId, dict[ClientId, SiteTotals]] = defaultdict(dict)
        self.scores: defaultdict[RunId, dict[int, Scores]] = defaultdict(dict)
        self._attempts: dict[RunId, dict[ClientId, int]] = {}  # the newest of each client in the open exchange

    def count(self, run: RunId, cursor: int, orders: Iterable[OrderRow]) -> None:
        """Count the open exchange, to which orders were added."""
        every = tuple(orders)
        self._attempts[run] = {order.client: order.attempt for order in totals.newest(every)}
        self.rounds[run][cursor] = totals.round_totals(every)

    def reply(self, order: OrderRow) -> None:
        """Count the reply that an order has got."""
        known = self.rounds[order.run]
        is_newest = self._attempts.get(order.run, {}).get(order.client) == order.attempt
        known[order.cursor] = totals.replied(known[order.cursor], order, is_newest)
        if order.status is OrderStatus.EXPIRED:
            site = self.sites[order.run]
            site[order.client] = totals.with_late(site[order.client], order)

    def give_up(self, run: RunId, cursor: int) -> None:
        """Nobody is awaited any more."""
        if cursor in self.rounds[run]:
            self.rounds[run][cursor] = totals.given_up(self.rounds[run][cursor])

    def close(self, run: RunId, cursor: int, orders: tuple[OrderRow, ...]) -> None:
        """An exchange has closed: add what it came to."""
        site, found = self.sites[run], totals.scores(orders)
        site |= {c: totals.with_orders(site.get(c, SiteTotals()), own) for c, own in totals.by_client(orders).items()}
        if orders:
            self.rounds[run][cursor] = totals.with_scores(totals.round_totals(orders), found)
        if found:
            self.scores[run][cursor] = found
        self._attempts.pop(run, None)
