"""What a user asks for under a key is done once: what was asked, and what was answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """What a user got. It has no secret (see engine.coordinator.idempotency)."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: str


@dataclass(frozen=True)
class IdempotencyRecord:
    """What a user asked for under a key: sent again, it is not done again. Forgotten a day after it was `made`.

    key     a hash of the key               asked    a hash of all that was asked for
    seed    what the effect is named after  worker   who is at it; empty: nobody
    chosen  what the first try went by, and every later one does
    """

    key: str
    asked: str
    seed: str
    made: float
    worker: str = ""
    chosen: Mapping[str, int] | None = None
    answer: Answer | None = None
