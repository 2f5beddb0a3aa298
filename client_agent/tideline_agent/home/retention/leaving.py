"""The end of a site: its ledger is written out, and what lets it call the coordinators is deleted."""

from __future__ import annotations

import getpass
import json
from dataclasses import dataclass
from pathlib import Path

from tideline.archive.folder import sync
from tideline_agent.home import identity
from tideline_agent.home.features import clear_features
from tideline_agent.home.ledger import FileLedger, entries
from tideline_agent.home.rows import forget_rows
from tideline_agent.home.runs import clear, forget, stored_runs
from tideline_agent.home.seen import WITNESS

LEFT = "left"  # the ledger's last entry
# What lets an agent call in this site's name, and what it knows of those that it calls. `session` stays: a home that enrols again
# has to count on.
SECRETS = (identity.KEYS, identity.NEXT, identity.FORMER, identity.COORDINATOR, WITNESS, "agent.env")


@dataclass(frozen=True)
class Left:
    """What was done: entries that were written out, files and runs that were deleted, and what remains."""

    entries: int
    hash: str
    deleted: tuple[str, ...]
    forgotten: int
    runs: int
    bytes: int


def leave(home: Path, out: Path, methods: str, runs: bool) -> Left:
    """Write the ledger to `out`, then delete the keys; with `runs` also what the site has learnt. Done again, it does the rest.

    Raises IdentityRefused while the agent runs, ChainBroken for a ledger that is not whole: then nothing is deleted.
    """
    with identity.only_one(home):
        FileLedger(home).record(LEFT, owner=getpass.getuser(), with_runs=runs)
        written = list(entries(home))
        identity.write(out, "".join(json.dumps(vars(each)) + "\n" for each in written).encode())
        gone = tuple(name for name in SECRETS if remove(home / name))
        sync(home)
        known = stored_runs(home, methods)
        freed = 0
        for each in known.values() if runs else ():
            forget(home, each.run)
            freed += each.bytes
        if runs:
            clear(home)
            freed += clear_features(home) + forget_rows(home)[1]
        left = 0 if runs else len(known)
        return Left(
            entries=len(written), hash=written[-1].hash, deleted=gone, forgotten=len(known) - left, runs=left, bytes=freed
        )


def remove(path: Path) -> bool:
    """Whether there was such a file; it is gone."""
    there = path.exists()
    path.unlink(missing_ok=True)
    return there
