"""Calls as plain data: of Compute at the coordinator, of Pool at a site. Only where they cross into another process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from tideline.core.errors import NotFound
from tideline.core.settings import Plain, parse, plain, read
from tideline.engine.ports.compute import (
    BeginRequest,
    CheckRequest,
    CloseRequest,
    Compute,
    Draft,
    DraftRequest,
    MethodFacts,
    MethodSummary,
    NextRound,
)
from tideline.engine.ports.site import Done, Job

T = TypeVar("T")
GIVES = "gives"


@dataclass(frozen=True)
class Call(Generic[T]):
    """A call by name: the types of what it takes, by their names, and of what it gives."""

    name: str
    takes: Mapping[str, Any]
    gives: Any

    def result(self, answer: Mapping[str, Plain]) -> T:
        """What the call gave, from plain data."""
        return cast(T, None if self.gives is None else read(self.gives, answer[GIVES], self.name))


METHODS = Call[tuple[MethodSummary, ...]]("methods", {}, tuple[MethodSummary, ...])
DESCRIBE = Call[MethodFacts]("describe", {"method": str, "preset": str | None}, MethodFacts)
DRAFT = Call[Draft]("draft", {"asked": DraftRequest}, Draft)
BEGIN = Call[NextRound]("begin", {"asked": BeginRequest}, NextRound)
CLOSE = Call[NextRound]("close", {"asked": CloseRequest}, NextRound)
CHECK = Call[None]("check", {"asked": CheckRequest}, None)
CALLS: Mapping[str, Call[Any]] = {call.name: call for call in (METHODS, DESCRIBE, DRAFT, BEGIN, CLOSE, CHECK)}


def answered(compute: Compute, name: str, payload: Mapping[str, Plain]) -> Mapping[str, Plain]:
    """A call made of plain data, and its result as plain data. Raises NotFound for an unknown one, else what the call raises."""
    if name not in CALLS:
        raise NotFound(f"The worker has no call {name!r}")
    given = {key: read(kind, payload[key], key) for key, kind in CALLS[name].takes.items()}
    return {GIVES: plain(getattr(compute, name)(**given))}


def job_in(raw: Mapping[str, Plain]) -> Job:
    """A job from plain data."""
    return parse(Job, raw, "job")


def done_in(raw: Mapping[str, Plain]) -> Done:
    """A finished step from plain data. Values for peers come as handles with their readers, never as values."""
    return parse(Done, raw, "done")
