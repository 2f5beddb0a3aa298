"""The page of private runs names every method: those that can be private, with what they do otherwise, and the others."""

from __future__ import annotations

import re
from pathlib import Path

from tideline.algorithms import METHODS
from tideline.core.algorithm import resolve
from tideline.engine.compute.private.metering import able

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "differential-privacy.md").read_text()
NAMED = re.compile(r"`(\w+)`")


def named(heading: str) -> set[str]:
    """The methods in the first column of a section's table."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")]
    return {name for cell in cells for name in NAMED.findall(cell)} & set(dict(METHODS))


def test_the_table_of_methods_is_the_registrys() -> None:
    assert named("Methods") == set(able(METHODS))


def test_who_cannot_stands_among_what_is_refused() -> None:
    assert set(dict(METHODS)) - set(able(METHODS)) <= named("What is refused")


def test_each_methods_page_tells_of_private_runs() -> None:
    for name, _ in METHODS:
        page = (DOCS / "methods" / f"{name}.md").read_text()
        refused = bool(resolve(METHODS, name).unprotected)
        assert ("**Refused in [private runs](../differential-privacy.md)**" in page) == refused, name
        assert refused or "**In a [private run](../differential-privacy.md)**" in page or name == "gaussian_heads", name
