"""What a rehearsal comes to, as users read it: the keys of docs/rehearsal.md."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class Interval(TypedDict):
    """A number, and the ends of its interval."""

    value: float
    low: float
    high: float


class RehearsedAt(TypedDict):
    """A labelled site that played the target: what each candidate had and gained there, over all of its rows."""

    name: str
    accuracy: dict[str, float]
    gain: dict[str, float]


class ExpectedAt(TypedDict):
    """A target: the weight of each candidate that was chosen, and what to expect."""

    name: str
    chosen: dict[str, float]
    gain: Interval | None
    accuracy: Interval | None
    trust: str
    distance: float
    changed: NotRequired[float | None]


class Verdict(TypedDict):
    """What a rehearsal comes to."""

    rule: str
    candidates: list[str]
    rehearsed_at: list[str]
    left_out: dict[str, str]
    candidates_left_out: dict[str, str]
    sites: list[RehearsedAt]
    gains: dict[str, Interval]
    targets: list[ExpectedAt]
    runs: dict[str, str]
    not_run: dict[str, str]
    unfinished: int
    bytes: NotRequired[int | None]
