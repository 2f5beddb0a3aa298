"""Time the steps of .ci/run, and say how far each is from its budget.

python -m tests.timed FILE NAME MINUTES COMMAND ...      run a command and note its seconds in FILE; ends as the command does
python -m tests.timed FILE                               print a table of what FILE has

The table ends with 1 if a step took more processor time than two cores have in its minutes: no quiet machine is quick enough.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

CORES = 2


@dataclass(frozen=True)
class Timed:
    """A step that was run. minutes: its budget. processor: seconds of all its processes that have ended."""

    name: str
    minutes: float
    seconds: float
    processor: float

    @property
    def over(self) -> bool:
        """True if the step cannot keep its budget on any machine like this one."""
        return self.processor > 60 * self.minutes * CORES


def run(file: Path, name: str, minutes: float, command: Sequence[str]) -> int:
    """Run a command, note how long it took, and return its exit code."""
    began = time.monotonic()
    code = subprocess.run(command, check=False).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    step = Timed(name, minutes, time.monotonic() - began, used.ru_utime + used.ru_stime)
    with file.open("a") as notes:
        notes.write(json.dumps(asdict(step)) + "\n")
    return code


def table(steps: Sequence[Timed]) -> list[str]:
    """Return a line for each step, and one for all of them."""
    whole = Timed("all", sum(s.minutes for s in steps), sum(s.seconds for s in steps), sum(s.processor for s in steps))
    return [
        f"{step.name:12s} {step.seconds / 60:5.1f} of {step.minutes:4.1f} minutes, {step.processor:6.0f} s of processors"
        + ("  OVER ITS BUDGET" if step.over else "  slow here" if step.seconds > 60 * step.minutes else "")
        for step in (*steps, whole)
    ]


def main(words: Sequence[str]) -> int:
    """Run a step, or print the table."""
    file, *rest = words
    if rest:
        return run(Path(file), rest[0], float(rest[1]), rest[2:])
    steps = [Timed(**json.loads(line)) for line in Path(file).read_text().splitlines()]
    print("\n".join(table(steps)))
    return int(any(step.over for step in steps))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
