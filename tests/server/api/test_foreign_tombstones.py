"""What is left of a deleted run is as foreign to other projects as the run was."""

from __future__ import annotations

import pytest
from api_world import EXPERIMENT, Coordinator, refused
from test_api_projects import fresh, normal

GHOST = "0123456789ab"


@pytest.fixture(scope="module")
def deleted() -> tuple[Coordinator, str, dict[str, str]]:
    """A door where a run of the default project was deleted; the run, and an operator's key of another project."""
    door = fresh()
    native = door.add_key("native", "operator")
    run = str(door.post("/runs", EXPERIMENT, headers=native).json()["run"])
    door.play(run)
    assert door.send("DELETE", f"/runs/{run}", headers=native).json()["project"] == "default"
    refused(door.send("GET", f"/runs/{run}", headers=native), 410, "Deleted")
    return door, run, door.add_key("foreign", "operator", "retina")


def test_it_is_as_one_that_never_was(deleted: tuple[Coordinator, str, dict[str, str]], subtests: pytest.Subtests) -> None:
    """Status and body tell nobody that there was a run."""
    door, run, foreign = deleted
    for call in ("GET ", "GET /events", "GET /files", "POST /cancel", "POST /resume", "DELETE "):
        with subtests.test(call):
            method, _, tail = call.partition(" ")
            answers = [door.send(method, f"/runs/{name}{tail}", headers=foreign) for name in (run, GHOST)]
            assert [answer.status_code for answer in answers] == [404, 404]
            assert normal(answers[0].text, run) == normal(answers[1].text, GHOST)


def test_what_is_deleted_next_is_of_every_project(deleted: tuple[Coordinator, str, dict[str, str]]) -> None:
    """So a key of one project does not see it."""
    door, _, foreign = deleted
    assert door.get("/retention", headers=foreign).status_code == 403
