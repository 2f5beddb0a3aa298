"""Differential privacy of a site's rows, as a run asks for it: what a step may learn of them, and what each answer costs.

A neighbouring set of rows has one more, or one fewer; where a run protects units, such as patients, all rows of one. Dwork,
Roth, "The Algorithmic Foundations of Differential Privacy", 2014;
Abadi et al., "Deep Learning with Differential Privacy", CCS 2016 (arXiv 1607.00133).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tideline.core.errors import ConfigRefused, StepFailed
from tideline.core.settings import setting

KEY_BYTES = 32
ROW = "row"
UNIT = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")


@dataclass(frozen=True)
class Privacy:
    """How a run protects rows. Either what it may cost is given, and the noise follows, or the noise is, and the cost follows."""

    rows: int = setting(low=2, doc="training rows that a site has, about: public, and the same number for all of them")
    epsilon: float | None = setting(None, doc="the most that the run may cost a row of any site; the noise of training follows")
    noise: float | None = setting(None, low=0.01, high=1e6, doc="in place of epsilon: standard deviation of the noise, in clips")
    delta: float = setting(1e-5, doc="the chance that epsilon does not hold; less than 1 / rows")
    clip: float = setting(1.0, low=1e-6, high=1e6, doc="longest gradient of a row, or longest row; longer ones are shortened")
    rate: float = setting(0.1, low=1e-6, high=1.0, doc="the chance of each row to take part in a step of training")
    score_noise: float = setting(8.0, low=0.01, high=1e6, doc="standard deviation of the noise on counts of held-out rows")
    unit: str | None = setting(
        None, doc="what is protected as a whole, such as patient, by the word that sites' data have for it; none said: each row"
    )
    quantile: float | None = setting(
        None, low=0.01, high=0.99, doc="share of rows whose gradients stay as they are: clip follows it; none said: clip stays"
    )
    quantile_noise: float | None = setting(
        None, low=1.01, high=1e6, doc="noise on the count of such rows, in units of the noise; 5 where quantile alone is said"
    )

    def __post_init__(self) -> None:
        """Raises ConfigRefused for what protects nothing, or says the same twice."""
        if self.unit is not None:
            check_unit(self.unit, "privacy.unit")
        if self.quantile_noise is not None and self.quantile is None:
            what = "privacy.quantile_noise is said, and no quantile that clip would follow"
            raise ConfigRefused(what, "Add quantile, such as 0.5, or leave quantile_noise out", path="privacy.quantile")
        if (self.epsilon is None) == (self.noise is None):
            what = "privacy names neither epsilon nor noise" if self.epsilon is None else "privacy names both epsilon and noise"
            raise ConfigRefused(
                what, "Give epsilon, what the run may cost; or noise, and it is worked out", path="privacy.epsilon"
            )
        if self.epsilon is not None and not 0 < self.epsilon < math.inf:
            what = f"privacy.epsilon is {self.epsilon}; it should be more than 0, and finite"
            raise ConfigRefused(what, "1 protects well, 8 protects against crude attacks", path="privacy.epsilon")
        if not 0 < self.delta < 1 / self.rows:
            what = f"privacy.delta is {self.delta}; it should be more than 0 and less than 1 / rows, {1 / self.rows:.2g}"
            raise ConfigRefused(what, "Write 1e-5, or one over ten times the number of rows", path="privacy.delta")

    @property
    def whose(self) -> str:
        """What is protected, in a word: a row, or a unit of several."""
        return ROW if self.unit is None else self.unit

    @property
    def follows(self) -> bool:
        """Whether clip follows a quantile of gradients."""
        return self.quantile is not None

    @property
    def expected(self) -> float:
        """Rows, or units, that a step of training is expected to draw, by which its sum of gradients is divided."""
        return self.rate * self.rows

    def steps(self, epochs: int) -> int:
        """Steps of training in which each row is expected to take part so often."""
        return math.ceil(epochs / self.rate)


def check_unit(unit: str, path: str) -> None:
    """Raises ConfigRefused for what cannot name a unit of several rows; a row is none."""
    if unit == ROW or not UNIT.fullmatch(unit):
        what = f"{path} is {unit[:40]!r}, which cannot name a unit"
        todo = "Write a word for what several rows belong to, such as patient; leave it out if each row counts by itself"
        raise ConfigRefused(what, todo, path=path)


@dataclass(frozen=True)
class Charge:
    """What some answers cost: sums over rows, of which one changes any by its sensitivity at most, with Gaussian noise.

    Where a run protects units, all that is said of a row is said of a unit.

    noise: the standard deviation, in sensitivities. rate: the chance of each row to be in the sum. times: how many there are.
    """

    noise: float
    rate: float = 1.0
    times: int = 1


@dataclass(frozen=True)
class Price:
    """What a site's own code says that an order costs its rows, before it is worked on.

    step: the exchange at hand; of the join, nothing. run: all exchanges of the plan. seen: a digest that tells the site's data
    from those of another day, as far as the site looks.
    """

    step: tuple[Charge, ...]
    run: tuple[Charge, ...]
    seen: str = ""


@dataclass
class Meter:
    """What a step of a private run has spent so far, and the keys of its noise: one for each charge, and never the same.

    clip: of gradients as training has it now; it moves where it follows a quantile. tick: reports progress, of private training
    alone, whose steps everybody can count.
    """

    asked: Privacy
    key: bytes
    spent: list[Charge] = field(default_factory=list)
    clip: float = 0.0
    tick: Callable[[float], None] = field(default=lambda share: None, compare=False)
    done: float = 0.0

    def __post_init__(self) -> None:
        """A clip that follows a quantile begins where the run says."""
        self.clip = self.clip or self.asked.clip

    def progress(self, share: float) -> None:
        """Report a share of the steps of private training."""
        self.done = share
        self.tick(share)

    def alive(self, share: float) -> None:
        """A sign of life: shares of passes over rows would tell how many there are."""
        self.tick(self.done)

    def spend(self, charge: Charge, by_unit: bool = False) -> bytes:
        """Note a charge; gives the key for its noise, KEY_BYTES bytes.

        by_unit: whether the sum was made so that one unit changes it by its sensitivity at most, however many rows it has. Raises
        StepFailed where the run protects units, and it was not.
        """
        if self.asked.unit is not None and not by_unit:
            what = f"The step made a sum over rows, and the run protects each {self.asked.unit}, which may have several"
            raise StepFailed(what, "Leave privacy.unit out, or use another method")
        self.spent.append(charge)
        return hashlib.blake2b(len(self.spent).to_bytes(8, "big"), key=self.key, digest_size=KEY_BYTES).digest()


def together(charges: Iterable[Charge]) -> tuple[Charge, ...]:
    """The same with equal ones added up, sorted: what two lists of charges are compared by."""
    times = dict[tuple[float, float], int]()
    for each in charges:
        times[each.noise, each.rate] = times.get((each.noise, each.rate), 0) + each.times
    return tuple(Charge(noise, rate, n) for (noise, rate), n in sorted(times.items()) if n)
