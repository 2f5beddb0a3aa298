"""Both ends say which API they speak."""

from __future__ import annotations

import pytest
from api_world import EXPERIMENT, Coordinator, refused

from tideline.client import http
from tideline_server.api.requests import wrapping as handshake


def test_both_sides_speak_the_same() -> None:
    """The command line and the coordinator of one version have the same names and number."""
    assert (http.API, http.VERSION, http.SPOKEN) == (handshake.API, handshake.VERSION, handshake.SPOKEN)


def test_every_answer_says_what_is_spoken(coordinator: Coordinator, door: Coordinator) -> None:
    """Refusals, too, and those to strangers."""
    for path in ("/runs", "/health", "/nowhere", "/openapi.json", "/runs/nosuch"):
        for answer in (coordinator.get(path), door.get(path)):
            assert (answer.headers["tideline-version"], answer.headers["tideline-api"]) == ("1.2.3", "2"), path


def test_another_api_is_refused_with_both_versions(coordinator: Coordinator, subtests: pytest.Subtests) -> None:
    """An older one too: it would read our errors as those of a stranger. Nothing is done."""
    for said in ("1", "3", "999999999", "two", "", "-2"):
        with subtests.test(said):
            headers = {"Tideline-Api": said, "Tideline-Version": "9.8"}
            error = refused(coordinator.post("/runs", EXPERIMENT, headers=headers), 400, "VersionRefused")
            assert f"API {said} (tideline 9.8)" in error["detail"] and "tideline 1.2.3 and speaks API 2" in error["detail"]
            assert error["todo"] == f"Upgrade the {'tideline that calls' if said == '1' else 'coordinator'}"
            assert error["context"] == {"speaks": 2, "oldest": 2, "version": "1.2.3"}
    assert coordinator.get("/runs").json() == []


def test_who_says_nothing_is_served(coordinator: Coordinator) -> None:
    """curl, browsers, and who says the right thing; what needs no key is told to all, so that they find out."""
    assert coordinator.get("/runs").status_code == coordinator.get("/runs", headers={"Tideline-Api": "2"}).status_code == 200
    assert coordinator.get("/health", headers={"Tideline-Api": "77"}).json()["version"] == "1.2.3"


# What the tideline of before sends: it said nothing of itself.
RECORDED = [(b"accept", b"*/*"), (b"accept-encoding", b"gzip, deflate"), (b"user-agent", b"python-httpx/0.28.1")]


def test_a_recorded_call_of_before_is_served(coordinator: Coordinator) -> None:
    """Its success is what it was; answers have more members and headers at most."""
    body = b'{"method":"fedavg","roster":{"anna":"source"}}'
    headers = [*RECORDED, (b"content-type", b"application/json"), (b"idempotency-key", b"1596262e-3c20-4886-9fcf-7e50080276b5")]
    started = coordinator.send("POST", "/runs", content=body, headers=headers)
    assert started.status_code == 201 and set(started.json()) >= {"run", "reference", "notes"}
    assert coordinator.get("/runs", headers=RECORDED).json()[0]["id"] == started.json()["run"]
