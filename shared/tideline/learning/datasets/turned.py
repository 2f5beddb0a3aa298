"""One style of digits for several sites. The cameras of half of them hang upside down, so that a turned 6 is there a 9."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tideline.core.run import Role
from tideline.learning.datasets.digits import DEAL_SEED, load, write_rows
from tideline.learning.partition.deals import at_random

HELD, TARGET_HELD = 0.2, 0.5  # shares of a site's rows; those that a target is scored by should be many


def write_sites(folders: Sequence[Path], domain: str, roles: Sequence[str]) -> list[dict[str, int]]:
    """A data folder for each site; how many rows are for training and how many are held out.

    Each has a part of the domain, dealt at random. Raises ConfigRefused for an unknown domain.
    """
    raw, written = load(domain), []
    parts = at_random(len(raw.y), len(folders), DEAL_SEED)
    for folder, rows, role, half_turn in zip(folders, parts, roles, turned(roles), strict=True):
        n = min(max(round(len(rows) * (TARGET_HELD if role == Role.TARGET else HELD)), 1), len(rows) - 1)
        seen = raw.half_turned() if half_turn else raw
        written.append(write_rows(folder, domain, seen, train=rows[n:], held=rows[:n]))
    return written


def turned(roles: Sequence[str]) -> list[bool]:
    """Whose camera hangs upside down: every other labelled one, and of the others those in between. Of one labelled site none."""
    labelled = np.array([role != Role.TARGET for role in roles])
    odd = np.where(labelled, labelled.cumsum() % 2 == 0, (~labelled).cumsum() % 2 == 1)
    return [bool(each) for each in odd & (labelled.sum() > 1)]
