"""Each request has an id, in its answer, in its error and in the log."""

from __future__ import annotations

import pytest
import structlog
from api_world import Coordinator, refused


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
