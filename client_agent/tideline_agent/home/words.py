"""What a site's owner says of runs: to approve and to decline them, as entries of the ledger that the agent reads."""

from __future__ import annotations

import getpass
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tideline.core.errors import ConfigRefused, FederationError, NotFound, Refused
from tideline.core.run import Digest, RunId
from tideline.core.settings import Plain, nearest
from tideline.engine.model.brief import Brief
from tideline.engine.site.admission import brief_in_words, facts_of, intent_digest, shown, work_in_words
from tideline.engine.site.in_short import in_short
from tideline.engine.site.standing import Answer, StandingDecision
from tideline_agent.home import marks
from tideline_agent.home.held import HeldRun, brief_at, held_runs
from tideline_agent.home.ledger import APPROVED, DECLINED, FILE, PAUSED, RESUMED, STANDING, STANDING_ENDED, FileLedger
from tideline_agent.vault import FolderVault

CHANGED = "You approved this run before, as it asked for something else: nothing of what is new works here without your word."
METHOD = re.compile(r"[A-Za-z0-9_.-]{1,80}")


@dataclass(frozen=True)
class Question:
    """What an owner is shown before a word: a run, and those that belong to it and wait with it. The word covers these alone."""

    run: str
    brief: Brief
    beside: tuple[Brief, ...] = ()

    @property
    def intents(self) -> list[Digest]:
        return list(dict.fromkeys(map(intent_digest, (self.brief, *self.beside))))

    def words(self) -> Iterator[str]:
        return in_words(self.brief, self.beside)

    def work(self) -> Iterator[str]:
        """What it is, without what it would send."""
        yield from work_in_words(self.brief)
        if self.beside:
            yield besides(self.beside)

    def leaving(self) -> list[str]:
        """In short what all of it would send."""
        clauses = (clause for each in (self.brief, *self.beside) for clause in each.contract)
        return list(in_short(dict.fromkeys(clauses)))


@dataclass(frozen=True)
class Waiting:
    """A run that waits for the owner, and those of its comparison or rehearsal that wait with it: its approval covers them."""

    run: HeldRun
    beside: tuple[HeldRun, ...] = ()

    @property
    def question(self) -> Question:
        return Question(self.run.run, self.run.brief, tuple(each.brief for each in self.beside))

    def words(self, ledger: FileLedger) -> Iterator[str]:
        """What an owner reads before a word. Some was approved before: then that comes first."""
        yield from self.before(ledger)
        yield from self.question.words()

    def work(self, ledger: FileLedger) -> Iterator[str]:
        """The same without what would be sent."""
        yield from self.before(ledger)
        yield from self.question.work()

    def before(self, ledger: FileLedger) -> Iterator[str]:
        if ledger.approved_before(self.run.run):
            yield CHANGED


def waiting(home: Path) -> list[Waiting]:
    """What the owner has to look at, the oldest first. Runs that belong to another that waits are covered by its approval."""
    check_home(home)
    held = held_runs(home)
    names = {each.run for each in held}
    roots = [each for each in held if each.brief.intent.parent not in names]
    return [Waiting(each, tuple(other for other in held if other.brief.intent.parent == each.run)) for each in roots]


def question(home: Path, run: str, shown: Collection[str] | None = None) -> Question:
    """What there is to say a word to. Raises NotFound for a run that neither waits here nor ever worked here.

    shown: the intents that the owner has read. What came beside the run since then is left out; Refused where the run itself
    asks for something else now.
    """
    found = Question(run, brief_of(home, run), covered(home, run))
    if shown is None:
        return found
    if intent_digest(found.brief) not in shown:
        raise Refused(f"What {run[:80]} asks for has changed since it was shown", "Read again what it asks for, then decide")
    return replace(found, beside=tuple(each for each in found.beside if intent_digest(each) in shown))


def approve(home: Path, asked: Question) -> None:
    """Let a run work, and those beside it; for a policy that asks about what is new, all that ask for the same, too."""
    record_word(home, APPROVED, asked, "by", "method", "intent", "experiment", "role")


def approve_once(home: Path, asked: Question) -> None:
    """Let a run work, and by that nothing else: what asks for the same is asked about again, however the policy asks."""
    record_word(home, APPROVED, asked, "by", "method", "experiment", "role", once=True)


def decline(home: Path, asked: Question) -> None:
    """Let a run not work, whatever it asks for."""
    record_word(home, DECLINED, asked, "by", "method", "intent", "experiment", "role")


