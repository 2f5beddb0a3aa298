"""The oldest versions are those of pyproject.toml, the manual tells them, and where they cannot be had this is said."""

from __future__ import annotations

import re

import pytest
from packaging.requirements import Requirement

from tests.oldest import ROOT, TESTED, TOOLS, floors, no_index, tools

PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
EXTRAS = "[project.optional-dependencies]\ns3 = []\nparquet = []\n"
PAGE = ROOT / "docs" / "versions.md"


def test_each_is_one_version() -> None:
    """Of every dependency, with its extras; so no test meets a newer one."""
    made = [Requirement(line) for line in floors(PROJECT)]
    assert {"torch", "grpcio", "obstore", "pyarrow"} <= {each.name for each in made}
    assert all([mark.operator for mark in each.specifier] == ["=="] for each in made)
    assert "psycopg[binary]==3.2.1" in floors('[project]\ndependencies = ["psycopg[binary]>=3.2.1"]\n' + EXTRAS)


def test_the_manual_tells_them() -> None:
    """A row for each, and no other."""
    told = re.findall(r"^\| `([^`]+)` \| ([^ ]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    wanted = [line.split("==") for line in floors(PROJECT)]
    assert sorted(told) == sorted((re.sub(r"\[.*\]", "", name), version) for name, version in wanted)


def test_what_it_plays_is_there() -> None:
    """Tests, and the lines of the dev group that they need."""
    assert all((ROOT / each).exists() for each in TESTED)
    assert {Requirement(line).name for line in tools(PROJECT)} >= set(TOOLS)


@pytest.mark.parametrize(
    ("told", "away"),
    [
        ("WARNING: Retrying (Retry(total=4, ...)) after connection broken by 'NewConnectionError'", True),
        ("ERROR: Could not find a version that satisfies the requirement torch==2.6 (from versions: none)", True),
        ("Retrying (Retry(total=4))\nERROR: ResolutionImpossible: for help visit", False),
        ("ERROR: Could not find a version that satisfies the requirement torch==2.6 (from versions: 2.7, 2.8)", False),
    ],
)
def test_a_missing_index_is_told_from_versions_that_do_not_fit(told: str, away: bool) -> None:
    """By pip's own words: the first ends well and says what to do, the second is a fault of ours."""
    assert no_index(told) is away
