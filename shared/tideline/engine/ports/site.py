"""What an agent needs: its data, its disk, its line to the coordinator, and who runs its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tideline.archive.parts import Parts
from tideline.core.asked.computing import Computed
from tideline.core.asked.private import Price
from tideline.core.asked.world import World
from tideline.core.handle import AnyHandle
from tideline.core.privacy import Contract
from tideline.core.run import ClientId, Digest, NetworkPrint, OrderId, Role, RunId
from tideline.core.settings import EMPTY, Plain
from tideline.core.step import Data, Transfers, View
from tideline.engine.model.access.spending import Spent
from tideline.engine.model.brief import Brief
from tideline.engine.model.orders import Arrivals, Envelope, Files, Order, Receipt, Reply


@dataclass(frozen=True)
class Limits:
    """What a site's owner holds each step to.

    rows        training rows that the site must have
    per_class   labelled rows of a class, below which nothing that is told by class tells of it
    share       of a mini-batch in the training rows, at most
    clip        longest update of weights that a user has brought; 0: as long as it is
    own_base    whether frozen weights must be those of a package that is installed at the site
    delta       of the site's budget of epsilon, which must be less than one over its rows; 0: it has none
    """

    rows: int = 1
    per_class: int = 1
    share: float = 1.0
    clip: float = 0.0
    own_base: bool = False
    delta: float = 0.0


NO_LIMITS = Limits()


@dataclass(frozen=True)
class Job:
    """One step to run at a site. Files lie in the site's parts. outputs: what other runs keep of their predictions here. best:
    the memory at the run's best scoring, where there is one. unsent: what rounding left out of its last message with weights.
    noise: in a run that protects rows, the key of this step's noise, in hexadecimal: the site's own, and the same for the same
    order alone. prices: whether it is only asked what the order costs: no data are opened. seen: the data that it was priced for.
    phase, step: what the order says that it is of.
    """

    run: RunId
    client: ClientId
    cursor: int
    round: int
    brief: Brief
    seed: int
    message: Digest | None
    memory: Digest | None
    transfers: Transfers = Transfers()
    outputs: Mapping[RunId, Digest] = field(default_factory=lambda: EMPTY)
    best: Digest | None = None
    limits: Limits = NO_LIMITS
    unsent: Digest | None = None
    noise: str = ""
    prices: bool = False
    seen: str = ""
    phase: str = ""
    step: str = ""


@dataclass(frozen=True)
class Done:
    """A finished step: files of message and memory, metrics. Of the join: whether the site has labels, and the contract as the
    site's own code derives it.

    handles: the values for peers that the message names; their files lie beside the message's. network: of the join, what the
    run's network is at the site, unless it is built in. outputs: the file of what it predicts, which stays. rowless: whether the
    memory was rid of the site's rows, as no exchange comes after this one. best: then the job's best memory, rid of them, too.
    ends: whether no exchange comes after this one. uncached: of the join, rows that there was no room to write down decoded.
    computed: of the join, how this place computes, if the run says how to. events: what the step did otherwise than it was
    asked, as kinds of notes (core.notes). unsent: the file of what rounding left out of this message and those before, where one
    was rounded. spent: on it, where that is measured. price: what the order costs, where only that was asked. sum_state: the file
    of where the site stands in a secure sum, as the agent adds it.
    """

    message: Files
    memory: Files
    metrics: Mapping[str, float] = field(default_factory=lambda: EMPTY)
    labelled: bool | None = None
    contract: Contract | None = None
    handles: tuple[AnyHandle, ...] = ()
    network: NetworkPrint | None = None
    outputs: Files = ()
    rowless: bool = False
    best: Files = ()
    ends: bool = False
    uncached: int = 0
    computed: Computed | None = None
    events: tuple[str, ...] = ()
    unsent: Files = ()
    spent: Spent | None = None
    price: Price | None = None
    sum_state: Files = ()


class Pool(Protocol):
    """Runs steps: inline, or in a trainer process of its own."""

    def run(self, job: Job, tick: Callable[[float], None]) -> Done:
        """Run a step. Raises FederationError (StepFailed, Refused, Malformed, Cancelled)."""


class SiteData(Protocol):
    """A site's data, split once and for all."""

    def view(self, view: View, role: Role) -> Data: ...


OpenSiteData = Callable[[World, Role], SiteData]


@dataclass(frozen=True)
class Best:
    """A site's memory as it was at the run's best scoring, as far as the site has been told.

    cursor   the place of that scoring in the plan
    memory   what the site kept after its last answer up to there
    metrics  of its answer to that scoring; empty where it was not asked
    """

    cursor: int
    memory: Files
    metrics: Mapping[str, float] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True)
class Head:
    """What a site's vault knows of a run: its memory, the reply that belongs to it, and what was asked.

    asked: the order's files; None in a record from before they were kept. sealed: what the reply brings for peers. peers: the
    sites that the run showed this one in its first order after the join, where sites of it seal for each other. own: the files of
    the values that it sealed last, which later orders may hand back to it. best: its memory at the run's
    best scoring, if the run selects. outputs: the file of what the run's last scoring predicted here, if that is kept. rowless:
    whether the memories were rid of the site's rows; files that an earlier memory had are to go. unsent: the file of what
    rounding left out of its messages so far. spent: on the step, where that was measured. sum_state: the file of where the site
    stands in a secure sum, with its secrets.
    """

    order: OrderId
    cursor: int
    memory: Files
    reply: Files
    metrics: Mapping[str, float]
    facts: Mapping[str, Plain]
    asked: Files | None = None
    sealed: tuple[Envelope, ...] = ()
    peers: tuple[ClientId, ...] | None = None
    own: Files = ()
    best: Best | None = None
    outputs: Files = ()
    rowless: bool = False
    unsent: Files = ()
    spent: Spent | None = None
    sum_state: Files = ()

    @property
    def stays(self) -> Files:
        """The files of what no order brings again: memories, what was predicted, what was not sent yet, and secrets of a sum."""
        return (*self.memory, *(self.best.memory if self.best else ()), *self.outputs, *self.unsent, *self.sum_state)


class Vault(Protocol):
    """A site's own disk. Memory and reply are committed together, by one rename. Each run has parts of its own."""

    def parts(self, run: RunId) -> Parts: ...

    def head(self, run: RunId) -> Head | None: ...
    def commit(self, run: RunId, head: Head) -> None: ...
    def collect(self, run: RunId, files: Files) -> None:
        """Collect the parts that neither a head nor these files name."""

    def note(self, run: RunId, brief: Mapping[str, Plain]) -> None:
        """Remember what the run is (its orders' brief), so that the site's owner can read its memory."""


class Link(Protocol):
    """An agent's line to the agent service."""

    def fetch(self, order: Order, files: Files, parts: Parts) -> None:
        """Bring the order's files that are lacking into `parts`; each goes on behind what an earlier, cut try left."""

    def push(self, order: Order, arrivals: Arrivals, parts: Parts) -> None:
        """Send parts of a reply, each from its offset on. They are kept on disk there when this returns."""

    def report(self, order: Order, reply: Reply) -> Receipt: ...
