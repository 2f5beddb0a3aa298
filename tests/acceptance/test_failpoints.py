"""Some points at which processes are killed (`python -m tests.acceptance.failpoints`: all), and each fault of the scenarios."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.failpoints import Range, die_in_run, firing_range, share, undisturbed
from tests.acceptance.scenarios import DEFAULT_LEASE, EVERY, play
from tests.services import why_no_postgres

pytestmark = pytest.mark.processes
POINTS = (
    "coordinator commit journal.advance before",
    "coordinator rename folder.name<folder.commit<part_store.<listcomp> after",
    "agent rename vault.commit<agent.ready<agent.handle before",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Range]:
    """A federation whose processes can be killed at points."""
    with firing_range(tmp_path_factory.mktemp("range")) as made:
        made.begin()
        yield made


@pytest.mark.nightly(job="journeys")  # a share of the points is played before a change lands, all of them at night
@pytest.mark.parametrize("point", POINTS)
def test_a_death_at_a_point_changes_nothing(place: Range, point: str) -> None:
    """The process is started again, and the run ends in the undisturbed bytes."""
    assert die_in_run(place, point, 0, undisturbed(place.data)) == ""


def test_a_share_of_the_points_is_the_same_each_time() -> None:
    """However they are found; an odd number takes points before and after something by turns."""
    found = [f"coordinator commit journal.{name} {when}" for name in "abcd" for when in ("after", "before")]
    assert share(reversed(found), "", 1) == found
    assert [point.split()[-2:] for point in share(found, "", 3)] == [
        ["journal.a", "after"],
        ["journal.b", "before"],
        ["journal.d", "after"],
    ]
    assert share(found, "journal.b", 1) == found[2:4]


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
