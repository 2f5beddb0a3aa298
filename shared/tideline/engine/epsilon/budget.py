"""Budgets of populations of rows: what was spent, what is reserved, and whether more fits. Pure: a ledger has the entries.

A run reserves all that its plan costs before any work. Each step is charged before it begins: out of what is reserved, and beyond
that only what still fits. So the charges of a population never cost more than its owner allows, whatever is asked in which order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isinf
from typing import Any

from tideline.core.asked.private import ROW, Charge, together
from tideline.core.errors import BudgetExceeded
from tideline.core.run import RunId
from tideline.core.settings import Plain
from tideline.engine.epsilon.renyi import Bound, renyi_epsilon

RESERVED, CHARGED, RELEASED, STATED = "reserved", "charged", "released", "budget_stated"  # kinds of a ledger's entries
FAR = 2.5  # times what is wanted, beyond which no closer bound comes down to it
MOST_CLOSE = 20  # runs that are each counted as closely as all of them together
MOST_KINDS = 64  # of charges, beyond which a closer bound takes too long
Counts = Counter[tuple[float, float]]  # how often, by noise and rate
Facts = dict[str, Plain]


@dataclass(frozen=True)
class Limit:
    """What a site's owner lets the rows of a population be charged, over all runs; or its units of several rows."""

    population: str
    epsilon: float
    delta: float
    unit: str = ROW


@dataclass
class Account:
    """Of a run: the rows that it is charged to, what it may still be charged of what it reserved, what it was charged, and where.

    places: digests of all that a step's answer follows from; the same again costs nothing. whole: what it reserved last.
    """

    population: str
    whole: Counts = field(default_factory=Counter)
    rest: Counts = field(default_factory=Counter)
    spent: Counts = field(default_factory=Counter)
    places: set[str] = field(default_factory=set)


@dataclass
class Budgets:
    """All that a ledger's entries come to.

    stated: what the owner said was spent beside, as epsilon and delta. lost: whether entries are gone, so that only the owner can
    say what was spent; cleared: of whom that was said since. charges: how many there are. units: for what each population was
    charged, where that was not each row. admitted: the most that was found to fit, and into what.
    """

    accounts: dict[str, Account] = field(default_factory=dict)
    spent: dict[str, Counts] = field(default_factory=dict)
    stated: dict[str, tuple[float, float]] = field(default_factory=dict)
    lost: bool = False
    cleared: set[str] = field(default_factory=set)
    charges: int = 0
    units: dict[str, set[str]] = field(default_factory=dict)
    admitted: dict[str, tuple[Limit, Counts]] = field(default_factory=dict, compare=False)

    def take(self, kind: str, run: str, details: Mapping[str, Any]) -> None:
        """One more entry of the ledger."""
        population = str(details.get("population", ""))
        if kind == RESERVED:
            account = self.accounts.setdefault(run, Account(population))
            account.population = population
            account.whole = counts_in(details["charges"])
            account.rest = account.whole.copy()
        elif kind == CHARGED:
            account = self.accounts.setdefault(run, Account(population))
            found = counts_in(details["charges"])
            account.rest = account.rest - found
            account.spent.update(found)
            account.places.add(str(details["place"]))
            self.charges += 1
            self.spent.setdefault(population, Counter()).update(found)
            self.units.setdefault(population, set()).add(str(details.get("unit", ROW)))
        elif kind == RELEASED and run in self.accounts:
            self.accounts[run].rest = Counter()
            self.accounts[run].places = set()
        elif kind == STATED:
            self.stated[population] = float(details["epsilon"]), float(details["delta"])
            self.admitted.pop(population, None)
            self.cleared.add(population)

    def lose(self) -> None:
        """Entries are gone: until the owner says what was spent, nothing is known to be left."""
        self.lost, self.cleared = True, set()

    def unknown(self, population: str) -> bool:
        """Whether nobody knows what was spent."""
        return self.lost and population not in self.cleared

    def charged_for(self, population: str) -> set[str]:
        """What a population was charged for: each row, or each unit by its word."""
        return self.units.get(population, {ROW} if self.spent.get(population) else set())

    def populations(self) -> list[str]:
        return sorted({*self.spent, *self.stated, *(each.population for each in self.accounts.values())})

    def open_accounts(self) -> tuple[RunId, ...]:
        """Runs that are not over, as far as the entries tell."""
        return tuple(RunId(run) for run, account in self.accounts.items() if account.rest or account.places)

    def charged(self, population: str) -> Counts:
        return self.spent.get(population, Counter())

    def reserved(self, population: str, but: str = "") -> Counts:
        """What all runs may still be charged of what they reserved; but: without this one."""
        mine = (each.rest for run, each in self.accounts.items() if each.population == population and run != but)
        return sum(mine, Counter())


