"""/ready and /metrics as callers meet them."""

from __future__ import annotations

from api_world import Coordinator, refused

from tideline.engine.coordinator.api_keys import hash_of


def test_ready_needs_no_key() -> None:
    """200 while nothing is in the way."""
    answer = Coordinator(api_key_hash=hash_of("key")).get("/ready")
    assert (answer.status_code, answer.json()) == (200, {"status": "ready", "warnings": []})


def test_every_reason_is_in_the_answer() -> None:
    """503 in the one shape, with the reasons as data."""
    told = refused(Coordinator(ready=lambda: ("no database", "no worker")).get("/ready"), 503, "Unreachable")
    assert told["context"]["reasons"] == ["no database", "no worker"]
    assert told["detail"] == "Not ready: no database; no worker"


def test_metrics_need_a_viewers_key() -> None:
    """They come as the text that they are."""
    door = Coordinator(api_key_hash=hash_of("key"), metrics=lambda: (b"up 1\n", "text/plain; version=0.0.4; charset=utf-8"))
    assert door.get("/metrics").status_code == 401
    answer = door.get("/metrics", headers={"Authorization": "Bearer key"})
    assert (answer.text, answer.headers["content-type"]) == ("up 1\n", "text/plain; version=0.0.4; charset=utf-8")


def test_requests_are_counted_by_template() -> None:
    """Also those that are refused at the door, and those that fail unforeseen."""
    seen: list[tuple[str, str, int]] = []

    def broken() -> tuple[bytes, str]:
        raise ValueError("broken")

    door = Coordinator(api_key_hash=hash_of("key"), seen=lambda m, r, s, t: seen.append((m, r, s)), metrics=broken)
    for path in ("/runs", "/runs/a-name", "/secret/../x"):
        door.get(path)
    door.get("/metrics", headers={"Authorization": "Bearer key"})
    assert seen == [("GET", "/runs", 401), ("GET", "/runs/{run}", 401), ("GET", "other", 401), ("GET", "/metrics", 500)]
