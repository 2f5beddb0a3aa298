"""What every call has: the versions that both ends speak, an id, a place in the counts; and /ready and /metrics."""

from __future__ import annotations

import pytest
import structlog
from api_world import EXPERIMENT, OWN, Coordinator, locked, refused

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


def test_ready_needs_no_key() -> None:
    """200 while nothing is in the way."""
    answer = locked().get("/ready")
    assert (answer.status_code, answer.json()) == (200, {"status": "ready", "warnings": []})


def test_every_reason_is_in_the_answer() -> None:
    """503 in the one shape, with the reasons as data."""
    told = refused(Coordinator(ready=lambda: ("no database", "no worker")).get("/ready"), 503, "Unreachable")
    assert told["context"]["reasons"] == ["no database", "no worker"]
    assert told["detail"] == "Not ready: no database; no worker"


def test_metrics_need_a_viewers_key() -> None:
    """They come as the text that they are."""
    door = locked(metrics=lambda: (b"up 1\n", "text/plain; version=0.0.4; charset=utf-8"))
    assert door.get("/metrics").status_code == 401
    answer = door.get("/metrics", headers=OWN)
    assert (answer.text, answer.headers["content-type"]) == ("up 1\n", "text/plain; version=0.0.4; charset=utf-8")


def test_requests_are_counted_by_template() -> None:
    """Also those that are refused at the door, and those that fail unforeseen."""
    seen: list[tuple[str, str, int]] = []

    def broken() -> tuple[bytes, str]:
        raise ValueError("broken")

    door = locked(seen=lambda m, r, s, t: seen.append((m, r, s)), metrics=broken)
    for path in ("/runs", "/runs/a-name", "/secret/../x"):
        door.get(path)
    door.get("/metrics", headers=OWN)
    assert seen == [("GET", "/runs", 401), ("GET", "/runs/{run}", 401), ("GET", "other", 401), ("GET", "/metrics", 500)]


def test_a_sane_id_is_kept(coordinator: Coordinator) -> None:
    """The caller finds its own call again."""
    for given in ("abc-123", "x" * 64, "A.b_c"):
        answer = coordinator.get("/runs/nosuch", headers={"X-Request-Id": given})
        assert answer.headers["x-request-id"] == refused(answer, 404, "NotFound")["request"] == given


def test_every_other_request_gets_one(coordinator: Coordinator, subtests: pytest.Subtests) -> None:
    """Of its own, and never what was not sane."""
    for given in (None, "", "x" * 65, "a b", "a\tb", "é", "<script>"):
        with subtests.test(repr(given)):
            headers = {} if given is None else {b"X-Request-Id": given.encode()}
            ids = {coordinator.get("/health", headers=headers).headers["x-request-id"] for _ in range(2)}
            assert len(ids) == 2 and all(len(x) == 16 for x in ids)


def test_the_log_has_it(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is logged while a request is served, on whatever thread, has its id; what comes after has none."""
    seen: list[object] = []
    run_service = coordinator.federation.run_service

    def headlines(*_: object) -> object:
        seen.append(structlog.contextvars.get_contextvars().get("request"))
        raise RuntimeError("broken")

    monkeypatch.setattr(type(run_service.journal), "headlines", headlines)
    answer = coordinator.get("/runs", headers={"X-Request-Id": "mine"})
    assert (answer.status_code, answer.headers["x-request-id"], seen) == (500, "mine", ["mine"])
    assert answer.json()["request"] == "mine"
    assert "request" not in structlog.contextvars.get_contextvars()
