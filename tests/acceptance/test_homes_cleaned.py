"""Runs that are deleted at the coordinator, and what real agents do about it: as their owners' policies say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.conftest import WORLD, write_blobs
from tests.acceptance.harness import Net, net

pytestmark = pytest.mark.processes
GIVEN = {"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": {"anna": "source", "bert": "source", "cyd": "source"}}
SAID = {"anna": "follow", "bert": "ask", "cyd": "keep"}


def runs_in(made: Net, name: str) -> set[str]:
    """The runs of which an agent's home has files."""
    return {folder.name for folder in (made.home / f"home-{name}" / "runs").iterdir()}


@pytest.mark.nightly(job="journeys")
def test_agents_hear_of_a_deletion_when_they_come_back(tmp_path: Path) -> None:
    """One deletes what it has, one asks its owner, one does nothing; what they still need stays, and the ledgers tell."""
    with net(tmp_path) as made:
        made.coordinator()
        for at, (name, said) in enumerate(SAID.items()):
            made.agent(name, write_blobs(tmp_path / name, at), "source", *made.policy(f"[retention]\non_delete = '{said}'\n"))
        gone, stays = (made.run({**GIVEN, "seed": seed}) for seed in (1, 2))
        assert [made.ended(run)["status"] for run in (gone, stays)] == ["completed", "completed"]
        for name in SAID:
            made.kill(name)
            assert runs_in(made, name) == {gone, stays}
        made.client().delete(f"/runs/{gone}")
        for name in SAID:
            made.again(name)
        made.until(lambda: runs_in(made, "anna") == {stays}, "anna to delete the run")
        made.until(lambda: "runs_deleted_elsewhere" in made.log("bert"), "bert to hear of it")
        assert runs_in(made, "bert") == runs_in(made, "cyd") == {gone, stays}
        (due,) = made.owner("bert", "clean", "--dry-run")["due"]
        assert (due["run"], due["why"]) == (gone, "deleted at the coordinator")
        assert made.owner("cyd", "clean", "--dry-run")["due"] == [] and not (made.home / "home-cyd" / "deleted.json").exists()
        assert made.owner("bert", "clean", "--yes")["forgotten"] == [gone] and runs_in(made, "bert") == {stays}
        for name in ("anna", "bert"):
            (entry,) = [each for each in made.owner(name, "ledger", "list") if each["kind"] == "forgotten"]
            assert (entry["run"], entry["details"]["why"]) == (gone, "deleted at the coordinator")
            assert made.owner(name, "ledger", "verify")["entries"] >= entry["seq"]
