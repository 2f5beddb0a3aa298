"""Every job of the night is there, and every test has a tier."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.nightly import ROOT, Played, jobs, play, table
from tests.tiers import FIVE, FOLDERS, JOBS, folder_job, is_of_the_night, jobs_of, mark_tiers

EVERY = jobs(2)


class Item(SimpleNamespace):
    """A test as far as tiers look at it."""

    def get_closest_marker(self, name: str) -> Any:
        return next((mark for mark in self.marks if mark.name == name), None)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark.mark)


def item(file: str, test: str = "test_one", *marks: pytest.MarkDecorator, **params: Any) -> Any:
    """Return a test of a file; params: those that it is called with."""
    name = f"tests/{file}::{test}[{params}]"
    called = SimpleNamespace(params=params)
    return Item(nodeid=name, path=ROOT / "tests" / file, fixturenames=[], callspec=called, marks=[mark.mark for mark in marks])


def tiers(*items: Any) -> list[list[str]]:
    """Return the jobs of each test; an empty list stands for the quick tier."""
    mark_tiers(items, ROOT)
    return [jobs_of(item) for item in items]


def test_its_modules_and_files_are_there() -> None:
    """Each job is a module of ours, a file, or pytest over tests that are there."""
    for words in EVERY.values():
        module = words[1] if words[0] == "-m" else words[0].removesuffix(".py").replace("/", ".")
        path = ROOT / module.replace(".", "/")
        assert module == "pytest" or path.with_suffix(".py").exists() or (path / "__main__.py").exists(), words


def test_every_job_of_tests_is_played() -> None:
    """By its name; and each folder that belongs to a job exists."""
    assert set(EVERY) >= JOBS
    assert all((ROOT / folder).is_dir() for folder in FOLDERS)


def test_the_deepest_folder_decides() -> None:
    """A test outside of these folders is quick."""
    assert folder_job("tests/acceptance/dashboard/test_looks.py") == "browser"
    assert folder_job("tests/acceptance/test_links.py") == "acceptance"
    assert folder_job("tests/core/test_world.py") is None


def test_modules_of_the_night_are_not_loaded_for_the_quick_tier() -> None:
    """Unless one of their tests is quick."""
    names = ("acceptance/test_links.py", "acceptance/test_survival.py", "core/test_world.py", "acceptance")
    assert [is_of_the_night(ROOT / "tests" / name, ROOT) for name in names] == [True, False, False, False]


def test_a_test_may_say_where_it_belongs() -> None:
    """By a mark of its own, whatever its folder is."""
    quick, journeys = pytest.mark.quick, pytest.mark.nightly(job="journeys")
    found = tiers(
        item("core/a.py"), item("acceptance/a.py"), item("acceptance/b.py", "t", quick), item("acceptance/c.py", "t", journeys)
    )
    assert found == [[], ["acceptance"], [], ["journeys"]]


def test_a_postgres_is_played_at_night() -> None:
    """As a parameter, or as a fixture."""
    server = item("ports/b.py")
    server.fixturenames.append("address")
    assert tiers(item("ports/a.py", journal="sqlite"), item("ports/a.py", journal="postgres"), server) == [
        [],
        ["postgres"],
        ["postgres"],
    ]


def test_five_methods_stand_for_all() -> None:
    """Where a test plays many; where it plays few, and where it only reads a page, all are quick."""
    names = [*sorted(FIVE), "shot", "kd3a"]
    assert tiers(*(item("laws/a.py", method=name) for name in names)) == [[]] * 5 + [["methods"]] * 2
    assert tiers(*(item("docs/a.py", method=name) for name in names)) == [[]] * 7
    assert tiers(*(item("laws/a.py", method=name) for name in names[4:])) == [[]] * 3
    others = [f"other {i}" for i in range(7)]
    assert tiers(*(item("laws/a.py", case=SimpleNamespace(name=name)) for name in others)) == [[]] + [["methods"]] * 6


def test_a_job_that_does_not_exist_is_refused() -> None:
    """A test of it would never be played."""
    with pytest.raises(pytest.UsageError, match="there is no job nowhere"):
        tiers(item("core/a.py", "test_one", pytest.mark.nightly(job="nowhere")))


@pytest.mark.parametrize("code", [0, 3])
def test_a_job_is_played_to_its_end(code: int) -> None:
    """Its exit code is noted, and nothing is raised."""
    assert play("some", ("-c", f"raise SystemExit({code})")).code == code


def test_the_table_says_what_failed_and_what_took_too_long() -> None:
    """A line each, and the counts last."""
    lines = table([Played("ray", 0, 90.0), Played("soak", 1, 1500.0)])
    assert [line.split() for line in lines[:2]] == [["ray", "ok", "1.5", "min"], ["soak", "FAILED", "25.0", "min", "over", "20"]]
    assert lines[-1] == "1 passed, 1 failed in 1590 s"


def test_the_quick_tier_leaves_the_night_out() -> None:
    """pyproject.toml says so."""
    assert "-m 'not nightly'" in (Path(ROOT) / "pyproject.toml").read_text()
