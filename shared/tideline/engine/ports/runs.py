"""The journal's runs: what was asked for, how far each is, and what its sites were asked and answered."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tideline.core.handle import AnyHandle
from tideline.core.run import EMPTY, ClientId, Digest, OrderId, Roster, RunId
from tideline.core.settings import Plain
from tideline.engine.model.envelopes import Envelope
from tideline.engine.model.orders import OrderRow, OrderStatus, Reply
from tideline.engine.model.runs import Event, Headline, Lease, RoundRow, RunRow, Status, Tally


@dataclass(frozen=True)
class Advance:
    """One closed round and what comes next, written in one transaction.

    sealed: the values for peers that the new state names, where it is kept. without: the sites whose failure is one of trust
    (`shut_out`), with its kind.
    """

    run: RunId
    from_cursor: int
    closed: RoundRow
    orders: tuple[OrderRow, ...]
    cursor: int
    deadline_at: float
    status: Status
    state_digest: Digest | None = None
    members: Roster | None = None
    fingerprint: str | None = None
    keep_from: int = 0  # the cursor before which replies and checkpoints are collected
    token: int | None = None  # of the writer's lease; none: nobody else conducts
    sealed: tuple[AnyHandle, ...] = ()
    without: Mapping[ClientId, str] = field(default_factory=lambda: EMPTY)

    @property
    def digests(self) -> frozenset[Digest]:
        """Every part that it refers to."""
        return frozenset(digest for files in (self.closed.state, *(o.files for o in self.orders)) for digest, _ in files)


def anything(digest: Digest) -> bool:
    """Every part is there."""
    return True


class Runs(Protocol):
    """Runs, their rounds, orders, leases and events."""

    def tally(self) -> Tally:
        """How much there is of everything."""
        ...

    def create(
        self,
        runs: Iterable[RunRow],
        orders: Iterable[OrderRow],
        by: str = "",
        here: Callable[[Digest], bool] = anything,
    ) -> None:
        """Write new runs and their first orders. `by`: who asked, as the event tells; so in `set_status` and `reopen`.

        A run refers to the weights that it begins from until its first state is kept; they may wait for another run from then
        on as if they had been uploaded now. `here`: as in `advance`. Raises ConfigRefused if they are not here.
        """
        ...

    def run(self, run: RunId) -> RunRow | None: ...

    def run_ids(self) -> tuple[RunId, ...]:
        """Every run, the oldest first; of one age, by id."""
        ...

    def headlines(self, limit: int | None = None, after: RunId | None = None) -> tuple[Headline, ...]:
        """The runs in that order, at most so many. `after`: those that follow this run; none follow one that is not there."""
        ...

    def set_status(
        self,
        run: RunId,
        among: Iterable[Status],
        status: Status,
        cause: str,
        now: float,
        token: int | None = None,
        by: str = "",
    ) -> bool:
        """Change a run's status if it is one of `among`. A final status cancels what is open. `token`: as in `advance`."""
        ...

    def reopen(
        self,
        run: RunId,
        status: Status,
        cause: str,
        now: float,
        deadline_at: float,
        orders: Iterable[OrderRow],
        by: str = "",
    ) -> bool:
        """Open a stalled run again, with a new deadline and new attempts of orders; False if it is not stalled."""
        ...

    def advance(self, step: Advance, here: Callable[[Digest], bool] = anything) -> bool:
        """Write a closed round if the run is still open at `from_cursor`; False if somebody else was first.

        An answer of one who is not among the folded came while they were folded: it is late from here on.
        `here` is asked of the parts that the step refers to and that were dropped within the last day, once no collection
        can take them any more: who wrote the step may have seen one before. Of all others its writer has seen the bytes safe.
        Raises Overtaken if the step's token is not the newest of the run's lease, and Unreachable if a part is not here.
        """
        ...

    def leases(self, run: RunId | None = None) -> tuple[Lease, ...]:
        """The leases of all open runs, or of this one if it is open."""
        ...

    def claim(self, seen: Iterable[Lease], holder: str, seconds: float) -> tuple[Lease, ...]:
        """Take those leases that are still as they were seen; they come back with their next token."""
        ...

    def renew(self, held: Iterable[Lease]) -> tuple[Lease, ...]:
        """A sign of life for each lease whose token is still the newest: these, as they are now.

        Waits for nobody: a lease that a scheduler's write holds just now lives without one.
        """
        ...

    def release(self, held: Iterable[Lease]) -> None:
        """Leave leases, those whose token is still the newest, to whoever comes."""
        ...

    def rounds(self, run: RunId) -> tuple[RoundRow, ...]: ...

    def order(self, order: OrderId) -> OrderRow | None: ...

    def orders(self, run: RunId, cursor: int | None = None) -> tuple[OrderRow, ...]: ...

    def open_orders(self, client: ClientId) -> tuple[OrderRow, ...]: ...

    def last_answer(self, run: RunId, client: ClientId) -> int:
        """The cursor of the last reply that this client gave (late ones count: the work was done), or JOIN - 1."""
        ...

    def answer(
        self,
        order: OrderId,
        reply: Reply,
        status: OrderStatus,
        now: float,
        down: int,
        up: int,
        here: Callable[[Digest], bool] = anything,
    ) -> OrderStatus | None:
        """Record the first answer to an order: the order's status afterwards, or None if a part that it needs is gone.

        An expired order stays expired. CANCELLED: the order was settled before, and nothing changes. `here`: as in `advance`.
        """
        ...

    def envelopes(self, run: RunId, handles: Collection[AnyHandle]) -> tuple[Envelope, ...]:
        """The sealed values of a run that these handles name and that are still kept.

        They are kept from the reply that brings them on, as long as a state that is kept, or an answer since, names them.
        """
        ...

    def reissue(self, orders: Iterable[OrderRow]) -> None:
        """Offer orders again under new names. One whose name is known, or whose run has ended, is left as it is."""
        ...

    def beat(self, client: ClientId, progress: Mapping[OrderId, float], now: float) -> tuple[OrderId, ...]:
        """Note progress; gives those of the orders that are no longer open."""
        ...

    def event(self, run: RunId, kind: str, data: Mapping[str, Plain], now: float) -> None: ...

    def events(self, run: RunId, after: int = 0) -> tuple[Event, ...]: ...
