"""What an agent does now, as its owner's page shows it."""

from __future__ import annotations

from typing import NamedTuple


class Work(NamedTuple):
    """An order that is being lived. since: seconds from 1970. progress: from 0 to 1."""

    run: str
    phase: str
    step: str
    round: int
    progress: float
    since: float
