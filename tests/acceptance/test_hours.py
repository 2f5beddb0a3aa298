"""Hours of computing over the network: agents measure, the coordinator sums and refuses, and nothing counts twice."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import SITES, WORLD, joined
from tests.acceptance.harness import Net
from tests.cli.world import tide
from tideline.core.errors import Refused

pytestmark = pytest.mark.processes
BRISK = {"method": "fedavg", "preset": "tiny", "world": WORLD, "reference": None}
QUIET = {"quiet": "source"}


def hours(there: Net, project: str = "default") -> dict[str, Any]:
    return dict(there.client().get(f"/projects/{project}/hours"))


@contextmanager
def limited(there: Net, **quota: float) -> Iterator[None]:
    """The default project has this quota for a while."""
    there.client().post("/projects/default/limit", quota)
    try:
        yield
    finally:
        there.client().post("/projects/default/limit", {})


def test_from_a_step_to_a_refusal(federation: Net) -> None:
    """A run's hours are in its result, in the project's month, in its list and in the metrics; then they are its quota."""
    before = hours(federation)
    run = federation.run(BRISK | {"roster": SITES})
    found = federation.ended(run)
    assert found["status"] == "completed"
    spent, after = found["spent"], hours(federation)
    assert spent["cpu_hours"] > 0.0 == spent["gpu_hours"] and spent["unreported"] == 0
    assert spent["reported"] == sum(phase["replies"] for phase in found["phases"])
    assert spent["cpu_hours"] == pytest.approx(sum(client["spent"]["cpu_hours"] for client in found["clients"]))
    assert after["cpu_hours"] == pytest.approx(before["cpu_hours"] + spent["cpu_hours"])
    assert after["reported"] == before["reported"] + spent["reported"]
    assert {site["name"] for site in after["clients"]} >= set(SITES)
    assert sum(day["cpu_hours"] for day in after["days"]) == pytest.approx(after["cpu_hours"])
    shown = tide("projects", "show", "default", "--home", str(federation.folder))
    assert shown.exit_code == 0 and "CPU h" in shown.stdout and after["month"] in shown.stdout
    assert "CPU hours" in tide("run", "show", run, "--home", str(federation.folder)).stdout
    with limited(federation, cpu_hours=after["cpu_hours"] / 2, gpu_hours=1.0):
        with pytest.raises(Refused, match=r"has used .* CPU hours in .*, and its quota is") as refused:
            federation.run(BRISK | {"roster": SITES})
        assert refused.value.context["frees"] == after["frees"] and "00:00 UTC" in refused.value.todo
        listed = next(each for each in federation.client().get("/projects") if each["name"] == "default")
        assert listed["cpu_hours"] == pytest.approx(after["cpu_hours"]) and listed["most_gpu_hours"] == 1.0
        federation.until(lambda: 'tideline_project_gpu_hours_quota{project="default"} 1.0' in numbers(federation), "the gauge")
    federation.client().delete(f"/runs/{run}")
    assert hours(federation)["cpu_hours"] == pytest.approx(after["cpu_hours"])
    federation.completed(federation.run(BRISK | {"roster": SITES}))


def numbers(there: Net) -> str:
    key = (there.folder / "admin.key").read_text().strip()
    request = urllib.request.Request(f"http://127.0.0.1:{there.http}/metrics", headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=60.0) as answer:
        return str(answer.read().decode())


def test_an_owner_who_forbids_notes_tells_no_hours(federation: Net, data: dict[str, Path]) -> None:
    with joined(federation, {"quiet": data["a"]}, QUIET, "--no-notes"):
        found = federation.ended(federation.run(BRISK | {"roster": QUIET}))
    assert found["status"] == "completed" and found["spent"] is None
    line = next(site for site in hours(federation)["clients"] if site["name"] == "quiet")
    assert (line["reported"], line["cpu_hours"]) == (0, 0.0) and line["unreported"] > 1
