"""What a site's vault says of a run beside an order: which sites it has met in it, and its memory at the best scoring."""

from __future__ import annotations

from tideline.core import errors
from tideline.core.run import ClientId
from tideline.core.settings import EMPTY
from tideline.engine.model.brief import Brief
from tideline.engine.model.orders import Order
from tideline.engine.model.runs import JOIN
from tideline.engine.peers.relay import seals
from tideline.engine.ports.site import Best, Head


def members(order: Order, brief: Brief, head: Head | None) -> tuple[ClientId, ...] | None:
    """The sites of a run whose sites seal for each other; None of any other run, and before there are any. Raises PeerRefused for
    one that came later.

    They are fixed by the first order after the join, at which everybody is awaited: who was not there then could be anybody's.
    """
    known = head.peers if head else None
    if order.cursor == JOIN or not seals(brief.contract):
        return known  # to join again is no new beginning: whoever asks for it would choose the sites anew
    shown = tuple(sorted(brief.peers))
    strangers = sorted({*shown} - {*(shown if known is None else known)})
    if strangers:
        what = f"{strangers[0]} is shown as a site of this run, and was none when it began"
        todo = "Ask whoever runs the coordinator who that is. Sites take part from the beginning: to have it, begin another run"
        raise errors.PeerRefused(what, todo, peer=strangers[0])
    return shown if known is None else known


def best_of(head: Head | None, brief: Brief) -> Best | None:
    """The site's memory at the scoring that the coordinator calls the run's best so far.

    Every order says which that is, so a memory that is newer than a scoring never hides what was kept there: the order that led
    to it told of that scoring first. Where a coordinator was set back, nobody knows it any more.
    """
    if head is None or not brief.keeps:
        return None
    if brief.best is None or (head.best is not None and head.best.cursor == brief.best):
        return head.best
    if head.cursor > brief.best:
        return None
    return Best(brief.best, head.memory, head.metrics if head.cursor == brief.best else EMPTY)
