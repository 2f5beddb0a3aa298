"""What was asked for: the members, the waiting rules and the run itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType

from tideline.core.asked.computing import Computing
from tideline.core.asked.private import Charge, Privacy
from tideline.core.asked.sampling import Sampling
from tideline.core.asked.scoring import NO_MORE, Scoring
from tideline.core.asked.secure import SecureSums
from tideline.core.asked.wire import NO_WIRE, Wire
from tideline.core.asked.world import World
from tideline.core.rows import NO_AUGMENT, Augment
from tideline.core.settings import EMPTY, Plain, setting

ClientId = NewType("ClientId", str)
RunId = NewType("RunId", str)
OrderId = NewType("OrderId", str)
Digest = NewType("Digest", str)

NO_DIGEST = Digest("")
MOST_THREADS = 1024  # that a site is asked to compute with


@dataclass(frozen=True)
class NetworkPrint:
    """What a network is at one place, so that another can tell whether it has the same. No data of a site enter.

    lines: an option or a tensor each, in words. outputs: numbers that it gives for fixed rows with fixed weights; none where they
    are not finite.
    """

    lines: tuple[str, ...] = ()
    outputs: tuple[float, ...] = ()


class Role(StrEnum):
    """What a member does in a run. A target's training labels are never loaded."""

    SOURCE = "source"
    TARGET = "target"
    PEER = "peer"


@dataclass(frozen=True)
class Member:
    """One client of a run. `labelled`: its training rows carry labels that steps may see."""

    id: ClientId
    role: Role
    labelled: bool


Roster = tuple[Member, ...]


def described(roster: Roster) -> str:
    return ", ".join(f"{m.id} ({m.role.value}{'' if m.labelled else ', no labels'})" for m in roster)


@dataclass(frozen=True)
class Waiting:
    """How long a round waits and for whom. None means: all that were asked."""

    target_replies: int | None = setting(None, low=1, doc="close the round as soon as this many have answered")
    min_replies: int | None = setting(
        None, low=1, doc="the quorum, the target unless said: fewer at the deadline, and the run stalls"
    )
    deadline: float = setting(86400.0, low=0.001, doc="seconds that a round may take")
    held: float = setting(
        604800.0,
        low=0.0,
        doc="seconds that an order waits beyond that for a site whose owner holds it: to approve it, or by hours",
    )


@dataclass(frozen=True)
class Shares:
    """How much one site's reply may count where replies are weighed by numbers of rows."""

    max: float | None = setting(None, low=0.001, high=1.0, doc="the largest share of one site in a fold; none said: as it is")
    counts: Mapping[str, int] = setting(EMPTY, low=1, doc="site name: rows that it counts as, whatever it tells")


@dataclass(frozen=True)
class RunSpec:
    """A run as it was asked for, once it has been checked. It never changes.

    config         the method's settings, all of them, as plain data
    contract       the digest of its clauses
    keeps          whether its sites keep a memory
    notes          what it does otherwise than it was asked, in sentences
    kept           names of settings that stay at the coordinator; sites have their defaults
    admins         whether its final state is for admins alone
    initial_weights    the file that the user gave, and its bytes; None: the method makes its own
    sampling       which part of the sites an exchange asks; None: all that the method names
    network        what the network is at the coordinator, which sites must have alike; None: it is built in
    scoring        what scorings tell, and whether one score finds the best round
    children, rehearses  of a rehearsal: the runs that it waits for, and compares; of one of these: the site that plays the target
    by, experiment     who asked for it, and the digest of what was asked for
    shares         how much one site may count in a fold
    augment, wire  how images are changed at random where sites train on them; in which numbers weights travel
    computing      how its steps compute; None: as they always did, and sites tell nothing of it
    privacy        how it protects rows, with the noise that its epsilon came to; None: it does not
    epsilon        what it costs a row of a site at most, at the delta of its privacy; None: it protects none
    charges        what each of its exchanges costs, by phase/step; None: it protects none
    track          experiment trackers whose followers write it down; nothing of the run depends on them
    secure_sums    how what its sites send is added up, so that the coordinator sees sums alone; None: it sees single replies
    """

    id: RunId
    method: str
    config: Mapping[str, Plain]
    world: World
    seed: int
    contract: Digest
    keeps: bool
    waiting: Waiting = field(default_factory=Waiting)
    notes: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    admins: bool = False
    checkpoint_every: int = 1
    threads: int = 1
    initial_weights: Digest | None = None
    initial_weights_bytes: int = 0
    sampling: Sampling | None = None
    network: NetworkPrint | None = None
    scoring: Scoring = NO_MORE
    children: tuple[RunId, ...] = ()
    rehearses: ClientId | None = None
    by: str = ""
    experiment: Digest = NO_DIGEST
    shares: Shares = field(default_factory=Shares)
    augment: Augment = NO_AUGMENT
    computing: Computing | None = None
    wire: Wire = NO_WIRE
    privacy: Privacy | None = None
    epsilon: float | None = None
    charges: Mapping[str, tuple[Charge, ...]] | None = None
    track: tuple[str, ...] = ()
    secure_sums: SecureSums | None = None
