"""What a coordinator remembers of a site's budget, so that an old home, or a new one, does not spend twice by accident.

It cannot know what was spent. It knows how far the ledger went, and the highest number of charges that the site told.
"""

from __future__ import annotations

from dataclasses import replace

from tideline.core.errors import BudgetExceeded
from tideline.engine.model.orders import Failure, OrderRow, Reply
from tideline.engine.model.runs import JOIN, RunRow
from tideline.engine.ports.journal import Journal

CHARGES = "charges"  # a fact of the join to a private run, of sites that have a budget: how often they have charged it
MOST = (1 << 31) - 1  # that are counted
TODO = (
    "Ask the site's owner to restore the newest home of the agent; or to go on without it: tideline site ledger accept, "
    "tideline site spent, and start the agent again"
)


def witnessed(journal: Journal, run: RunRow, row: OrderRow, reply: Reply, now: float) -> Reply:
    """A site's reply as it is judged: one to a private run is remembered before it counts.

    A join that tells fewer charges than the site had told when it was asked becomes a failure. Sites without a budget tell none.
    """
    if run.spec.privacy is None or reply.failure is not None:
        return reply
    total = reply.facts.get(CHARGES) if row.cursor == JOIN else None
    if type(total) is not int or not 0 <= total <= MOST:
        total = None  # a fact of another kind is refused with the join
    known = journal.client(row.client)
    before = known.charged if known is not None and known.charged is not None and (known.charged_at or 0.0) < row.created else 0
    if total is not None and total < before:
        what = f"The site has charged its budget {total} times, as it says, and told of {before} before"
        error = BudgetExceeded(what, TODO)
        return Reply(reply.order, failure=Failure(error.kind, str(error)), spent=reply.spent)
    reported = {row.client: reply.ledger} if reply.ledger.seq else {}
    if reported or total is not None:
        journal.note_ledgers(reported, {} if total is None else {row.client: (total, now)})
    if total is None:
        return reply
    return replace(reply, facts={name: value for name, value in reply.facts.items() if name != CHARGES})
