"""A few of the points at which processes are killed; `python -m tests.acceptance.failpoints` tries all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.failpoints import Range, die_in_run, firing_range, share, undisturbed

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