def reserve(budgets: Budgets, run: RunId, limit: Limit, whole: Sequence[Charge], close: Bound | None = None) -> Facts | None:
    """The entry by which a run reserves its plan; None where it has. Raises BudgetExceeded where that is more than is left."""
    known, wanted = budgets.accounts.get(run), counts_of(whole)
    if known is not None and known.population == limit.population and known.whole == wanted and known.rest:
        return None
    check(budgets, limit, wanted, budgets.reserved(limit.population, but=run), close)
    return {"population": limit.population, "charges": plain_counts(wanted), **unit_of(limit)}


def charge(
    budgets: Budgets, run: RunId, limit: Limit, costs: Sequence[Charge], place: str, close: Bound | None = None
) -> Facts | None:
    """The entry by which a step is charged; None where its place was. Raises BudgetExceeded where it was not reserved, and does
    not fit.
    """
    account = budgets.accounts.get(run, Account(limit.population))
    if place in account.places:
        return None
    wanted, reserved = counts_of(costs), Counts()
    if account.population != limit.population or wanted - account.rest:  # more than it reserved
        reserved = budgets.reserved(limit.population, but=run)
        reserved += account.rest - wanted if account.population == limit.population else Counts()
    check(budgets, limit, wanted, reserved, close)
    return {"population": limit.population, "place": place, "charges": plain_counts(wanted), **unit_of(limit)}


def unit_of(limit: Limit) -> Facts:
    """What an entry says of the unit that it is for; nothing where that is each row."""
    return {} if limit.unit == ROW else {"unit": limit.unit}


def check(budgets: Budgets, limit: Limit, wanted: Counts, reserved: Counts, close: Bound | None) -> None:
    """Raises BudgetExceeded where what is wanted does not fit beside what was spent and is reserved."""
    if budgets.unknown(limit.population):
        what = "Entries of this site's ledger are gone, so nobody knows what private runs have spent of its rows"
        todo = "Ask the site's owner, who can restore the newest home, or say what was spent: tideline site spent"
        raise BudgetExceeded(what, todo, population=limit.population)
    if others := sorted(budgets.charged_for(limit.population) - {limit.unit}):
        whose = " and ".join(f"each {unit}" for unit in others)
        what = f"This site's budget was charged for {whose} before; what that cost each {limit.unit} cannot be known"
        todo = "Ask the site's owner: another [privacy] population, and tideline site spent for what was spent of it before"
        raise BudgetExceeded(what, todo, population=limit.population, rules=["[privacy] unit"])
    before = budgets.charged(limit.population) + reserved
    into, most = budgets.admitted.get(limit.population, (None, Counts()))
    if into == limit and before + wanted <= most:
        return
    if cost(budgets, limit, before + wanted, close, enough=limit.epsilon) <= limit.epsilon:
        budgets.admitted[limit.population] = limit, before + wanted
        return
    left = max(limit.epsilon - cost(budgets, limit, before, close), 0.0)
    asks = epsilon_of(charges_of(wanted), limit.delta, close)
    what = f"The budget of this site's {limit.unit}s is epsilon {limit.epsilon:g} at delta {limit.delta:g}: {shown(left)} is left"
    what += f", and the run asks for {shown(asks, up=True)} more"
    todo = "Ask for less: a smaller epsilon, fewer rounds or fewer scorings; or ask the site's owner: tideline site budget"
    raise BudgetExceeded(what, todo, population=limit.population, left=left, asks=asks, rules=["[privacy] epsilon"])


def cost(budgets: Budgets, limit: Limit, counts: Counts, close: Bound | None = None, enough: float = 0.0) -> float:
    """The epsilon of charges to a population, at the limit's delta, on top of what its owner said was spent before."""
    stated, delta = budgets.stated.get(limit.population, (0.0, 0.0))
    if delta >= limit.delta:
        return inf
    return stated + epsilon_of(charges_of(counts), limit.delta - delta, close, enough - stated)


def epsilon_of(charges: tuple[Charge, ...], delta: float, close: Bound | None = None, enough: float = 0.0) -> float:
    """An upper bound of the epsilon. close: one that takes longer, asked where the first is more than enough, and may not be.

    enough: 0 asks for the closest.
    """
    found = renyi_epsilon(charges, delta)
    if close is None or found <= enough or len(charges) > MOST_KINDS or found > (FAR * enough if enough > 0 else 100.0):
        return found
    return min(found, close(charges, delta))


@dataclass(frozen=True)
class Standing:
    """A population as its owner sees it. left: what a run may still ask for, at least; None where no limit is set.

    spent, reserved: epsilons, at the delta; None where no epsilon bounds it. stated: of what was spent, by the owner's word.
    lost: whether nobody knows what was spent. unit: for what it is charged: each row, or each unit of several rows.
    """

    population: str
    spent: float | None
    reserved: float | None
    stated: float
    epsilon: float | None
    delta: float
    left: float | None
    lost: bool
    runs: tuple[RunStanding, ...] = ()
    unit: str = ROW


