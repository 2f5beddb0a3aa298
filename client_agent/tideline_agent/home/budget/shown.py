"""What a site's owner sees of budgets, and says of them."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tideline.core.errors import ConfigRefused, NotFound
from tideline.core.run import RunId
from tideline.core.settings import nearest
from tideline.engine.epsilon.budget import RELEASED, STATED, Limit, Standing, standing
from tideline.engine.site.rules import POPULATION, PrivacyRules
from tideline_agent.home.budget.accounting import close_bound
from tideline_agent.home.ledger import FileLedger, lacking
from tideline_agent.home.obeyed import in_force
from tideline_agent.policy_file import SitePolicy


@dataclass(frozen=True)
class Shown:
    """budgets: of each population and limit. words: whose policy sets the limits. uncharged: runs that began here and were
    charged to no budget. behind: whether the ledger lacks entries that the coordinator was told of.
    """

    budgets: tuple[Standing, ...]
    words: str
    uncharged: int
    behind: bool


def shown(home: Path, ledger: FileLedger | None = None) -> Shown:
    """The budgets of a home. Raises ConfigRefused for a damaged note of its policy."""
    ledger, judge = ledger or FileLedger(home), in_force(home)
    found = found_in(judge.policy, ledger)
    return Shown(found, judge.words, ledger.uncharged(), lacking(home) is not None)


def standings(home: Path, ledger: FileLedger) -> tuple[Standing, ...]:
    """The same budgets alone."""
    return found_in(in_force(home).policy, ledger)


def found_in(policy: SitePolicy, ledger: FileLedger) -> tuple[Standing, ...]:
    budgets, limits, close = ledger.budgets(), list(limits_of(policy)), close_bound()
    free = sorted({*budgets.populations()} - {each.population for each in limits})
    found = [standing(budgets, each.population, each.epsilon, each.delta, close, each.unit) for each in limits]
    found += [standing(budgets, name, None, PrivacyRules().delta, close) for name in free]
    return tuple(found)


def limits_of(policy: SitePolicy) -> Iterator[Limit]:
    """The budgets that a policy sets, those of its projects among them, each once."""
    said = (each.rules.privacy.limit for each in (policy, *policy.projects.values()))
    yield from dict.fromkeys(each for each in said if each is not None)


def state(home: Path, epsilon: float, delta: float, population: str) -> None:
    """Write down what the owner says was spent beside what the ledger tells. Raises ConfigRefused."""
    if not 0 <= epsilon < float("inf"):
        what = f"An epsilon of {epsilon} cannot have been spent"
        raise ConfigRefused(what, "Write 0 or more; 0 if nothing was spent", path="epsilon")
    if not 0 <= delta < 1:
        raise ConfigRefused(
            f"delta is {delta}; it should be 0 or more, and less than 1", "Write the delta of epsilon", path="delta"
        )
    if not POPULATION.fullmatch(population):
        raise ConfigRefused(f"{population[:80]!r} names no population", "Write it as the policy does", path="population")
    FileLedger(home).record(STATED, population=population, epsilon=epsilon, delta=delta, owner=getpass.getuser())


def release(home: Path, run: str) -> None:
    """Free what a run reserved and was not charged, by the owner's word. Raises NotFound where it reserves nothing."""
    ledger = FileLedger(home)
    known = ledger.open_accounts()
    if RunId(run) not in known:
        raise NotFound(f"Run {run[:80]} reserves nothing here", f"See `tideline site budget`{nearest(run, known)}")
    ledger.record(RELEASED, run=run, owner=getpass.getuser())
