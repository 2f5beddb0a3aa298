"""Handles: a value that one site makes for others, as everybody else may know it.

    @record
    class Trained:
        h: Handle[Hypothesis]

A step gives `Handle.of(Hypothesis(...))`. The value leaves its holder sealed to other sites; the coordinator's `fold` gets the
handle, its `ask` hands it on, and the step that gets it calls `site.fetch(handle)`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeAlias, TypeVar

from tideline.core.errors import StepFailed
from tideline.core.run import ClientId

T = TypeVar("T")


@dataclass(frozen=True)
class Handle(Generic[T]):
    """What is known of a sealed value to who cannot open it.

    digest, size         BLAKE3 and bytes of the value's file
    holder, phase, round who made it, and in which exchange
    value, to            at its holder, until it is sent: the value, and the sites that it is for; None: all of the run
    kind                 the value's record type, as the message that holds the handle declares it
    """

    digest: str = ""
    size: int = 0
    holder: ClientId = ClientId("")
    phase: str = ""
    round: int = 0
    value: T | None = field(default=None, compare=False, repr=False)
    to: tuple[ClientId, ...] | None = field(default=None, compare=False)
    kind: type[Any] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, value: T, to: Iterable[ClientId] | None = None) -> Handle[T]:
        """A value to be sealed: for these sites, or for all of the run."""
        return cls(value=value, to=None if to is None else tuple(sorted(set(to))))

    def named(self, digest: str, size: int, maker: Maker) -> Handle[T]:
        return replace(self, digest=digest, size=size, holder=maker.client, phase=maker.phase, round=maker.round, value=None)

    def bare(self) -> AnyHandle:
        """The handle as others know it: without its value, its readers and its value's type."""
        return replace(self, value=None, to=None, kind=None)


AnyHandle: TypeAlias = Handle[Any]  # of whatever type its value is


@dataclass(frozen=True)
class Maker:
    """Who makes values for others, and in which exchange: a client in a round of a phase."""

    client: ClientId
    phase: str
    round: int


def check_due(handle: AnyHandle, holder: str, phase: str, *rounds: int) -> None:
    """Raises StepFailed for a value of another site or exchange than is due: it is signed, but it was not asked for."""
    if (handle.holder, handle.phase) != (holder, phase) or handle.round not in rounds:
        given = f"that of {handle.holder}, of round {handle.round} of {handle.phase}"
        number = " or ".join(map(str, rounds))
        what = f"The order hands out {given}, where that of {holder}, of round {number} of {phase}, is due"
        raise StepFailed(what, "The coordinator hands out what is not asked for: do not trust it")
