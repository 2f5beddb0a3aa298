"""The client's half of an exchange: a pure function of order, memory and site."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from tideline.core.asked.private import Charge, Meter, Privacy
from tideline.core.asked.world import World
from tideline.core.handle import Handle
from tideline.core.record import Record, require_exposures
from tideline.core.run import ClientId, Role, RunId
from tideline.core.settings import EMPTY

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from tideline.core.rows import Rows


class View(StrEnum):
    """Which rows of a site a step sees. The owner's side splits before anything is masked.

    TRAIN       rows to train on, those for validation among them
    LEARN       the same without those for validation: what TRAIN comes to in a run that selects its best round
    VALIDATION  rows to select by
    HELD_OUT    rows to test on, of which no other view has any
    """

    TRAIN = "train"
    LEARN = "learn"
    VALIDATION = "validation"
    HELD_OUT = "held_out"


@dataclass(frozen=True)
class Data:
    """Rows of one site, in the shape that the run's world asks for.

    x       n rows of *inputs, float32, or int64 of token ids: a lazy view, read in batches or parts (`tideline.core.rows`)
    y       (n,) int64 in [0, classes), or None where the site has no labels or may not show them
    domain  (n,) int64, an index into `domains`
    domains the names of the domains that the site holds
    bare    m rows like those of x: training rows without labels that lie beside the labelled ones (x, y); None where all rows
            are alike. Whoever does not ask for them goes on with the labelled rows alone
    unit    what several rows may belong to, in a word such as patient; empty where the data do not say whose a row is
    units   (n,) int64, a number for each row's unit: the same for all rows of one; None where there is no such word
    """

    x: Rows
    y: Tensor | None
    domain: Tensor
    domains: tuple[str, ...]
    bare: Rows | None = None
    unit: str = ""
    units: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)

    @property
    def count(self) -> int:
        """All rows, n + m: those without labels beside labelled ones count too."""
        return len(self) + (0 if self.bare is None else len(self.bare))

    @property
    def labelled(self) -> bool:
        return self.y is not None


T = TypeVar("T")
C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)
T_in = TypeVar("T_in")
G = TypeVar("G")
M = TypeVar("M")


def no_tick(progress: float) -> None:
    """A tick that nobody listens to."""


class Fetch(Protocol):
    """Gives the value of a handle of the order."""

    def __call__(self, handle: Handle[T], like: Record | None = None) -> T: ...


def no_fetch(handle: Handle[T], like: Record | None = None) -> T:
    """A fetch where no peers exist."""
    raise KeyError(handle.digest)


def no_outputs(run: RunId) -> Record | None:
    """Of a site where no other run keeps anything."""
    return None


@dataclass(frozen=True)
class Moved:
    """What a transfer took: bytes and seconds. Two of them are one by addition."""

    size: int = 0
    seconds: float = 0.0

    def __add__(self, other: Moved) -> Moved:
        return Moved(self.size + other.size, self.seconds + other.seconds)


@dataclass(frozen=True)
class Transfers:
    """What the site's line did lately: fetching each peer's values for this order, sealed, from the coordinator; and what it
    sent there with its last reply in the run. Measured, so no two runs have the same: for methods that are asked to measure.
    """

    fetched: Mapping[ClientId, Moved] = field(default_factory=lambda: EMPTY)
    sent: Moved = Moved()


@dataclass(frozen=True)
class Site(Generic[C_co]):
    """What a step sees of the place where it runs.

    `data` holds the rows of the step's view; on a target its `y` is None while training. `validation` is there for steps that
    score, in runs that select their best round (a target's has no labels), and for steps that train on labelled rows and stop
    by these. `training` is there for steps that score at a target, in runs whose targets keep or correct what is predicted:
    training rows without labels. `source_shares` (classes,) is there for the same steps in runs that correct it: the shares of
    the classes among the rows that the sources trained on. outputs(run): what another run keeps of its predictions here, if it
    belongs to this one. `rng` is seeded from the order. `tick(progress in [0, 1])` reports progress; long steps call it.
    `round` counts this phase's earlier exchanges from 1. `fetch(handle, like)` gives the value of a handle of the order; `like`
    is the record that its fields declared as `like NAME` are held to. One value is mapped at a time, if the step holds no more.
    `normalised_by` and `filled_by` are what the rows are normalised by, and their missing cells filled, where that was found in
    the run; steps have no use for them.
    `least_per_class`: of a class with fewer labelled rows here, nothing that is told class by class may tell. `least_rows`: the
    rows that each training is of at least, also where a step chooses among those that are here. `private` is there in runs that
    protect rows: all that a step learns of its rows it learns by charges of that meter. `noise_key`: of the site's own, in runs
    whose sums get noise.
    """

    config: C_co
    world: World
    me: ClientId
    role: Role
    data: Data
    round: int
    rng: Generator
    device: str = "cpu"
    fetch: Fetch = no_fetch
    tick: Callable[[float], None] = no_tick
    transfers: Transfers = Transfers()
    validation: Data | None = None
    training: Rows | None = None
    outputs: Callable[[RunId], Record | None] = no_outputs
    normalised_by: Record | None = None
    filled_by: Record | None = None
    source_shares: Tensor | None = None
    least_per_class: int = 1
    least_rows: int = 1
    private: Meter | None = None
    noise_key: bytes = b""

    @property
    def samples(self) -> int:
        """How many training rows there are, as it may be sent: in a run that protects rows, or units, the public number."""
        return self.private.asked.rows if self.private else len(self.data)


@dataclass(frozen=True)
class Outcome(Generic[G, M]):
    """What a step gives: the message that leaves, the memory that stays, and declared metrics.

    outputs: what it predicts, a record that stays beside the memory until another step of the run gives one. correction: what was
    added to the logits of the model that it scored, (classes,); it stays in the memory, if there is one.
    """

    message: G
    memory: M
    metrics: Mapping[str, float] = field(default_factory=lambda: EMPTY)
    outputs: Record | None = None
    correction: Tensor | None = None


Spends: TypeAlias = Callable[[Any, Privacy], tuple[Charge, ...]]


def charged_before(config: object, privacy: Privacy) -> tuple[Charge, ...]:
    """What a step spends that reads no rows: all that it sends was made of what was charged before."""
    return ()


@dataclass(frozen=True)
class Step(Generic[T_in, M, G, C]):
    """A step with the types of what it takes, keeps and gives. `gives` is the privacy contract.

    spends   what it costs in a run that protects rows, by its settings: exactly what its site's meter says afterwards. None: it
             cannot protect them
    reports  those of its metrics that are then made of what was charged; the others are withheld
    by_unit  whether a unit of several rows then changes what is charged no more than a row does
    adapts   whether it trains, so that the clip of its gradients may follow a quantile
    """

    name: str
    run: Callable[[T_in, M, Site[C]], Outcome[G, M]]
    takes: type[T_in]
    keeps: type[M]
    gives: type[G]
    metrics: tuple[str, ...] = ()
    view: View = View.TRAIN
    spends: Spends | None = None
    reports: tuple[str, ...] = ()
    by_unit: bool = False
    adapts: bool = False

    def __post_init__(self) -> None:
        require_exposures(self.gives)


AnyStep: TypeAlias = Step[Any, Any, Any, Any]


Run: TypeAlias = Callable[[T_in, M, Site[C]], Outcome[G, M]]


def step(
    *,
    metrics: tuple[str, ...] = (),
    view: View = View.TRAIN,
    spends: Spends | None = None,
    reports: tuple[str, ...] = (),
    by_unit: bool = False,
    adapts: bool = False,
) -> Callable[[Run[T_in, M, C, G]], Step[T_in, M, G, C]]:
    """Make a Step of `def name(order: O, memory: M, site: Site[C]) -> Outcome[G, M]`: its types are read from its annotations."""

    def made(run: Run[T_in, M, C, G]) -> Step[T_in, M, G, C]:
        # A site's config may be known to type checkers alone: it is no part of what is sent and kept.
        first = next(name for name in run.__annotations__ if name != "return")
        said = SimpleNamespace(__annotations__={name: run.__annotations__[name] for name in (first, "return")})
        hints = typing.get_type_hints(said, run.__globals__)
        gives, keeps = typing.get_args(hints["return"])
        takes = hints[first]
        return Step(
            name=run.__name__,
            run=run,
            takes=takes,
            keeps=keeps,
            gives=gives,
            metrics=metrics,
            view=view,
            spends=spends,
            reports=reports,
            by_unit=by_unit,
            adapts=adapts,
        )

    return made
