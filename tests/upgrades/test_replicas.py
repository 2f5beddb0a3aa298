"""Two coordinators on one database are upgraded one after the other: the other one serves meanwhile, in either version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import own_schema
from tests.redis import Redis
from tests.upgrades.pair import NEW, OLD, SITES, Pair, experiment, pair
from tests.upgrades.trees import Released

pytestmark = [pytest.mark.processes, pytest.mark.nightly(job="upgrades"), pytest.mark.timeout(1800)]
ROUNDS = 25
ONE, TWO = "one", "two"


def amid_a_run(there: Pair, expected: str, name: str, code: str, by: str) -> None:
    """Change one process while a run goes on, which then ends as it should. by: the coordinator that is asked."""
    run = there.run_by(by, experiment("fedavg", ROUNDS))
    there.goes_on(run, by=by)
    assert there.open(run, by)
    there.change(name, code)
    there.until(lambda: not there.open(run, by), f"run {run} to end")
    result = there.client(by).get(f"/runs/{run}")
    assert (result["status"], result["state_digest"]) == ("completed", expected), result["cause"]
    assert "stalled" not in there.events(run)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    """One of the test's own."""
    made = Redis(tmp_path)
    yield made
    made.kill()


def test_one_replica_after_the_other(old: Released, redis: Redis, tmp_path: Path) -> None:
    """The first new one migrates the database beneath the old one, which goes on; agents of both versions are served by both."""
    with own_schema() as url, pair(tmp_path, old, url) as there:
        there.begin(ONE, TWO, more=("--redis", redis.url))  # by which they wake each other
        expected = there.undisturbed(OLD, experiment("fedavg", ROUNDS))
        for name, by in ((ONE, TWO), ("a", TWO), ("b", ONE), (TWO, ONE), ("c", TWO)):
            amid_a_run(there, expected, name, NEW, by)
        for name in SITES:
            amid_a_run(there, expected, name, OLD, ONE)
        assert not there.waited(ONE, TWO)
        back_together(there, old, url)


def back_together(there: Pair, old: Released, url: str) -> None:
    """No replica goes back alone: the database is not taken back beneath another one, and then both are started again."""
    there.halt(ONE)
    words = ("database", "downgrade", old.record.spoken.schema, "--database", url)
    refusal = there.tideline(NEW, *words, ok=False)
    assert "connections of coordinators" in refusal and "Stop every coordinator" in refusal, refusal
    there.halt(TWO)
    there.tideline(NEW, *words)
    for name in (ONE, TWO):
        there.change(name, OLD)
    run = there.run_by(ONE, experiment("fedavg", ROUNDS))
    there.until(lambda: not there.open(run, TWO), f"run {run} to end")
    assert there.client(TWO).get(f"/runs/{run}")["status"] == "completed"
