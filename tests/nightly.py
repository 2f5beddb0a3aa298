"""The jobs of the night: all that takes long, each in at most 20 minutes on two cores.

make nightly                                 every job, one after the other; the table at the end says which failed
make nightly ARGS="soak chaos-1"             some jobs
.ci/run nightly soak                         one job on a machine that may lack everything but Python

Jobs of tests play what is marked `nightly(job="NAME")` (tests/tiers.py). They need what .ci/run installs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.tiers import JOBS

ROOT = Path(__file__).parents[1]
MOST_MINUTES = 20
DEEP_SECONDS = 3600  # that one property may take in depth
# The properties in depth, by folder: each part fits into a job.
DEEP = {
    "deep-engine": ("tests/engine",),
    "deep-numbers": ("tests/algorithms", "tests/learning", "tests/numerics", "tests/nets", "tests/secure", "tests/site"),
    "deep-services": ("tests/archive", "tests/cli", "tests/core", "tests/dossier", "tests/ports", "tests/server"),
}
# Jobs that mostly wait for processes have more workers than cores.
WAITING = {"acceptance": 4, "browser": 2, "firewall": 2, "hostile": 3, "journeys": 3, "runbook": 3, "trackers": 3, "upgrades": 2}
CHAOS_SEEDS = 10  # of each of five jobs


@dataclass(frozen=True)
class Played:
    """A job that was played."""

    job: str
    code: int
    seconds: float


def jobs(workers: int) -> Mapping[str, tuple[str, ...]]:
    """Return what Python runs for each job, in the order of the night."""
    pytest = ("-m", "pytest", "--color=no", "-rfEs", "--durations=10")
    tests = {
        job: (*pytest, "-m", f'nightly(job="{job}")', "-n", str(WAITING.get(job, workers)), "--dist", "loadfile")
        for job in sorted(JOBS - {"containers", "trackers"})
    }
    deep = {
        job: (*pytest, "-m", "hypothesis", "--hypothesis-profile=deep", f"--timeout={DEEP_SECONDS}", "-n", str(workers), *folders)
        for job, folders in DEEP.items()
    }
    chaos = {
        f"chaos-{at + 1}": ("-m", "tests.acceptance.chaos", "--seeds", str(CHAOS_SEEDS), "--first", str(at * CHAOS_SEEDS))
        for at in range(5)
    }
    failpoints = {
        f"failpoints-{database}-{at + 1}": (
            "-m",
            "tests.acceptance.failpoints",
            "--database",
            database,
            "--every",
            "3",
            "--first",
            str(at),
        )
        for database in ("sqlite", "postgres")
        for at in range(3)
    }
    planted = ("-m", "tests.planted", "--to", "expected", "--every", "2")
    return {
        **tests,
        **deep,
        **chaos,
        "chaos-http": ("-m", "tests.acceptance.chaos", "--seeds", str(CHAOS_SEEDS), "--first", "50", "--over-http"),
        **failpoints,
        "soak": ("benchmarks/soak.py", "--minutes", "15", "--warm", "0.55"),
        "siege": ("benchmarks/siege.py", "--limit", "rss_mb=300", "--limit", "tls_rss_mb=500", "--limit", "failed=0"),
        **{f"planted-{at + 1}": (*planted, "--first", str(at)) for at in range(2)},
        "mutants": ("-m", "tests.mutants", "--again", "--jobs", str(workers)),
        "oldest": ("-m", "tests.oldest"),
        "wheel": ("-m", "tests.wheel", "--full"),
        "trackers": ("-m", "tests.trackers"),
        "containers": (*pytest, "-m", 'nightly(job="containers")', "tests/docker"),
    }


def play(job: str, words: Sequence[str]) -> Played:
    """Play one job and print what it says as it comes."""
    print(f"\n==> {job}: python {' '.join(words)}", flush=True)
    began = time.monotonic()
    code = subprocess.run([sys.executable, *words], cwd=ROOT, check=False).returncode
    return Played(job, code, time.monotonic() - began)


def table(night: Sequence[Played]) -> list[str]:
    """Return a line for each job and one for all; a job that took longer than it may is marked."""
    rows = [
        f"{played.job:24s} {'FAILED' if played.code else 'ok':6s} {played.seconds / 60:7.1f} min"
        + (f"  over {MOST_MINUTES}" if played.seconds > 60 * MOST_MINUTES else "")
        for played in night
    ]
    failed = [played.job for played in night if played.code]
    return [*rows, f"{len(night) - len(failed)} passed, {len(failed)} failed in {sum(played.seconds for played in night):.0f} s"]


def main() -> int:
    """Play the jobs that are asked for; 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"{', '.join(jobs(2))}; all of them without")
    parser.add_argument("--workers", type=int, default=2, help="processes of pytest, where tests do not mostly wait")
    asked = parser.parse_args()
    every = jobs(asked.workers)
    if odd := [name for name in asked.jobs if name not in every]:
        parser.error(f"there is no job {odd[0]}; there are {', '.join(every)}")
    night = [play(name, every[name]) for name in asked.jobs or every]
    print("\n" + "\n".join(table(night)))
    return int(any(played.code for played in night))


if __name__ == "__main__":
    sys.exit(main())
