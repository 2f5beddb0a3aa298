"""From an invitation to the first accepted reply, as a newcomer types it: how many commands, and how many seconds.

.venv/bin/python -m benchmarks.newcomer [--json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from tests.acceptance.conftest import WORLD, write_blobs
from tests.acceptance.harness import Net, net

NAME = "hospital-a"
RUN = {"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": {NAME: "source"}, "reference": None}
T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """What it took, once the coordinator runs and an experiment waits for the site. Seconds count from the agent's start."""

    commands: int
    invite_s: float
    doctor_s: float
    enrolled_s: float
    joined_s: float
    first_reply_s: float


def measure(home: Path) -> Row:
    """One newcomer."""
    with net(home) as made:
        made.coordinator()
        run = made.run(RUN)
        token, invite_s = timed(lambda: invited(made))
        agent = ["--token", token, "--name", NAME, "--data", str(write_blobs(home / "data", 1)), "--role", "source"]
        agent += ["--home", str(home / NAME)]
        _, doctor_s = timed(lambda: printed(made, "doctor", *agent))
        began = time.monotonic()
        made.start(NAME, "agent", *agent)
        reached = [since(made, began, lambda: "enrolled" in made.log(NAME), "the agent to enrol")]
        for replies in (1, 2):  # to the join, and to the first step
            reached.append(since(made, began, lambda n=replies: answered(made, run) >= n, f"reply {replies}"))  # type: ignore[misc]
        return Row(3, invite_s, doctor_s, *reached)


def invited(made: Net) -> str:
    """The token, as a person would copy it."""
    return str(json.loads(printed(made, "invite", "--name", NAME, "--home", str(made.folder), "--json"))["token"])


def printed(made: Net, *args: str) -> str:
    """What a command prints. It must succeed."""
    command = [sys.executable, "-m", "tideline", *args]
    return subprocess.run(command, env=made.environment(), capture_output=True, text=True, check=True).stdout


def answered(made: Net, run: str) -> int:
    """Replies that the coordinator has accepted."""
    return sum(event["kind"] == "answered" for event in made.client().events(run))


def since(made: Net, began: float, true: Callable[[], bool], what: str) -> float:
    """Seconds until something is so."""
    made.until(true, what)
    return time.monotonic() - began


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """What a call gives, and how long it took."""
    began = time.monotonic()
    return call(), time.monotonic() - began


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="a JSON object")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        row = {key: round(value, 2) for key, value in asdict(measure(Path(home))).items()}
    print(json.dumps(row) if given.json else "\n".join(f"{key:<14} {value:g}" for key, value in row.items()))


if __name__ == "__main__":
    main()
