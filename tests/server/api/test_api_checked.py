"""An experiment is checked before anybody starts it: with its places and lines, and without a trace."""

from __future__ import annotations

import pytest
from api_world import Coordinator, refused

TEXT = """method: fedavg
config:
  rounds: 3
world: {model: mlp, inputs: [4], classes: 2, normalise: none}
roster:
  anna: source
  carl: target
"""


def test_what_it_would_be(coordinator: Coordinator) -> None:
    """Its sites, its exchanges and its contract; nothing is started, and nothing stands in the log."""
    tip = coordinator.get("/audit/tip").json()
    found = coordinator.post("/runs/check", json={"text": TEXT})
    assert found.status_code == 200
    said = found.json()
    assert (said["runs"], said["exchanges"], said["sites"]) == (1, 6, ["anna", "carl"])
    assert said["experiment"]["config"] == {"rounds": 3} and said["contract"][0]["exposure"] == "weights"
    assert coordinator.get("/runs").json() == [] and coordinator.get("/audit/tip").json() == tip


MISTAKES = (
    ("rounds: 3", "rounds: -3", 3, "config.rounds"),
    ("  anna: source", "  anna: sourc", 6, "roster.anna"),
    ("roster:", "roster: [", 7, None),
)


def test_mistakes_have_their_line(coordinator: Coordinator, subtests: pytest.Subtests) -> None:
    """Also those that only the method finds."""
    for before, after, line, path in MISTAKES:
        with subtests.test(after):
            answer = coordinator.post("/runs/check", json={"text": TEXT.replace(before, after)})
            error = refused(answer, 422, "ConfigRefused", path)
            assert error["context"]["line"] == line and error["detail"].startswith(f"experiment:{line}: ")


def test_a_method_that_is_not_there(coordinator: Coordinator) -> None:
    """With the line, too."""
    answer = coordinator.post("/runs/check", json={"text": TEXT.replace("fedavg", "fedavgg")})
    assert refused(answer, 404, "NotFound", "method")["context"]["line"] == 1


def test_what_is_no_experiment(coordinator: Coordinator, subtests: pytest.Subtests) -> None:
    """It is refused, whatever it is."""
    for text in ("", "just words", "- a\n- list", "a: !!python/object:os.system x", "x" * 2_000_000):
        with subtests.test(text[:40]):
            assert coordinator.post("/runs/check", json={"text": text}).status_code in (413, 422)
