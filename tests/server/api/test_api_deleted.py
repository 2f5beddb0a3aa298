"""Runs are deleted over HTTP; what remains is told."""

from __future__ import annotations

from api_world import Coordinator, refused

from tideline.engine.coordinator.retention.deleting import Deleting
from tideline.engine.coordinator.retention.keeping import DAY, Retention, Rules
from tideline.engine.model.deletion import Cutoffs


def test_a_deleted_run_is_gone(coordinator: Coordinator) -> None:
    """Every address of it answers 410, and says when it was deleted."""
    run = coordinator.start(name="<b>bold</b>")
    coordinator.play(run)
    first = coordinator.send("DELETE", f"/runs/{run}")
    assert (first.status_code, first.json()["run"], first.json()["status"]) == (200, run, "completed")
    for method, tail in (("GET", ""), ("GET", "/events"), ("GET", "/files"), ("POST", "/cancel")):
        error = refused(coordinator.send(method, f"/runs/{run}{tail}"), 410, "Deleted")
        assert f"Run {run} (<b>bold</b>) was deleted at " in error["detail"], tail
    assert coordinator.send("DELETE", f"/runs/{run}").json() == first.json()
    assert run not in [row["id"] for row in coordinator.get("/runs").json()]


def test_an_open_run_is_not_deleted(coordinator: Coordinator) -> None:
    """It is a conflict, with what to do."""
    run = coordinator.start()
    error = refused(coordinator.send("DELETE", f"/runs/{run}"), 409, "Refused")
    assert f"tideline run cancel {run}" in error["todo"]


def test_a_reference_goes_with_its_run(coordinator: Coordinator) -> None:
    """Alone it stays: the run is compared with it."""
    run = coordinator.start(method="fedprox", reference={"method": "fedavg"})
    reference = coordinator.get(f"/runs/{run}").json()["reference"]
    coordinator.post(f"/runs/{run}/cancel")
    error = refused(coordinator.send("DELETE", f"/runs/{reference}"), 409, "Refused")
    assert error["context"]["reasons"] == [f"{run} is compared with it, or rehearsed by it"]
    assert coordinator.send("DELETE", f"/runs/{run}").status_code == 200
    assert coordinator.get(f"/runs/{reference}").status_code == 410


def test_what_goes_next_is_shown(coordinator: Coordinator) -> None:
    """Without rules nothing does."""
    shown = coordinator.get("/retention").json()
    assert (shown["runs_days"], shown["events_days"], shown["runs"], shown["events"]) == (0.0, 0.0, [], 0)
    assert (shown["projects"], shown["audit_days"], shown["audit_entries"], shown["audit_trouble"]) == ([], 0.0, 0, False)


class NoEvents:
    """A journal without old events."""

    def drop_events(self, before: Cutoffs, most: int) -> int:
        """None."""
        return 0

    def old_events(self, before: Cutoffs) -> int:
        """None."""
        return 0


def test_a_run_that_is_old_goes_next() -> None:
    """With its name and its end."""
    there = Coordinator()
    there.wear(retention=Retention(Deleting(there.federation.run_service), NoEvents(), Rules(runs_days=1.0)))
    run = there.start()
    there.post(f"/runs/{run}/cancel")
    there.federation.clock.advance(2.0 * DAY)
    (row,) = there.get("/retention").json()["runs"]
    assert (row["run"], row["name"]) == (run, "a small one")
