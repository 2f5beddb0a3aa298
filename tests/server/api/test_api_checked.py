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


@pytest.fixture
def door() -> Coordinator:
    return Coordinator().built()


def test_what_it_would_be(door: Coordinator) -> None:
    """Its sites, its exchanges and its contract; nothing is started, and nothing stands in the log."""
    tip = door.get("/audit/tip").json()
    found = door.post("/runs/check", json={"text": TEXT})
    assert found.status_code == 200
    said = found.json()
    assert (said["runs"], said["exchanges"], said["sites"]) == (1, 6, ["anna", "carl"])
    assert said["experiment"]["config"] == {"rounds": 3} and said["contract"][0]["exposure"] == "weights"
    assert door.get("/runs").json() == [] and door.get("/audit/tip").json() == tip


@pytest.mark.parametrize(
    ("before", "after", "line", "path"),
    [
        ("rounds: 3", "rounds: -3", 3, "config.rounds"),
        ("  anna: source", "  anna: sourc", 6, "roster.anna"),
        ("roster:", "roster: [", 7, None),
    ],
)
def test_mistakes_have_their_line(door: Coordinator, before: str, after: str, line: int, path: str | None) -> None:
    """Also those that only the method finds."""
    answer = door.post("/runs/check", json={"text": TEXT.replace(before, after)})
    found = refused(answer, 422, "ConfigRefused", path)
    assert found["context"]["line"] == line and found["detail"].startswith(f"experiment:{line}: ")


def test_a_method_that_is_not_there(door: Coordinator) -> None:
    """With the line, too."""
    answer = door.post("/runs/check", json={"text": TEXT.replace("fedavg", "fedavgg")})
    assert refused(answer, 404, "NotFound", "method")["context"]["line"] == 1


@pytest.mark.parametrize("text", ["", "just words", "- a\n- list", "a: !!python/object:os.system x", "x" * 2_000_000])
def test_what_is_no_experiment(door: Coordinator, text: str) -> None:
    """Is refused, whatever it is."""
    assert door.post("/runs/check", json={"text": text}).status_code in (413, 422)
