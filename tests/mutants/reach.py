"""A plugin of pytest that records which tests execute which lines of what may be mutated.

    python -m pytest -p tests.mutants.reach -n 2      writes coverage's files beside $REACH, one for each worker

What a test's own processes execute is not recorded.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from coverage import Coverage, CoverageData

from tests.mutants.drawing import PLACES
from tests.planted.faults import ROOT

FOLDER = Path(os.environ.get("REACH", "reach"))
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")
seconds: dict[str, float] = {}
recorder = Coverage(
    data_file=str(FOLDER / f"{WORKER}.coverage"),
    config_file=False,
    include=[str(ROOT / place / "*") for place in PLACES],
    messages=False,
)


def pytest_configure() -> None:
    """Begin before the product is imported, so that what is executed at imports is recorded as well, under no test."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    recorder.start()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Record under the test's id."""
    recorder.switch_context(item.nodeid)
    began = time.monotonic()
    yield
    seconds[item.nodeid] = time.monotonic() - began
    recorder.switch_context("")


def pytest_unconfigure() -> None:
    """Write the files."""
    recorder.stop()
    with warnings.catch_warnings(action="ignore"):  # of a process that only hands tests to others
        recorder.save()
    (FOLDER / f"{WORKER}.json").write_text(json.dumps(seconds))


def seconds_by_test(folder: Path) -> dict[str, float]:
    """Return how long each recorded test took."""
    return {test: took for part in folder.glob("*.json") for test, took in json.loads(part.read_text()).items()}


def tests_by_line(folder: Path, path: str) -> dict[int, set[str]]:
    """Return for each line of a module (from the root) the ids of the tests that execute it."""
    reached: dict[int, set[str]] = {}
    for part in folder.glob("*.coverage"):
        data = CoverageData(basename=str(part))
        data.read()
        for file in data.measured_files():
            if file.endswith(f"/{path}"):  # wherever the tree lay that was recorded
                for line, tests in data.contexts_by_lineno(file).items():
                    reached.setdefault(line, set()).update(filter(None, tests))
    return reached
