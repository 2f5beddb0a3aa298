"""Plant each fault in a copy of the tree, and see which test notices it first.

make planted                                              every fault, tier after tier until one notices it
make planted ARGS="lease-is-not-fenced --jobs 4"          some of them
make planted ARGS="--to expected"                         the expected places alone: some minutes in all
make planted ARGS="--every 2 --first 1"                   one in two of them, from the second on

The tiers: the tests where one expects to see it (faults.toml), the quick suite, two seeds of the chaos, some failpoints. First of
all the expected places are run in a copy without any fault: where they fail there, nothing can be said of faults. The table is
Markdown. Ends with 1 if a fault is not noticed, with 2 if something could not be tried.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.planted.faults import Fault, chosen
from tests.planted.tiers import TIERS, Caught, NotRun, first_failure, hunt
from tests.planted.trees import DoesNotApply, copied

HEAD = ("| fault | tier | first test that fails | seconds |", "|---|---|---|---|")


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="FAULT", help="faults by name; all of them without")
    parser.add_argument("--to", choices=TIERS, default=TIERS[-1], help="the last tier that is tried")
    parser.add_argument("--every", type=int, default=1, help="one in so many of the faults")
    parser.add_argument("--first", type=int, default=0, help="with --every: the first of them, from 0")
    parser.add_argument("--jobs", type=int, default=2, help="processes of the quick suite")
    return parser.parse_args(words)


def sound(faults: Sequence[Fault], jobs: int) -> str:
    """Which expected test fails although nothing is planted; nothing if all pass."""
    places = list(dict.fromkeys(fault.expected for fault in faults))
    with copied() as tree:
        return first_failure("expected", tree, places, jobs)


def line(caught: Caught) -> str:
    """A row of the table."""
    return f"| `{caught.fault}` | {caught.tier or '**not caught**'} | `{caught.test or '-'}` | {caught.seconds:.0f} |"


def play(faults: Sequence[Fault], tiers: Sequence[str], jobs: int) -> list[Caught]:
    """Plant one after the other; a row each."""
    found = []
    print("\n".join(HEAD), flush=True)
    for fault in faults:
        with copied(fault) as tree:
            found.append(hunt(fault, tree, tiers, jobs))
        print(line(found[-1]), flush=True)
    return found


def main() -> int:
    """All of it."""
    asked = arguments()
    try:
        faults = chosen(asked.names)[asked.first :: asked.every]
        if broken := sound(faults, asked.jobs):
            print(f"{broken} fails although nothing is planted: mend that first")
            return 2
        found = play(faults, TIERS[: TIERS.index(asked.to) + 1], asked.jobs)
    except (LookupError, DoesNotApply, NotRun) as error:
        print(error.args[0])
        return 2
    missed = [each.fault for each in found if not each.tier]
    print(f"Not caught: {', '.join(missed)}" if missed else f"{len(found)} faults planted, {len(found)} caught")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
