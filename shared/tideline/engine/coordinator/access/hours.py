"""What is taken of what sites say that their steps took."""

from __future__ import annotations

from dataclasses import replace

from tideline.core.notes import SPENT_CLIPPED, Note
from tideline.engine.model.access.projects import EVERY, Project, within
from tideline.engine.model.access.spending import Spending, Spent, bounded, month_of
from tideline.engine.model.orders import OrderRow, Reply
from tideline.engine.model.runs import JOIN
from tideline.engine.model.said.stages import STAGES, placed
from tideline.engine.ports.clock import Clock
from tideline.engine.ports.journal import Journal


def accounted(journal: Journal, row: OrderRow, reply: Reply, now: float) -> tuple[Reply, Note | None]:
    """The reply to an order, with what is counted of it; and a note where that is less than the reply says."""
    if reply.spent is None:
        return reply, None
    asked = asked_for(journal, row, reply.spent)
    if asked is not row and asked.answered is not None:
        return replace(reply, spent=Spent()), None
    spent = bounded(reply.spent, max(now - asked.created, 0.0))
    whole = (spent.gpu, spent.cpu) == (reply.spent.gpu, reply.spent.cpu)
    note = None if whole else Note(SPENT_CLIPPED, {"gpu_seconds": spent.gpu, "cpu_seconds": spent.cpu})
    return replace(reply, spent=spent), note


def noted(row: OrderRow, reply: Reply, now: float) -> Reply:
    """The reply with what is noted with its order: when its stages began, and what a join tells of policy and data."""
    facts = dict(reply.facts)
    if (times := placed(reply.stages, row.created, now)) is not None:
        facts[STAGES] = times
    if row.cursor == JOIN and reply.disclosed is not None and reply.failure is None:
        facts |= reply.disclosed.facts()
    return replace(reply, facts=facts) if facts != reply.facts else reply


def used_hours(journal: Journal, clock: Clock, scope: str = EVERY) -> tuple[tuple[Project, Spending], ...]:
    """What the projects that are seen in a scope have spent in this month; those that were removed are left out."""
    month = month_of(clock.now())
    seen = [each for each in journal.projects() if each.ended is None and within(scope, each.name)]
    spent = journal.spent_in([each.name for each in seen], month)
    return tuple((each, spent[each.name]) for each in seen)


def asked_for(journal: Journal, row: OrderRow, spent: Spent) -> OrderRow:
    """The order that the step ran for: an earlier attempt of this one, or this one itself."""
    if spent.order in ("", row.id):
        return row
    found = journal.order(spent.order)
    same = found is not None and (found.run, found.cursor, found.client) == (row.run, row.cursor, row.client)
    return found if found is not None and same else row
