"""The night plays every part, whatever happens to the others, and what it and .ci/run name is there."""

from __future__ import annotations

import re

import pytest

from tests.nightly import ROOT, Played, parts, play, table

PARTS = parts(2)


def test_its_modules_and_files_are_there() -> None:
    """Each part is a module of ours, a file, or pytest over tests that are there."""
    for words in PARTS.values():
        module = words[1] if words[0] == "-m" else words[0].removesuffix(".py").replace("/", ".")
        path = ROOT / module.replace(".", "/")
        assert module == "pytest" or path.with_suffix(".py").exists() or (path / "__main__.py").exists(), words


def test_no_test_is_left_out() -> None:
    """What the quick suite leaves out by its marks is played at night."""
    (left_out,) = re.findall(r"^addopts = .*-m '([^']+)'", (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE)
    assert left_out == "not long and not docker"
    played = [words[words.index("-m", 2) + 1] for words in PARTS.values() if words[1] == "pytest"]
    assert {"long and not docker", "docker"} <= set(played)


@pytest.mark.parametrize("code", [0, 3])
def test_a_part_is_played_to_its_end(code: int) -> None:
    """Its exit code is noted, and nothing is raised."""
    assert play("some", ("-c", f"raise SystemExit({code})")).code == code


def test_the_table_tells_what_failed() -> None:
    """A line each, and the counts last."""
    told = table([Played("long", 0, 90.0), Played("chaos", 1, 30.0)])
    assert [line.split() for line in told[:2]] == [["long", "ok", "1.5", "min"], ["chaos", "FAILED", "0.5", "min"]]
    assert told[-1] == "1 passed, 1 failed in 120 s"
