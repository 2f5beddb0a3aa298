"""Play tests against mutants in copies of the tree, and keep what came of each."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.mutants.drawing import Mutant, mutated
from tests.mutants.warm import NO_END, Job, Warm
from tests.planted.faults import ROOT
from tests.planted.tiers import PYTEST, failure_in
from tests.planted.trees import ROOTS

RECORD = Path(__file__).parent / "record.json"
MOST_SECONDS_OF_A_TEST = 60  # a mutant that makes a loop endless is caught by it
MOST_SECONDS_OF_A_BATCH = 900.0
NO_TESTS_RAN = 5
ENDLESS, NOT_COLLECTED = "the tests did not end", "the tests could not be imported"


@dataclass(frozen=True)
class Played:
    """What came of a mutant. caught_by: the first test that failed, empty if it survived. code: its line as it was."""

    mutant: Mutant
    code: str
    caught_by: str
    tests_reaching: int
    tests_played: int
    seconds: float


def read_record() -> list[Played]:
    """Return what has been played, in the order in which it was drawn."""
    rows = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else []
    return [Played(**row | {"mutant": Mutant(**row["mutant"])}) for row in rows]


def write_record(rows: Iterable[Played]) -> None:
    """Keep it in a file that is committed."""
    RECORD.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


def line_of(mutant: Mutant) -> str:
    """Return the line that a mutant changes, as it is in the tree."""
    lines = (ROOT / mutant.path).read_text(encoding="utf-8").splitlines()
    return lines[mutant.line - 1].strip() if mutant.line <= len(lines) else ""


class Workshop:
    """A copy of the tree in which one mutant after the other is planted. sources: the tree that is copied."""

    def __init__(self, tree: Path, sources: Path = ROOT) -> None:
        self.tree, self.sources = tree, sources
        left = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self.warm = Warm(left | {"PYTHONPATH": ""})

    def play(self, mutant: Mutant, batches: Iterable[Sequence[str]]) -> tuple[str, int]:
        """Return the first test that fails with the mutant and passes without it, and how many tests were played."""
        path, played = self.tree / mutant.path, 0
        text = (self.sources / mutant.path).read_text(encoding="utf-8")
        for batch in batches:
            remaining = list(batch)
            while remaining:
                self.write(path, mutated(mutant, text))
                failed = self.first_failure(remaining)
                self.write(path, text)
                if not failed:
                    break
                if failed == NOT_COLLECTED and self.first_failure(remaining, "--collect-only"):
                    break  # these tests are not there without the mutant either
                if failed in (NOT_COLLECTED, ENDLESS) or not self.first_failure([failed]):
                    return failed, played + len(batch)
                remaining.remove(failed)  # it fails without the mutant as well
            played += len(batch)
        return "", played

    def write(self, path: Path, text: str) -> None:
        """Write a module, and forget what was compiled of it before."""
        path.write_text(text, encoding="utf-8")
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()

    def first_failure(self, tests: Sequence[str], *options: str) -> str:
        """Return the first of the tests that fails; nothing if all pass."""
        listed, output = self.tree / "mutant-tests.txt", self.tree / "mutant-output.txt"
        listed.write_text("\n".join(tests), encoding="utf-8")
        quiet = ("-q", "-W", "ignore::pytest.PytestAssertRewriteWarning")  # of plugins that are loaded already
        words = [*PYTEST[2:], *quiet, *options, f"--timeout={MOST_SECONDS_OF_A_TEST}", f"@{listed}"]
        path = [str(self.tree / root) for root in ROOTS]
        code = self.warm.run(Job(words, str(self.tree), path, str(output), MOST_SECONDS_OF_A_BATCH))
        if code in (0, NO_TESTS_RAN):
            return ""
        return ENDLESS if code == NO_END else failure_in("quick", output.read_text(encoding="utf-8")) or NOT_COLLECTED


def play(mutant: Mutant, workshop: Workshop, tests: Sequence[str], batches: Iterable[Sequence[str]]) -> Played:
    """Play a mutant in a workshop."""
    began = time.monotonic()
    caught_by, played = workshop.play(mutant, batches)
    return Played(mutant, line_of(mutant), caught_by, len(tests), played, round(time.monotonic() - began, 1))
