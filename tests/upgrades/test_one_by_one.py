"""One coordinator and its agents are upgraded one after the other while runs go on, and go back: the same bytes, no stall."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.harness import COORDINATOR
from tests.postgres import own_schema
from tests.upgrades.pair import NEW, OLD, SITES, Pair, experiment, pair
from tests.upgrades.trees import Released

pytestmark = pytest.mark.processes
# Methods whose numbers have changed on purpose since the last release: their runs end in bytes of neither.
OTHER_NUMBERS: frozenset[str] = frozenset()


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """None: SQLite in the home."""
    with own_schema() if request.param == "postgres" else nullcontext() as url:
        yield url


def agrees(there: Pair, run: str, given: dict[str, Any], versions: Sequence[str] = (OLD, NEW)) -> None:
    """The run has ended in the bytes of the undisturbed one, which both versions give, and never stalled."""
    result = there.ended(run)
    assert result["status"] == "completed", result["cause"]
    digests = {there.undisturbed(code, given) for code in versions}
    if given["method"] not in OTHER_NUMBERS:
        assert digests == {result["state_digest"]}, f"{digests}: the last release and this tree give other numbers"
    assert "stalled" not in there.events(run) and not there.waited(COORDINATOR)


@pytest.mark.timeout(900)
def test_a_coordinator_and_an_agent(old: Released, tmp_path: Path) -> None:
    """The short form, on SQLite: the first steps of an upgrade, of which one agent does not wait for its turn."""
    with pair(tmp_path, old) as there:
        there.begin(COORDINATOR)
        given = experiment("fedavg", 30)
        run = there.run(given)
        there.goes_on(run)
        there.change("b", NEW)
        there.goes_on(run)
        there.change(COORDINATOR, NEW)
        assert there.newest in there.tideline(NEW, "database", "show", "--home", str(there.folder))
        there.goes_on(run)
        assert there.open(run), "the run was over before everything had changed"
        there.change("a", NEW)
        agrees(there, run, given, (OLD,))


@pytest.mark.nightly(job="upgrades")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("database", ["sqlite", "postgres"], indirect=True)
def test_all_of_them_and_back(old: Released, tmp_path: Path, database: str | None) -> None:
    """FedAvg, and FADA, whose sites have a memory and seal for each other, go on through ten changes of code."""
    rounds = {"fedavg": 120, "fada": 16}
    with pair(tmp_path, old, database) as there:
        there.begin(COORDINATOR)
        given = {method: experiment(method, number) for method, number in rounds.items()}
        runs = {method: there.run(each) for method, each in given.items()}
        there.goes_on(*runs.values())
        for name in (COORDINATOR, *SITES):
            there.change(name, NEW)
            there.goes_on(*runs.values())
        for name in SITES:
            there.change(name, OLD)
            there.goes_on(*runs.values())
        assert all(there.open(run) for run in runs.values()), "a run was over before everything had changed"
        go_back(there, old)
        for method, run in runs.items():
            agrees(there, run, given[method])


def go_back(there: Pair, old: Released) -> None:
    """The last release refuses a database that is newer, with words; once it was taken back, it goes on with it."""
    where = ("--home", str(there.folder))
    there.halt(COORDINATOR)
    refusal = there.tideline(OLD, "coordinator", *where, "--grpc-port", "0", "--http-port", "0", ok=False)
    assert f"has schema revision {there.newest}" in refusal and "What to do:" in refusal, refusal
    shown = there.tideline(NEW, "database", "downgrade", old.record.spoken.schema, *where)
    assert f"stands at revision {old.record.spoken.schema}" in shown
    there.change(COORDINATOR, OLD)