@dataclass(frozen=True)
class RunStanding:
    """What a run has spent of a population, alone, and what of its reservation was not charged."""

    run: RunId
    spent: float | None
    reserved: float | None


def standing(
    budgets: Budgets, population: str, epsilon: float | None, delta: float, close: Bound | None = None, unit: str = ""
) -> Standing:
    """A population's budget, with each of its runs. epsilon: the limit, if there is one. unit: of the limit; else as charged."""
    limit = Limit(population, inf if epsilon is None else epsilon, delta)
    charged, reserved = budgets.charged(population), budgets.reserved(population)
    spent, both = cost(budgets, limit, charged, close), cost(budgets, limit, charged + reserved, close)
    mine = [(run, each) for run, each in budgets.accounts.items() if each.population == population]
    closer = close if len(mine) <= MOST_CLOSE else None
    return Standing(
        population=population,
        spent=finite(spent),
        reserved=0.0 if not reserved else None if isinf(both) else max(both - spent, 0.0),
        stated=budgets.stated.get(population, (0.0, 0.0))[0],
        epsilon=epsilon,
        delta=delta,
        left=None if epsilon is None else 0.0 if budgets.unknown(population) else max(epsilon - both, 0.0),
        lost=budgets.unknown(population),
        runs=tuple(RunStanding(RunId(run), *own_costs(each, delta, closer)) for run, each in mine),
        unit=unit or " and ".join(sorted(budgets.charged_for(population))) or ROW,
    )


def own_costs(account: Account, delta: float, close: Bound | None) -> tuple[float | None, float | None]:
    spent, rest = (epsilon_of(charges_of(each), delta, close) for each in (account.spent, account.rest))
    return finite(spent), finite(rest)


def finite(epsilon: float) -> float | None:
    return None if isinf(epsilon) else epsilon


def shown(epsilon: float, up: bool = False) -> str:
    """An epsilon in three digits or so: what is left rounded down, what is asked rounded up."""
    if epsilon in (0.0, inf):
        return f"{epsilon:g}"
    return f"{epsilon + 0.0005:.3f}" if up else f"{max(epsilon - 0.0005, 0.0):.3f}"


def counts_of(charges: Iterable[Charge]) -> Counts:
    return Counter({(each.noise, each.rate): each.times for each in together(charges)})


def charges_of(counts: Counts) -> tuple[Charge, ...]:
    return together(Charge(noise, rate, times) for (noise, rate), times in counts.items())


def plain_counts(counts: Counts) -> list[Plain]:
    return [[noise, rate, times] for (noise, rate), times in sorted(counts.items())]


def counts_in(raw: Iterable[Sequence[float]]) -> Counts:
    return Counter({(float(noise), float(rate)): int(times) for noise, rate, times in raw})


def plain_budgets(budgets: Budgets) -> Facts:
    """As plain data, for the summary of a ledger."""
    return {
        "accounts": {
            run: {
                "population": each.population,
                **{name: plain_counts(getattr(each, name)) for name in ("whole", "rest", "spent")},
                "places": list[Plain](sorted(each.places)),
            }
            for run, each in budgets.accounts.items()
        },
        "spent": {name: plain_counts(each) for name, each in budgets.spent.items()},
        "stated": {name: list[Plain](each) for name, each in budgets.stated.items()},
        "lost": budgets.lost,
        "cleared": list[Plain](sorted(budgets.cleared)),
        "charges": budgets.charges,
        "units": {name: list[Plain](sorted(each)) for name, each in budgets.units.items()},
    }


def budgets_in(raw: Mapping[str, Any]) -> Budgets:
    """The same back. Raises TypeError, ValueError, KeyError for anything else."""
    return Budgets(
        accounts={
            run: Account(
                population=str(each["population"]),
                places=set(map(str, each["places"])),
                **{name: counts_in(each[name]) for name in ("whole", "rest", "spent")},
            )
            for run, each in raw["accounts"].items()
        },
        spent={name: counts_in(each) for name, each in raw["spent"].items()},
        stated={name: (float(epsilon), float(delta)) for name, (epsilon, delta) in raw["stated"].items()},
        lost=bool(raw["lost"]),
        cleared=set(map(str, raw["cleared"])),
        charges=int(raw["charges"]),
        units={name: set(map(str, each)) for name, each in raw.get("units", {}).items()},
    )


# Entries, by kind, that follow from what stands in a ledger; each is written before the next one is asked for.
Decide = Callable[[Budgets], Iterable[tuple[str, Mapping[str, Plain]]]]
