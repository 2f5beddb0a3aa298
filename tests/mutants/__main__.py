"""Play the drawn mutants: does a test fail with each?

python -m tests.mutants --minutes 20 --reach FOLDER      the next ones that have no result yet, as far as time goes
python -m tests.mutants --again [--reach FOLDER]         those that tests caught before: does that test, or another, again?

FOLDER is what `REACH=FOLDER python -m pytest -p tests.mutants.reach -n 2` wrote: which tests execute which lines. Results are
kept in tests/mutants/record.json. Ends with 1 if a mutant is not caught that was caught before.
"""

from __future__ import annotations

import argparse
import queue
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path

from tests.mutants.choosing import Reach, read_reach
from tests.mutants.drawing import Mutant, draw_mutants, source_paths
from tests.mutants.playing import Played, Workshop, line_of, play, read_record, write_record
from tests.planted.faults import ROOT
from tests.planted.trees import copied


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reach", type=Path, metavar="FOLDER", help="which tests execute which lines")
    parser.add_argument("--minutes", type=float, default=20.0, help="no mutant is begun after so many minutes")
    parser.add_argument("--jobs", type=int, default=2, help="mutants that are played at the same time")
    parser.add_argument("--again", action="store_true", help="play what was caught before, and change no record")
    asked = parser.parse_args(words)
    if asked.reach is None and not asked.again:
        parser.error("--reach is needed: run `REACH=FOLDER python -m pytest -p tests.mutants.reach -n 2` first")
    return asked


def play_all(
    mutants: Sequence[Mutant], reach: Reach | None, known: dict[str, Played], jobs: int, minutes: float
) -> Iterator[Played]:
    """Play mutants side by side until time is over, and yield each result. The test that caught one before comes first."""
    ends, workshops = time.monotonic() + 60 * minutes, queue.SimpleQueue[Workshop]()

    def play_one(mutant: Mutant) -> Played | None:
        if time.monotonic() > ends:
            return None
        text = (ROOT / mutant.path).read_text(encoding="utf-8")
        tests = reach.tests(mutant, text) if reach else []
        before = [[known[mutant.name].caught_by]] if mutant.name in known and "::" in known[mutant.name].caught_by else []
        workshop = workshops.get()
        try:
            return play(mutant, workshop, tests, [*before, *(reach.batches(tests) if reach else ())])
        finally:
            workshops.put(workshop)

    with ExitStack() as stack, ThreadPoolExecutor(jobs) as pool:
        for _ in range(jobs):
            workshop = Workshop(stack.enter_context(copied()))
            stack.callback(workshop.warm.close)
            workshops.put(workshop)
        for ended in as_completed([pool.submit(play_one, mutant) for mutant in mutants]):
            if (row := ended.result()) is not None:
                yield row


def caught_before(record: Iterable[Played]) -> list[Mutant]:
    """Return the mutants that tests caught, but for those whose line is another one today: they have to be drawn again."""
    caught = [row for row in record if row.caught_by]
    moved = [row.mutant for row in caught if line_of(row.mutant) != row.code]
    for mutant in moved:
        print(f"left out, as its line has changed: {mutant.name}")
    return [row.mutant for row in caught if row.mutant not in moved]


def main() -> int:
    """Play what is asked for."""
    asked = arguments()
    record = {row.mutant.name: row for row in read_record()}
    wanted = caught_before(record.values()) if asked.again else [m for m in draw_mutants() if m.name not in record]
    reach = read_reach(asked.reach, source_paths(ROOT)) if asked.reach else None
    rows: list[Played] = []
    for row in play_all(wanted, reach, dict(record), asked.jobs, asked.minutes):
        print(
            f"{row.seconds:6.1f} s  {'caught  ' if row.caught_by else 'SURVIVED'}  {row.mutant.name}  {row.caught_by}", flush=True
        )
        rows.append(row)
        record[row.mutant.name] = row
        if not asked.again:  # at once: whoever stops this loses nothing
            write_record(record.values())
    missed = [row.mutant.name for row in rows if not row.caught_by]
    print(f"{len(rows) - len(missed)} caught, {len(missed)} survived, {len(wanted) - len(rows)} left to play")
    return int(asked.again and bool(missed))


if __name__ == "__main__":
    sys.exit(main())
