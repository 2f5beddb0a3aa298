"""What a site's owner says of runs, beside what may leave: which may run, when, how often, and within which bounds."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, time
from enum import StrEnum

from tideline.core.asked.private import ROW, check_unit
from tideline.core.errors import ConfigRefused
from tideline.core.settings import EMPTY, setting
from tideline.engine.epsilon.budget import Limit

CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
SIZES = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?) ?(kB|MB|GB|TB)?")
POPULATION = re.compile(r"[A-Za-z0-9_.-]{1,64}")
BATCH_SHARE = "batch_share"
# Of learning rates; no method's defaults come near them.
RATES: Mapping[str, float] = dict.fromkeys(("rate", "source_rate", "encoder_rate", "label_rate", "alpha_rate"), 10.0)


class Approval(StrEnum):
    """Which runs wait for the owner's word. NEW: those that ask for what was never approved here."""

    NEVER = "never"
    NEW = "new"
    ALWAYS = "always"


class InitialWeights(StrEnum):
    """Which weights a run may begin from. BUILT_IN: those that are drawn from the run's seed, and the owner's DIGESTS."""

    BUILT_IN = "built-in"
    DIGESTS = "digests"
    ANY = "any"


@dataclass(frozen=True)
class RunRules:
    """The table [runs]."""

    methods: tuple[str, ...] = setting((), doc="methods that may run here; none said: all")
    users: tuple[str, ...] = setting((), doc="users, by the names of their keys, whose runs may run here; none said: all")
    projects: tuple[str, ...] = setting((), doc="projects whose runs may run here; none said: all that the site serves")
    hours: str = setting("", doc="when work may begin, by the site's clock, such as 20:00-06:00; none said: always")
    approve: Approval = setting(Approval.NEVER, doc="which runs wait for the owner's approval: never, new or always")
    rehearse: bool = setting(True, doc="whether the site plays the target in rehearsals")
    weights: InitialWeights = setting(InitialWeights.BUILT_IN, doc="weights that a run may begin from: built-in, digests or any")
    digests: tuple[str, ...] = setting((), doc="weights that a run may begin from, by digest")
    constants: bool = setting(False, doc="whether rows may be normalised by numbers that the run's user gives")
    clip: float = setting(10.0, low=0.0, doc="longest update of brought weights that leaves the site; 0: as long as it is")

    def __post_init__(self) -> None:
        """Raises ConfigRefused for hours that are none, and digests without the rule that reads them."""
        if self.hours and not CLOCK.fullmatch(self.hours):
            what = f"runs.hours is {self.hours!r}, which is no span of a day"
            raise ConfigRefused(what, "Write it as HH:MM-HH:MM, such as 20:00-06:00", path="runs.hours")
        if self.weights is InitialWeights.DIGESTS and not self.digests:
            what = "runs.weights is digests, and runs.digests names none, so that no brought weights could ever be used"
            raise ConfigRefused(what, "Name the digests, or write weights = 'built-in'", path="runs.digests")


@dataclass(frozen=True)
class Least:
    """The table [least]: below it, nothing of a run is worked on; of a class with fewer rows no sum is told.

    Of an answer that is made of fewer than some 16 rows, single ones can be read (docs/threat-model.md).
    """

    rows: int = setting(20, low=1, doc="training rows of which each answer is made at least")
    sites: int = setting(1, low=1, doc="sites that the run must name")
    rows_per_class: int = setting(5, low=1, doc="labelled rows of a class, below which nothing that is told by class tells of it")
    trusted: int = setting(0, low=0, doc="other sites of a secure sum whose fingerprints you have confirmed")


@dataclass(frozen=True)
class Quotas:
    """The table [quotas], of a day by the site's clock. 0: no limit."""

    runs: int = setting(0, low=0, doc="runs that may begin in a day")
    replies: int = setting(0, low=0, doc="replies in a day")
    bytes_out: str = setting("0", doc="bytes of replies in a day, such as 2 GB")

    def __post_init__(self) -> None:
        """Raises ConfigRefused for a size that is none."""
        if not SIZE.fullmatch(self.bytes_out):
            what = f"quotas.bytes_out is {self.bytes_out!r}, which is no size"
            raise ConfigRefused(what, "Write bytes, or a number of kB, MB, GB or TB, such as '2 GB'", path="quotas.bytes_out")

    @property
    def bytes(self) -> int:
        found = SIZE.fullmatch(self.bytes_out)
        assert found is not None, "checked when it was made"
        return int(float(found[1]) * SIZES[found[2] or ""])


class OnDelete(StrEnum):
    """What becomes of a run's files at the site when the run is deleted at the coordinator.

    RETAIN: nothing, and nobody is asked about it. ASK: the owner is shown it, and decides. FOLLOW: they are deleted.
    """

    RETAIN = "keep"
    ASK = "ask"
    FOLLOW = "follow"


@dataclass(frozen=True)
class Retention:
    """The table [retention]: how long the home has files of runs that are over. Days count from their last change; 0: no rule."""

    on_delete: OnDelete = setting(OnDelete.ASK, doc="when a run was deleted at the coordinator: keep, ask or follow")
    runs_days: int = setting(0, low=0, high=36500, doc="days after which a run's files are deleted; 0: never")
    models_days: int = setting(
        0, low=0, high=36500, doc="the same where a model of the site's own is among them; 0: as runs_days"
    )


