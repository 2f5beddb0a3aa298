"""What a site's owner says of runs: to approve and to decline them, as entries of the ledger that the agent reads."""

from __future__ import annotations

import getpass
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tideline.core.errors import ConfigRefused, FederationError, NotFound
from tideline.core.run import RunId
from tideline.core.settings import nearest
from tideline.engine.model.brief import Brief
from tideline.engine.site.admission import brief_in_words, facts_of
from tideline_agent.home import marks
from tideline_agent.home.held import HeldRun, brief_at, held_runs
from tideline_agent.home.ledger import APPROVED, DECLINED, FILE, FileLedger
from tideline_agent.vault import FolderVault


@dataclass(frozen=True)
class Waiting:
    """A run that waits for the owner, and those of its comparison or rehearsal that wait with it: its approval covers them."""

    run: HeldRun
    beside: tuple[HeldRun, ...] = ()


def waiting(home: Path) -> list[Waiting]:
    """What the owner has to look at, the oldest first. Runs that belong to another that waits are covered by its approval."""
    check_home(home)
    held = held_runs(home)
    names = {each.run for each in held}
    roots = [each for each in held if each.brief.intent.parent not in names]
    return [Waiting(each, tuple(other for other in held if other.brief.intent.parent == each.run)) for each in roots]


def say(home: Path, run: str, approve: bool) -> Brief:
    """Write down that a run may run, or may not. Raises NotFound for one that neither waits here nor ever worked here."""
    brief = brief_of(home, run)
    facts = {name: value for name, value in facts_of(brief).items() if name in ("by", "method", "intent", "experiment", "role")}
    FileLedger(home).record(APPROVED if approve else DECLINED, run=run, owner=getpass.getuser(), **facts)
    return brief


def in_words(brief: Brief, beside: Iterable[Brief] = ()) -> Iterator[str]:
    """What a run is and would send, a line each, and what the runs send that its approval covers, once for all of them."""
    lines = list(brief_in_words(brief))
    yield from lines
    others = list(beside)
    if others:
        methods = ", ".join(sorted({each.method for each in others}))
        yield f"with it {len(others)} runs that belong to it, of {methods}, which send beside this:"
        more = dict.fromkeys(clause.sentence() for each in others for clause in each.contract)
        yield from (line for line in more if line not in lines)


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
