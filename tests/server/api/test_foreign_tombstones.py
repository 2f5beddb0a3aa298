"""What is left of a deleted run is as foreign to other projects as the run was."""

from __future__ import annotations

import pytest
from api_world import EXPERIMENT, Coordinator, refused
from test_api_projects import fresh, normal

GHOST = "0123456789ab"
ADDRESSES = [("GET", ""), ("GET", "/events"), ("GET", "/files"), ("POST", "/cancel"), ("POST", "/resume"), ("DELETE", "")]


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


@pytest.mark.parametrize(("method", "tail"), ADDRESSES)
def test_it_is_as_one_that_never_was(deleted: tuple[Coordinator, str, dict[str, str]], method: str, tail: str) -> None:
    """Status and body tell nobody that there was a run."""
    door, run, foreign = deleted
    answers = [door.send(method, f"/runs/{name}{tail}", headers=foreign) for name in (run, GHOST)]
    assert [answer.status_code for answer in answers] == [404, 404]
    one, other = (normal(answer.text, name) for answer, name in zip(answers, (run, GHOST), strict=True))
    assert one == other


def test_what_is_deleted_next_is_of_every_project(deleted: tuple[Coordinator, str, dict[str, str]]) -> None:
    """So a key of one project does not see it."""
    door, _, foreign = deleted
    assert door.get("/retention", headers=foreign).status_code == 403
