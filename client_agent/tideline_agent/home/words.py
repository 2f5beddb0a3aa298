"""What a site's owner says of runs: to approve and to decline them, as entries of the ledger that the agent reads."""

from __future__ import annotations

import getpass
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tideline.core.errors import ConfigRefused, FederationError, NotFound
from tideline.core.run import RunId
from tideline.core.settings import nearest
from tideline.engine.model.brief import Brief
from tideline.engine.site.admission import facts_of
from tideline_agent.home.held import HeldRun, brief_at, held_runs
from tideline_agent.home.ledger import APPROVED, DECLINED, FILE, FileLedger
from tideline_agent.vault import FolderVault


@dataclass(frozen=True)
class Waiting:
    """A run that waits for the owner, and how many runs of its comparison or rehearsal wait with it."""

    run: HeldRun
    beside: int


def waiting(home: Path) -> list[Waiting]:
    """What the owner has to look at, the oldest first. Runs that belong to another that waits are covered by its approval."""
    check_home(home)
    held = held_runs(home)
    names = {each.run for each in held}
    roots = [each for each in held if each.brief.parent not in names]
    beside = Counter(each.brief.parent for each in held)
    return [Waiting(each, beside[each.run]) for each in roots]


def say(home: Path, run: str, approve: bool) -> Brief:
    """Write down that a run may run, or may not. Raises NotFound for one that neither waits here nor ever worked here."""
    brief = brief_of(home, run)
    facts = {name: value for name, value in facts_of(brief).items() if name in ("by", "method", "intent", "experiment", "role")}
    FileLedger(home).record(APPROVED if approve else DECLINED, run=run, owner=getpass.getuser(), **facts)
    return brief


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
    if not (home / FILE).is_file():
        raise ConfigRefused(f"{home} is not an agent's home, or its agent has not started yet", "Correct --home", path="home")
