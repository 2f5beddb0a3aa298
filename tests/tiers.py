"""Which tests belong to the quick tier, and to which job of the night the others belong.

A test is quick unless it is marked `nightly(job="NAME")`. Three rules mark tests that do not say so themselves:

- all tests of the folders in FOLDERS, but for those that are marked `quick`;
- tests that play every method: in the quick tier five methods stand for all of them;
- tests on a Postgres, but for those that are marked `quick`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

import pytest

QUICK_TIER = "not nightly"  # what pyproject.toml selects
# Jobs that pytest plays. The longer path decides.
FOLDERS = {
    "tests/acceptance": "acceptance",
    "tests/acceptance/dashboard": "browser",
    "tests/acceptance/firewall": "firewall",
    "tests/acceptance/hostile": "hostile",
    "tests/acceptance/runbook": "runbook",
    "tests/docker": "containers",
    "tests/tracking": "trackers",
    "tests/upgrades": "upgrades",
}
JOBS = frozenset({*FOLDERS.values(), "benchmarks", "formats", "journeys", "methods", "numbers", "postgres", "ray", "services"})
# The five methods that differ most: an average, a dictionary, a hypernetwork, clusters of models, and models that travel sealed.
FIVE = frozenset({"fedavg", "feddadil", "fedwca", "hfedf", "stlf"})
# Where a test that is played for more methods than five is played for the others at night.
OF_ALL_METHODS = ("tests/engine", "tests/frozen", "tests/laws", "tests/learning", "tests/secure", "tests/site")
POSTGRES = frozenset({"schema", "address"})  # fixtures


def mark_tiers(items: Iterable[pytest.Item], root: Path) -> None:
    """Mark what belongs to the night. Raises UsageError for a job that does not exist."""
    for item in items:
        place = item.path.relative_to(root).as_posix()
        if job := folder_job(place):
            mark_nightly(item, job)
        elif needs_postgres(item):
            mark_nightly(item, "postgres")
    for _, functions in groupby(items, key=lambda item: item.nodeid.partition("[")[0]):
        for item in all_but_five(list(functions), root):
            mark_nightly(item, "methods")
    if odd := {job for item in items for job in jobs_of(item)} - JOBS:
        raise pytest.UsageError(f"there is no job {', '.join(sorted(odd))} of the night; tests/tiers.py lists them")


def mark_nightly(item: pytest.Item, job: str) -> None:
    """Mark a test for a job, unless it says itself where it belongs."""
    if not (item.get_closest_marker("quick") or item.get_closest_marker("nightly")):
        item.add_marker(pytest.mark.nightly(job=job))


def folder_job(place: str) -> str | None:
    """Return the job of a file's folder, given its path from the root."""
    folders = [folder for folder in FOLDERS if place.startswith(f"{folder}/")]
    return FOLDERS[max(folders, key=len)] if folders else None


def is_of_the_night(path: Path, root: Path) -> bool:
    """Return True for a module in a folder of the night that marks none of its tests as quick."""
    named = path.name.startswith("test_") and folder_job(path.relative_to(root).as_posix()) is not None
    return named and "mark.quick" not in path.read_text(encoding="utf-8")


def needs_postgres(item: pytest.Item) -> bool:
    """Return True if a fixture or a parameter of the test is a Postgres."""
    values = getattr(getattr(item, "callspec", None), "params", {}).values()
    return bool(POSTGRES & set(getattr(item, "fixturenames", ()))) or any(isinstance(x, str) and x == "postgres" for x in values)


def all_but_five(items: list[pytest.Item], root: Path) -> Iterator[pytest.Item]:
    """Yield, of one function's tests, those of methods that others stand for."""
    methods = [method_of(item) for item in items]
    if len(set(methods)) > len(FIVE) and items[0].path.relative_to(root).as_posix().startswith(OF_ALL_METHODS):
        standing = FIVE & set(methods) or {methods[0]}
        yield from (item for item, method in zip(items, methods, strict=True) if method is not None and method not in standing)


def method_of(item: pytest.Item) -> str | None:
    """Return the name of the method that a test plays, by its parameter `method`, `name` or `case`."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    values = [params[key] for key in ("method", "name", "case") if key in params]
    return str(getattr(values[0], "name", values[0])) if values else None


def jobs_of(item: pytest.Item) -> list[str]:
    """Return the jobs that a test is marked for: one, or none if it is quick."""
    mark = item.get_closest_marker("nightly")
    return [] if mark is None else [str(mark.kwargs.get("job", "?"))]
