"""A few of the points at which processes are killed; `python -m tests.acceptance.failpoints` tries all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.failpoints import Range, die_in_run, firing_range, undisturbed

pytestmark = pytest.mark.processes
POINTS = (
    "coordinator commit journal.advance before",
    "coordinator rename folder.name<folder.commit<storeroom.<listcomp> after",
    "agent rename vault.commit<agent.ready<agent.handle before",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Range]:
    """A federation whose processes can be killed at points."""
    with firing_range(tmp_path_factory.mktemp("range")) as made:
        made.begin()
        yield made


@pytest.mark.parametrize("point", [*POINTS[:1], *(pytest.param(point, marks=pytest.mark.long) for point in POINTS[1:])])
def test_a_death_at_a_point_changes_nothing(place: Range, point: str) -> None:
    """The process is started again, and the run ends in the undisturbed bytes."""
    assert die_in_run(place, point, 0, undisturbed(place.data)) == ""
