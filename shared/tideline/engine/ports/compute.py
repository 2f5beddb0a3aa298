"""The coordinator's numbers."""

from __future__ import annotations

from typing import Protocol

from tideline.engine.model.compute import (
    BeginRequest,
    CheckRequest,
    CloseRequest,
    Draft,
    DraftRequest,
    MethodFacts,
    MethodSummary,
    NextRound,
)


class Compute(Protocol):
    """The coordinator's numbers, inline or in a process of their own. Calls have no effect but parts."""

    def methods(self) -> tuple[MethodSummary, ...]:
        """Every method."""
        ...

    def describe(self, method: str, preset: str | None = None) -> MethodFacts:
        """One method, with the contract of its defaults or of a preset. Raises NotFound, ConfigRefused."""
        ...

    def draft(self, asked: DraftRequest) -> Draft:
        """Check an experiment. Raises Refused errors with `context["path"]`."""
        ...

    def begin(self, asked: BeginRequest) -> NextRound:
        """The first state and the first orders."""
        ...

    def close(self, asked: CloseRequest) -> NextRound:
        """Fold a round. Raises StepFailed, Diverged."""
        ...

    def check(self, asked: CheckRequest) -> None:
        """Hold a reply to its declaration. Raises Malformed errors."""
        ...
