"""Standing decisions of a site's owner: always for runs that ask for the same, never for a method. Each is a ledger entry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from tideline.core.run import Digest


class Answer(StrEnum):
    """ALWAYS: runs that ask for exactly the same need no approval. NEVER: no run of the method works here."""

    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True)
class StandingDecision:
    """number: of its ledger entry. intent: the digest of all that was agreed to; empty for NEVER, which is of the method alone.

    owner: who decided, at this machine. words: the settings, for people.
    """

    number: int
    at: float
    answer: Answer
    method: str
    intent: str = ""
    by: str = ""
    owner: str = ""
    words: str = ""


def answer_in(decisions: Iterable[StandingDecision], method: str, intent: Digest) -> Answer | None:
    """What stands for a run. NEVER outweighs everything."""
    found = {
        each.answer
        for each in decisions
        if (each.method == method if each.answer is Answer.NEVER else bool(each.intent) and each.intent == intent)
    }
    return Answer.NEVER if Answer.NEVER in found else Answer.ALWAYS if found else None
