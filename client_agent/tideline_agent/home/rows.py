"""The caches of decoded rows in an agent's home, for the site's owner: how large they are, and to delete them. Loads no torch."""

from __future__ import annotations

from pathlib import Path

from tideline.learning.cache.folder import ROWS, Folder


def taken_by_rows(home: Path) -> tuple[int, int]:
    """How many caches there are, and their bytes."""
    stored = Folder(home / ROWS).stored()
    return len(stored), sum(each.size for each in stored)


def forget_rows(home: Path) -> tuple[int, int]:
    """Delete those that no trainer reads: how many, and the bytes that were freed. They are made again when they are needed."""
    return Folder(home / ROWS).forget()
