"""The coordinator's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tideline.core.algorithm import Unlike
from tideline.core.asked.computing import Computing
from tideline.core.asked.private import Charge, Privacy
from tideline.core.asked.sampling import Sampling
from tideline.core.asked.scoring import NO_MORE, Scoring
from tideline.core.asked.secure import SecureSums
from tideline.core.asked.wire import NO_WIRE, Wire
from tideline.core.asked.world import World
from tideline.core.handle import AnyHandle
from tideline.core.phase import Table
from tideline.core.privacy import Contract
from tideline.core.rows import NO_AUGMENT, Augment
from tideline.core.run import ClientId, Digest, NetworkPrint, Role, Roster, RunSpec
from tideline.core.settings import EMPTY, Plain
from tideline.engine.model.orders import Files
from tideline.engine.model.runs import PhaseFact


@dataclass(frozen=True)
class MethodSummary:
    """A method in one line."""

    name: str
    summary: str
    paper: str


@dataclass(frozen=True)
class SettingFacts:
    """A setting of a method. low, high: inclusive bounds; choices: all the values that it may have."""

    name: str
    type: str
    default: Plain
    low: float | None
    high: float | None
    choices: tuple[Plain, ...] | None
    doc: str


@dataclass(frozen=True)
class MethodFacts:
    """A method with its settings, and the contract of its defaults or of a preset.

    sentences: the clauses in words. claims: what is and is not claimed beyond them. weights: whether it takes initial weights.
    sample: whether its rounds may ask a part of the sites.
    """

    name: str
    summary: str
    paper: str
    settings: tuple[SettingFacts, ...]
    presets: Mapping[str, Mapping[str, Plain]]
    cast: tuple[Role, ...]
    unlike: Unlike
    extra_rounds: int
    network: str
    contract: Contract
    sentences: tuple[str, ...]
    claims: tuple[str, ...]
    weights: bool
    sample: bool
    augments: bool
    digest: Digest


@dataclass(frozen=True)
class DraftRequest:
    """An experiment to be checked before anybody is asked. initial_weights: their digest, or nothing."""

    method: str
    preset: str | None
    config: Mapping[str, Plain]
    world: World
    roster: Roster
    initial_weights: str = ""
    sampling: Sampling | None = None
    scoring: Scoring = NO_MORE
    augment: Augment = NO_AUGMENT
    computing: Computing | None = None
    wire: Wire = NO_WIRE
    privacy: Privacy | None = None
    secure_sums: SecureSums | None = None


@dataclass(frozen=True)
class Draft:
    """A checked experiment: all settings, the plan's facts, the contract. The names are those of RunSpec."""

    config: Mapping[str, Plain]
    world: World
    plan: tuple[PhaseFact, ...]
    contract: Contract
    digest: Digest
    keeps: bool
    notes: tuple[str, ...]
    kept: tuple[str, ...]
    admins: bool
    initial_weights: Digest | None = None
    initial_weights_bytes: int = 0
    network: NetworkPrint | None = None
    privacy: Privacy | None = None
    epsilon: float | None = None
    charges: Mapping[str, tuple[Charge, ...]] | None = None


@dataclass(frozen=True)
class BeginRequest:
    """A run whose sites have joined.

    with_checkpoint  whether the first state is written
    available        who is drawn before others, where the run's sampling goes by that; so in CloseRequest
    """

    spec: RunSpec
    roster: Roster
    with_checkpoint: bool
    available: frozenset[ClientId] = frozenset()


@dataclass(frozen=True)
class RecordedRound:
    """A round as the journal has it: the digests of what each client was asked, and of what those answered that are folded."""

    cursor: int
    asked: Mapping[ClientId, Digest]
    replies: Mapping[ClientId, Digest]
    metrics: Mapping[ClientId, Mapping[str, float]]


@dataclass(frozen=True)
class Checkpoint:
    """A state that was kept, and the cursor that it waits at."""

    cursor: int
    state: Digest


@dataclass(frozen=True)
class CloseRequest:
    """A round to be folded. history: the rounds since the checkpoint. with_checkpoint: whether the state after it is written."""

    spec: RunSpec
    roster: Roster
    checkpoint: Checkpoint
    history: tuple[RecordedRound, ...]
    closing: RecordedRound
    with_checkpoint: bool
    available: frozenset[ClientId] = frozenset()


@dataclass(frozen=True)
class CheckRequest:
    """A reply with its metrics, held to its declaration. asked, reply: the roots of the order's message and of the reply's."""

    spec: RunSpec
    cursor: int
    asked: Digest
    reply: Digest
    metrics: Mapping[str, float] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True)
class NextRound:
    """What comes after a fold: the cursor that waits for replies, and what each client is asked.

    done         whether the plan has ended
    state        files of the state, where it is kept or the last; `sealed`: the values for peers that it names
    orders       the files of each client's message; `handles`: the values for peers that it names
    marks, groups, tables   what the fold reports (core.phase.Folded)
    fingerprint  what equal bytes depend on: torch, processor, threads
    """

    cursor: int
    done: bool
    state: Files
    sealed: tuple[AnyHandle, ...]
    orders: Mapping[ClientId, Files]
    handles: Mapping[ClientId, tuple[AnyHandle, ...]]
    fingerprint: str
    marks: Mapping[str, tuple[ClientId, ...]] = field(default_factory=lambda: EMPTY)
    groups: Mapping[str, tuple[ClientId, ...]] = field(default_factory=lambda: EMPTY)
    tables: Mapping[str, Table] = field(default_factory=lambda: EMPTY)


class Compute(Protocol):
    """The coordinator's numbers, inline or in a process of their own. Calls have no effect but parts."""

    def methods(self) -> tuple[MethodSummary, ...]:
        """Every method."""

    def describe(self, method: str, preset: str | None = None, secure_sums: bool = False) -> MethodFacts:
        """One method, with the contract of its defaults or of a preset. Raises NotFound, ConfigRefused."""

    def draft(self, asked: DraftRequest) -> Draft:
        """Check an experiment. Raises Refused errors with `context["path"]`."""

    def begin(self, asked: BeginRequest) -> NextRound:
        """The first state and the first orders."""

    def close(self, asked: CloseRequest) -> NextRound:
        """Fold a round. Raises StepFailed, Diverged."""

    def check(self, asked: CheckRequest) -> None:
        """Hold a reply to its declaration. Raises Malformed errors."""
