"""Plans in processes of their own: made, refused, ended, and no more at once than there is room for."""

from __future__ import annotations

import threading

import pytest

from tests.planning.cases import MEASURED, changed, entry
from tideline.core.errors import ConfigRefused, FederationError, Unreachable
from tideline.planning.links import plan_links
from tideline_server.planner import ONE_THREAD, ProcessPlanner, check_seconds


def test_a_plan_is_made_elsewhere() -> None:
    """The same as here; a refusal comes back as what it was; afterwards there is no process."""
    planner = ProcessPlanner()
    try:
        assert planner.plan(MEASURED) == plan_links(MEASURED)
        with pytest.raises(ConfigRefused) as caught:
            planner.plan(entry("d", 0, 2, None))
        assert caught.value.context == {"path": "d[0][2]", "devices": ["anna", "carl"]}
        assert not planner._working
    finally:
        planner.close()


def test_a_plan_that_takes_too_long_is_ended() -> None:
    """Its process has not even begun to search."""
    planner = ProcessPlanner(grace=-0.09)
    with pytest.raises(ConfigRefused, match=r"no plan after 0\.01 s") as caught:
        planner.plan(changed(MEASURED, seconds=0.1))
    assert caught.value.context["path"] == "seconds" and not planner._working


def test_there_is_room_for_so_many() -> None:
    """Whoever is one too many is told when to come back, and holds no place."""
    planner = ProcessPlanner(abreast=0)
    for _ in range(2):
        with pytest.raises(Unreachable) as caught:
            planner.plan(MEASURED)
        assert caught.value.context["retry_after"] == 2


def test_an_end_ends_plans() -> None:
    """Whoever waits for one is told; after the end there are none."""
    planner, told = ProcessPlanner(), list[FederationError]()

    def ask() -> None:
        try:
            while True:
                planner.plan(MEASURED)
        except FederationError as error:
            told.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    planner.close()
    thread.join(60)
    assert isinstance(told[0], Unreachable) and not planner._working
    with pytest.raises(Unreachable, match="is ending"):
        planner.plan(MEASURED)


def test_what_guests_may_ask_for() -> None:
    """Some seconds of a process with one thread."""
    for seconds in (20.0, 0, -1, None, "long", True):
        check_seconds({"seconds": seconds})  # what is no number of seconds is refused where it is planned
    with pytest.raises(ConfigRefused) as caught:
        check_seconds({"seconds": 20.5})
    assert caught.value.context["path"] == "seconds" and set(ONE_THREAD.values()) == {"1"}
