"""The tiers that a planted fault meets, one after the other, and the first test of them that fails."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.planted.faults import Fault
from tests.planted.trees import environment

SCRIPTS = ("chaos", "failpoints")  # which pytest does not run
TIERS = ("expected", "quick", *SCRIPTS)
LONGEST_SECONDS = 3600.0  # of one tier: what hangs is noticed, too
# In a copy with a fault in it no other fault can be planted, so the tests of this folder are left out.
PYTEST = ("-m", "pytest", "-x", "--tb=short", "-rfE", "--color=no", "--ignore=tests/planted")
# Every test that .ci/run plays: the quick tier, and the smoke tests.
BEFORE_A_CHANGE = ("-m", "not nightly or smoke and not nightly(job='containers')")
CHAOS = ("-m", "tests.acceptance.chaos", "--seeds", "2", "--first", "30")
FAILPOINTS = ("-m", "tests.acceptance.failpoints", "--every", "9")


class NotRun(Exception):
    """A tier that ended without a word on any test: nothing can be said of the fault."""


@dataclass(frozen=True)
class Caught:
    """What noticed a fault: a tier, its first test that failed; nothing of either where nothing did. And all the seconds."""

    fault: str
    tier: str
    test: str
    seconds: float


def command(tier: str, expected: Sequence[str], jobs: int) -> list[str]:
    """What runs a tier."""
    words = {
        "expected": (*PYTEST, *BEFORE_A_CHANGE, *expected),
        "quick": (*PYTEST, *BEFORE_A_CHANGE, "-n", str(jobs), "--dist", "worksteal"),
        "chaos": CHAOS,
        "failpoints": FAILPOINTS,
    }
    return [sys.executable, *words[tier]]


def hunt(fault: Fault, tree: Path, tiers: Sequence[str], jobs: int) -> Caught:
    """Run one tier after the other in a tree until something fails. Raises NotRun."""
    began = time.monotonic()
    for tier in tiers:
        if test := first_failure(tier, tree, [fault.expected], jobs):
            return Caught(fault.name, tier, test, time.monotonic() - began)
    return Caught(fault.name, "", "", time.monotonic() - began)


def first_failure(tier: str, tree: Path, expected: Sequence[str], jobs: int) -> str:
    """The first test of a tier that fails; nothing where all pass. Raises NotRun."""
    words = command(tier, expected, jobs)
    try:
        done = subprocess.run(
            words, cwd=tree, env=environment(tree), capture_output=True, text=True, check=False, timeout=LONGEST_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"{tier} did not end within {LONGEST_SECONDS:.0f} s"
    if done.returncode == 0:
        return ""
    found = failure_in(tier, done.stdout)
    if not found and tier in SCRIPTS and done.returncode == 1:  # it ended in the middle, as where a run comes to no end
        found = next(iter(reversed(done.stderr.strip().splitlines())), "")
    if not found:
        raise NotRun(f"{' '.join(words[1:])} ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return found


def failure_in(tier: str, said: str) -> str:
    """The first failure that a tier's words tell of; nothing where they tell of none."""
    pattern = r"^(\S+: .+)$" if tier == "chaos" else r"^FAILED +(.+?)(?: - .*)?$"
    return next(iter(re.findall(pattern, said, flags=re.MULTILINE)), "")
