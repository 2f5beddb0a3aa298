"""Two of the faults of `python -m tests.acceptance.scenarios` in each run of the suite, and the others with -m long."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.acceptance.scenarios import DEFAULT_LEASE, EVERY, play
from tests.services import why_no_postgres

pytestmark = pytest.mark.processes
LEASE = 2.0
SHORT = ("6", "7")


def needed() -> None:
    """Skip where no Postgres can be started, loudly; in CI that is a failure."""
    if why_no_postgres() and os.environ.get("CI", "").lower() == "true":
        pytest.fail(why_no_postgres())
    if why_no_postgres():
        pytest.skip(why_no_postgres())


@pytest.mark.nightly(job="journeys")
def test_a_replica_takes_over(tmp_path: Path) -> None:
    """The coordinator that conducts a run is killed and stays away: the other closes the round once the lease has ended."""
    needed()
    told = play("6", tmp_path, LEASE)
    assert not told.wrong and told.same, told
    assert any("run_taken_over" in warning for warning in told.warnings), told.warnings


@pytest.mark.nightly(job="journeys")
def test_a_site_that_froze_with_its_order_open(tmp_path: Path) -> None:
    """Killed and started again it is offered the same order, and no step is counted twice."""
    told = play("7", tmp_path, LEASE)
    assert not told.wrong and told.same, told
    assert any("waiting for 1 of 3 sites (a)" in text for text in told.texts), told.texts


@pytest.mark.nightly(job="journeys")
@pytest.mark.parametrize("number", [number for number in EVERY if number not in SHORT])
def test_whatever_happens_the_run_goes_on(number: str, tmp_path: Path) -> None:
    """To the undisturbed bytes; within twice the lease, which the command holds it to."""
    told = play(number, tmp_path, DEFAULT_LEASE)
    assert not told.wrong and told.same, told