EVERY = "all"  # methods, of which a policy requires that they protect rows


@dataclass(frozen=True)
class PrivacyRules:
    """The table [privacy]: what private runs may cost the site's rows, or units, together, and which runs must protect them."""

    epsilon: float | None = setting(None, doc="the most that all private runs together may cost a row; none said: no limit")
    delta: float = setting(1e-5, doc="the chance that epsilon does not hold; less than one over the rows")
    rows: int | None = setting(
        None, low=2, doc="rows, or units, of the population, about: delta is held to it when the file is read"
    )
    unit: str = setting(ROW, doc="what a budget counts for: row, or what several rows belong to, such as patient")
    population: str = setting("rows", doc="a name for the people behind the rows; another name begins another budget")
    require: tuple[str, ...] = setting((), doc="methods whose runs must protect rows, or all; others are refused")

    def __post_init__(self) -> None:
        """Raises ConfigRefused for what protects nothing."""
        if self.epsilon is not None and not 0 < self.epsilon < math.inf:
            what = f"privacy.epsilon is {self.epsilon}; it should be more than 0, and finite"
            raise ConfigRefused(what, "1 protects well, 8 protects against crude attacks", path="privacy.epsilon")
        below = 1.0 if self.rows is None else 1 / self.rows
        if not 0 < self.delta < below:
            most = "1" if self.rows is None else f"1 / rows, {below:.2g}"
            what = f"privacy.delta is {self.delta}; it should be more than 0 and less than {most}"
            raise ConfigRefused(what, "Write one over ten times the number of rows, or less", path="privacy.delta")
        if self.unit != ROW:
            check_unit(self.unit, "privacy.unit")
        if not POPULATION.fullmatch(self.population):
            what = f"privacy.population is {self.population[:80]!r}, which cannot name a population"
            raise ConfigRefused(what, "Use letters, digits, dots, dashes and underscores, at most 64", path="privacy.population")

    @property
    def limit(self) -> Limit | None:
        """The budget; None where there is none."""
        return None if self.epsilon is None else Limit(self.population, self.epsilon, self.delta, self.unit)

    def requires(self, method: str) -> bool:
        """Whether runs of a method must protect rows."""
        return EVERY in self.require or method in self.require


@dataclass(frozen=True)
class Disclosure:
    """The table [disclose]: what the coordinator is told of the site when a run begins, for a dossier of that run."""

    policy: bool = setting(False, doc="the lines of this file that apply to the run, without names of users and projects")
    data: bool = setting(False, doc="a digest of the files of the site's data")


@dataclass(frozen=True)
class SiteRules:
    """All of it.

    bounds: the largest value of settings, by names or patterns of names; BATCH_SHARE: of a mini-batch, as a share of the site's
    training rows. retain_days: the older name of retention.runs_days.
    """

    runs: RunRules = field(default_factory=RunRules)
    bounds: Mapping[str, float] = setting(RATES, low=0.0, doc="largest values of settings")
    least: Least = field(default_factory=Least)
    quotas: Quotas = field(default_factory=Quotas)
    retain_days: int = setting(0, low=0, high=36500, doc="days after which a run's files at this site are forgotten; 0: never")
    retention: Retention = field(default_factory=Retention)
    privacy: PrivacyRules = field(default_factory=PrivacyRules)
    disclose: Disclosure = field(default_factory=Disclosure)

    def __post_init__(self) -> None:
        """Raises ConfigRefused where the same is said twice."""
        if self.retain_days and self.retention.runs_days:
            what = "retain_days and retention.runs_days say the same"
            raise ConfigRefused(what, "Leave retain_days out", path="retention.runs_days")

    def days(self, model: bool) -> int:
        """After how many days a run's files go; 0: never. model: whether a model of the site's own is among them."""
        runs_days = self.retention.runs_days or self.retain_days
        return (self.retention.models_days or runs_days) if model else runs_days

    @property
    def cleans(self) -> bool:
        """Whether anything goes by itself."""
        return self.retention.on_delete is OnDelete.FOLLOW or bool(self.days(True) or self.days(False))


# Of whom the data and the federation are one and the same, as in a simulation: only what leaves is held to a policy.
FREE = SiteRules(
    RunRules(weights=InitialWeights.ANY, constants=True, clip=0.0), bounds=EMPTY, least=Least(rows=1, rows_per_class=1)
)


def bound_of(bounds: Mapping[str, float], name: str) -> float | None:
    """The bound of a setting: its own, or else the least of the patterns that match its name; None without any."""
    if name in bounds:
        return bounds[name]
    return min((most for pattern, most in bounds.items() if fnmatch.fnmatchcase(name, pattern)), default=None)


def within(hours: str, now: datetime) -> bool:
    """Whether a time of the day lies in such hours, which may run over midnight. No hours: always."""
    found = CLOCK.fullmatch(hours)
    if found is None:
        return True
    begin, end = time(int(found[1]), int(found[2])), time(int(found[3]), int(found[4]))
    at = now.time()
    return begin <= at < end if begin < end else at >= begin or at < end
