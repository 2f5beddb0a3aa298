"""For whom a round waits, and how long: the run's own rules, and the least that its exchange can work with."""

from __future__ import annotations

from dataclasses import replace

from tideline.core.algorithm import STORE_BEST, SUM_KEYS, SUM_STEPS, SUM_SURVIVORS, SUM_UNMASK, named_around, summed_by
from tideline.core.run import Waiting
from tideline.engine.model.runs import RunRow
from tideline.engine.ports.journal import Journal
from tideline.secure.graph import enough

STORE_SECONDS = 600.0  # that the last exchange of a run that selects waits: who misses it has the best that it knew of before


def waiting_of(run: RunRow, floor: int | None = None) -> Waiting:
    """The run's waiting rules. At the join everybody is awaited, for the roster is frozen there, until somebody resumes the run
    with fewer. Of a sum's last exchanges any that are enough will do: the sum is the same. floor: of the exchange, as
    `floor_of` has it.
    """
    rules = run.spec.waiting if run.quorum is None else fewer(run.spec.waiting, run.quorum)
    if run.cursor < 0:
        return Waiting(deadline=rules.deadline, held=rules.held, min_replies=run.quorum)
    step = run.fact(run.cursor).step
    if step == STORE_BEST:
        return Waiting(deadline=min(rules.deadline, STORE_SECONDS), min_replies=1)  # with its floor of 0: everybody, for a while
    if step in (SUM_SURVIVORS, SUM_UNMASK) and floor:
        return replace(rules, target_replies=floor, min_replies=floor)
    return rules


def fewer(rules: Waiting, quorum: int) -> Waiting:
    """With a quorum that somebody named since. Who waits for no more than a target waits for no more than this."""
    target = rules.target_replies
    return replace(rules, min_replies=quorum, target_replies=None if target is None else max(target, quorum))


def floor_of(run: RunRow, journal: Journal) -> int | None:
    """The open phase's own least number of replies; of an exchange of a secure sum more than two thirds of those who were asked
    for keys.
    """
    if not 0 <= run.cursor < len(run.plan):
        return None
    at = place_of_keys(run)
    if at is None:
        return run.plan[run.cursor].floor
    keys = journal.round(run.id, at) if at < run.cursor else None
    asked = journal.standing(run.id, run.cursor).asked if keys is None else len(keys.asked)
    return max(enough(asked), run.plan[run.cursor].floor or 0)


def place_of_keys(run: RunRow) -> int | None:
    """The place of the exchange of keys that the open one builds on; None where that is of no secure sum."""
    here = run.plan[run.cursor]
    if here.step not in SUM_STEPS and not is_summed(run):
        return None
    name = named_around(summed_by(here.phase, here.step), SUM_KEYS)
    return next((at for at in range(run.cursor, -1, -1) if run.plan[at].phase == name), None)


def is_summed(run: RunRow) -> bool:
    """Whether the open exchange is one of values that are summed: who remains is asked next."""
    after = run.cursor + 1
    return after < len(run.plan) and run.plan[after].step == SUM_SURVIVORS


def amid_sum(run: RunRow, journal: Journal) -> bool:
    """Whether a secure sum is under way once the open round has closed: its state is as large as the model, and soon gone. It is
    made again of the answers, where a coordinator starts anew. Where nothing is masked, there were no keys.
    """
    at = place_of_keys(run) if 0 <= run.cursor < len(run.plan) else None
    if at is None or run.plan[run.cursor].step == SUM_UNMASK:
        return False
    return at == run.cursor or journal.round(run.id, at) is not None


def lacking(run: RunRow, answered: int, floor: int | None) -> str:
    """What needs more answers than came, in words; nothing where only the run's own rules do."""
    if answered >= (floor or 0):
        return ""
    return f"; {run.plan[run.cursor].needs or 'the phase'} needs {floor}"
