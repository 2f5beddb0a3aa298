"""Every line of the runbook is played by a test, and every chapter says what its reader needs."""

from __future__ import annotations

import re

from tests.acceptance.runbook import test_back_up, test_leave, test_move, test_renew, test_rotate
from tests.acceptance.runbook.book import PAGE, PLAYED, chapters
from tests.docs.manual import text_of

TESTS = (test_back_up, test_leave, test_move, test_renew, test_rotate)


def test_every_block_is_played() -> None:
    there = {(chapter, at) for chapter, blocks in chapters().items() for at in range(len(blocks))}
    assert set(PLAYED) == there
    assert {test for test in PLAYED.values() if not any(hasattr(module, test) for module in TESTS)} == set()


def test_every_chapter_is_whole() -> None:
    """When, what one needs, how one sees that it worked, and the way back."""
    for chapter in re.split(r"^## ", text_of(PAGE), flags=re.MULTILINE)[1:]:
        name = chapter.partition("\n")[0]
        wanted = ["**When:**", "**You need**", "**It worked**"] + ([] if name == "Back up" else ["**Go back"])
        assert [each for each in wanted if each not in chapter] == [], name
