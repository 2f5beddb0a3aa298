"""Everything that takes long, one part after the other; all of them are played, and the table at the end tells which failed.

make nightly                                     some hours on two cores
make nightly ARGS="soak chaos --jobs 4"          some parts

Parts: the long tests, the property tests in depth, chaos, failpoints on SQLite and on Postgres, a soak, a siege, planted faults
at the places where each is expected, the oldest packages, the wheel with packages of its own, experiment trackers, containers.
They need what .ci/run installs; `.ci/run nightly` installs it and starts this.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SEEDS = 50  # of the chaos
SOAK_MINUTES = 30
DEEP_SECONDS = 3600  # that one property may take in depth


@dataclass(frozen=True)
class Played:
    """A part that was played."""

    part: str
    code: int
    seconds: float


def parts(jobs: int) -> Mapping[str, tuple[str, ...]]:
    """What Python runs for each part, in the order of the night."""
    pytest = ("-m", "pytest", "--color=no", "-rfEs")
    spread = ("-n", str(jobs), "--dist", "worksteal", "--durations=10")
    deep = ("--hypothesis-profile=deep", f"--timeout={DEEP_SECONDS}")
    failpoints = ("-m", "tests.acceptance.failpoints", "--database")
    return {
        "long": (*pytest, "-m", "long and not docker", *spread),
        "deep": (*pytest, "-m", "hypothesis and not docker", *deep, *spread),
        "chaos": ("-m", "tests.acceptance.chaos", "--seeds", str(SEEDS)),
        "chaos-http": ("-m", "tests.acceptance.chaos", "--seeds", str(SEEDS // 5), "--first", str(SEEDS), "--over-http"),
        "failpoints-sqlite": (*failpoints, "sqlite"),
        "failpoints-postgres": (*failpoints, "postgres"),
        "soak": ("benchmarks/soak.py", "--minutes", str(SOAK_MINUTES), "--warm", "0.55"),
        "siege": ("benchmarks/siege.py", "--limit", "rss_mb=300", "--limit", "tls_rss_mb=500", "--limit", "failed=0"),
        "planted": ("-m", "tests.planted", "--to", "expected", "--jobs", str(jobs)),
        "oldest": ("-m", "tests.oldest"),
        "wheel": ("-m", "tests.wheel", "--full"),
        "trackers": ("-m", "tests.trackers"),
        "containers": (*pytest, "-m", "docker", "tests/docker"),
    }


def play(part: str, words: Sequence[str]) -> Played:
    """One part, its words as they come."""
    print(f"\n==> {part}: python {' '.join(words)}", flush=True)
    began = time.monotonic()
    code = subprocess.run([sys.executable, *words], cwd=ROOT, check=False).returncode
    return Played(part, code, time.monotonic() - began)


def table(night: Sequence[Played]) -> list[str]:
    """A line each, and what it comes to."""
    rows = [f"{each.part:20s} {'FAILED' if each.code else 'ok':6s} {each.seconds / 60:7.1f} min" for each in night]
    failed = [each.part for each in night if each.code]
    return [*rows, f"{len(night) - len(failed)} passed, {len(failed)} failed in {sum(each.seconds for each in night):.0f} s"]


def main() -> int:
    """The whole night; 1 if any part failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(parts(2))}; all of them without")
    parser.add_argument("--jobs", type=int, default=2, help="processes of pytest")
    asked = parser.parse_args()
    every = parts(asked.jobs)
    if odd := [name for name in asked.parts if name not in every]:
        parser.error(f"there is no part {odd[0]}; there are {', '.join(every)}")
    night = [play(name, every[name]) for name in asked.parts or every]
    print("\n" + "\n".join(table(night)))
    return int(any(each.code for each in night))


if __name__ == "__main__":
    sys.exit(main())
