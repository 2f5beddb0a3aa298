"""docs/secure-sums.md says of each method what the code does: which are summed, what is still seen, and which can have noise."""

from __future__ import annotations

import re

import pytest

from tests.docs.manual import DOCS, section, tables, text_of, ticked
from tideline.algorithms import METHODS
from tideline.archive.parts import MemoryParts
from tideline.engine.compute.drafts import Drafts

PAGE, CHANGES = DOCS / "secure-sums.md", DOCS.parent / "CHANGELOG.md"
DRAFTS = Drafts(MemoryParts(), METHODS)
ROWS = next(rows for rows in tables(text_of(PAGE)) if any("models" in row[1] for row in rows))
NUMBERS = ("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty")


def test_every_method_that_is_summed_has_a_line() -> None:
    assert sorted(name for row in ROWS for name in ticked(row[0])) == sorted(DRAFTS.summed_methods())


def test_the_changes_count_them() -> None:
    found = re.search(r"(\w+) methods have phases that are\s+summed", text_of(CHANGES))
    assert found and NUMBERS.index(found[1].lower()) + 10 == len(DRAFTS.summed_methods())


@pytest.mark.parametrize("name", DRAFTS.summed_methods())
def test_what_is_still_seen_is_more_than_scores_where_a_run_notes_more(name: str) -> None:
    """A row that says `scores` alone is of a method whose runs have no note of single sites."""
    (seen,) = (row[2] for row in ROWS if name in ticked(row[0]))
    algorithm = DRAFTS.played(name, True)
    _, notes = DRAFTS.in_sums(algorithm, algorithm.configure({}))
    assert not (notes and seen == "scores"), notes
    assert notes or seen.startswith("scores")


def test_methods_whose_sums_may_have_noise() -> None:
    said = section(PAGE, "Noise that protects whole sites")
    (line,) = re.findall(r"It is for methods whose sums are models.*?What else", said, re.S)
    assert sorted(ticked(line)) == sorted(DRAFTS.noised_methods())
