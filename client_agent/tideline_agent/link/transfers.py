"""The transfers of parts that are under way, by their orders: those of an order that was given up end at once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from tideline.core.errors import Cancelled
from tideline.core.run import OrderId


class Transfers:
    """Any number of threads; at most one transfer for each order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[OrderId, Any] = {}
        self._given_up: set[OrderId] = set()

    def give_up(self, order: OrderId) -> None:
        """Nothing is transferred for an order any more."""
        with self._lock:
            self._given_up.add(order)
            call = self._calls.get(order)
        if call is not None:
            call.cancel()

    def forget(self, order: OrderId) -> None:
        """An order's life is over."""
        with self._lock:
            self._given_up.discard(order)

    def check(self, order: OrderId) -> None:
        """Raises Cancelled for an order that was given up."""
        if order in self._given_up:
            raise Cancelled(f"Order {order[:8]} was withdrawn")

    @contextlib.contextmanager
    def under(self, order: OrderId | None, call: Any) -> Iterator[None]:
        """A call that transfers for an order, as long as the block lasts. Whatever giving it up looks like is Cancelled."""
        if order is None:
            yield
            return
        with self._lock:
            self._calls[order] = call
        try:
            self.check(order)
            yield
        except Exception:
            if order in self._given_up:
                call.cancel()
            self.check(order)
            raise
        finally:
            with self._lock:
                self._calls.pop(order, None)