def record_word(home: Path, kind: str, asked: Question, *names: str, **more: Plain) -> None:
    """An entry of a word; an approval names by digests all that it covers."""
    facts = {name: value for name, value in facts_of(asked.brief).items() if name in names}
    covers = {"covers": asked.intents} if kind == APPROVED else {}
    FileLedger(home).record(kind, run=asked.run, owner=getpass.getuser(), **more, **facts, **covers)


def approve_always(home: Path, asked: Question) -> None:
    """Let a run work, and from now on all that ask for exactly the same. Raises Refused where its method never may."""
    method = asked.brief.method
    if any(each.answer is Answer.NEVER and each.method == method for each in FileLedger(home).standing()):
        what = f"You said that the method {method} never works here"
        raise Refused(what, "End that decision first, see `tideline site standing list`")
    approve_once(home, asked)
    ledger = FileLedger(home)
    for each in (asked.brief, *asked.beside):  # those that belong to it will belong to the next one, too
        settings = ", ".join(f"{name}: {shown(value)}" for name, value in each.config.items())
        asks = {"method": each.method, "intent": intent_digest(each), "by": each.intent.by, "words": settings}
        ledger.record(STANDING, run=asked.run, answer=Answer.ALWAYS.value, owner=getpass.getuser(), **asks)


def never(home: Path, method: str) -> None:
    """Let no run of a method work here any more, also none that was approved. Raises ConfigRefused."""
    check_home(home)
    if not METHOD.fullmatch(method):
        raise ConfigRefused(
            f"{method[:80]!r} cannot name a method", "Use a name as runs have it: letters, digits, dots and dashes", path="method"
        )
    FileLedger(home).record(STANDING, answer=Answer.NEVER.value, method=method, owner=getpass.getuser())


def end_decision(home: Path, number: int) -> StandingDecision:
    """End a standing decision: from now on such runs are asked about again. Raises NotFound."""
    check_home(home)
    ledger = FileLedger(home)
    found = next((each for each in ledger.standing() if each.number == number), None)
    if found is None:
        raise NotFound(f"No standing decision {number} is in force here", "See `tideline site standing list`")
    ledger.record(STANDING_ENDED, decision=number, owner=getpass.getuser(), method=found.method)
    return found


def pause(home: Path, on: bool) -> None:
    """Have the agent begin nothing from now on, or go on. Raises Refused where it is so already."""
    check_home(home)
    ledger = FileLedger(home)
    if ledger.paused() is on:
        raise Refused(f"This site is {'paused already' if on else 'not paused'}", "Nothing is to be done")
    ledger.record(PAUSED if on else RESUMED, owner=getpass.getuser())


def in_words(brief: Brief, beside: Iterable[Brief] = ()) -> Iterator[str]:
    """What a run is and would send, a line each, and what the runs send that its approval covers, once for all of them."""
    lines = list(brief_in_words(brief))
    yield from lines
    others = list(beside)
    if others:
        yield f"{besides(others)}, which send beside this:"
        more = dict.fromkeys(clause.sentence() for each in others for clause in each.contract)
        yield from (line for line in more if line not in lines)


def besides(others: Sequence[Brief]) -> str:
    methods = ", ".join(sorted({each.method for each in others}))
    return f"with it {len(others)} runs that belong to it, of {methods}"


def covered(home: Path, run: str) -> tuple[Brief, ...]:
    """The runs that wait here and belong to a run."""
    return tuple(each.brief for each in held_runs(home) if each.brief.intent.parent == run)


def brief_of(home: Path, run: str) -> Brief:
    """What a run is that waits here, or has worked here. Raises NotFound."""
    check_home(home)
    held = {each.run: each for each in held_runs(home)}
    if RunId(run) in held:
        return held[RunId(run)].brief
    vault = FolderVault(home / "runs")
    try:
        return brief_at(run, dict(vault.brief(RunId(run))))  # type: ignore[arg-type]
    except (FederationError, OSError):
        names = sorted({*held, *vault.runs()})
        what = f"There is no run {run[:80]!r} in this home, neither one that waits nor one that worked"
        raise NotFound(what, f"See `tideline site pending`{nearest(run, names)}") from None


def check_home(home: Path) -> None:
    marks.check(home)
    if not (home / FILE).is_file():
        raise ConfigRefused(f"{home} is not an agent's home, or its agent has not started yet", "Correct --home", path="home")
