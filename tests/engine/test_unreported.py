"""What a reply may bring, and a client in all, before it is reported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.crowd import Crowd
from tideline.archive.errors import TooLarge, Undeclared
from tideline.core.asked.world import World
from tideline.core.errors import TooMany
from tideline.core.privacy import TO_COORDINATOR, Clause, Exposure
from tideline.core.run import Digest, OrderId
from tideline.engine.coordinator.unreported import SLACK_BYTES, TIMES, Allowance, Unreported, most_bytes
from tideline.engine.model.orders import Arrivals

CROWD = Crowd(2, 2)
RUN = CROWD.row()
JOIN_ORDER, ORDER = CROWD.orders(-1)[0], CROWD.orders(0)[0]
ELSE = 5000


def clause(dims: str, field: str = "model", exposure: Exposure = Exposure.WEIGHTS) -> Clause:
    return Clause("train", "train", field, dims, exposure, TO_COORDINATOR)


@pytest.mark.parametrize(
    ("clauses", "most"),
    [
        ((clause("like model"),), TIMES * sum(size for _, size in ORDER.files) + SLACK_BYTES),
        ((clause("d 3"), clause("", "rows", Exposure.COUNT)), TIMES * 8 * (7 * 3 + 1) + SLACK_BYTES),
        ((clause("like model"), clause("n"),), ELSE),
        ((clause("d", "each.*.mean"),), ELSE),
        ((clause(""),), ELSE),
        ((clause("", "metrics.loss", Exposure.METRIC),), SLACK_BYTES),
        ((replace(clause("n"), phase="other"),), SLACK_BYTES),
    ],
)  # fmt: skip
def test_what_a_contract_bounds(clauses: tuple[Clause, ...], most: int) -> None:
    """Weights like those that were sent, sizes that the world names, numbers; where one is unknown, nothing is bounded."""
    run = replace(RUN, contract=clauses, spec=replace(RUN.spec, world=World((4,), 2, sizes={"d": 7})))
    assert most_bytes(run, ORDER, ELSE) == most


def parts(first: int, count: int, size: int) -> Arrivals:
    return tuple((Digest(f"{at:064x}"), size, 0) for at in range(first, first + count))


def test_a_join_has_no_bytes() -> None:
    """None at all."""
    with pytest.raises(Undeclared, match="brings no files"):
        Unreported(Allowance()).announce(RUN, JOIN_ORDER, parts(0, 1, 1))


def test_an_order_has_so_many() -> None:
    """The same part again counts once; others come on top, however small each push is."""
    book, open_ended = Unreported(Allowance(reply=100)), replace(RUN, contract=(clause("n"),))
    for _ in range(3):
        book.announce(open_ended, ORDER, parts(0, 1, 60))
    book.announce(open_ended, ORDER, parts(1, 1, 40))
    with pytest.raises(TooLarge, match="101 bytes in 3 parts"):
        book.announce(open_ended, ORDER, parts(2, 1, 1))


def test_a_client_has_so_many() -> None:
    """Over all its orders, until they are over; another client's do not count."""
    book, open_ended = Unreported(Allowance(reply=100, client=150)), replace(RUN, contract=(clause("n"),))
    other, elses = replace(ORDER, id=OrderId("other")), CROWD.orders(0)[1]
    book.announce(open_ended, ORDER, parts(0, 1, 100))
    book.announce(open_ended, elses, parts(0, 1, 100))
    with pytest.raises(TooMany, match="has pushed 100 bytes"):
        book.announce(open_ended, other, parts(1, 1, 51))
    assert set(book.orders(1000.0)) == {ORDER.id, elses.id} and not book.overdue(1001.0) and book.overdue(1006.0)
    assert book.over(ORDER.id) is not None and book.over(ORDER.id) is None
    book.announce(open_ended, other, parts(1, 1, 51))
