"""The code of the last release, out of the history: the commit that docs/releases.md names.

python -m tests.upgrades.trees      say which it is, and whether the history here has it
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ports.migrating import LATER, add_later
from tideline_server.store.database.revisions import MIGRATIONS, newest
from tools.records import ROOTS, Record, last_release, python_path
from tools.wheels import ROOT, Failed, unpack

WHERE = "import tideline, tideline_server, tideline_agent, tideline_protos as p; print(tideline.__file__, p.__path__[0])"


@dataclass(frozen=True)
class Released:
    """The last release, unpacked."""

    record: Record
    tree: Path


def released(into: Path) -> Released:
    """Unpack it. Raises Failed where the history lacks its commit."""
    record = last_release()
    return Released(record, unpack(ROOT, record.commit, into))


def needed(into: Path) -> Released:
    """The same for a test, which is skipped where the history lacks the commit."""
    try:
        return released(into)
    except Failed as failure:
        pytest.skip(f"NOT TESTED: {failure.what}. {failure.todo}")


def this_tree(into: Path, old: Released) -> tuple[Path, str]:
    """The code to upgrade to, and its schema revision: a copy of this tree, with a migration to come where it has no new one."""
    for root in ROOTS:
        shutil.copytree(ROOT / root, into / root, ignore=shutil.ignore_patterns("__pycache__"))
    if old.record.spoken.schema != newest():
        return into, newest()
    add_later(into / MIGRATIONS.relative_to(ROOT))
    return into, LATER


def environment(tree: Path) -> dict[str, str]:
    """In which Python takes a tree's packages, and no others of their names."""
    return dict(os.environ) | {"PYTHONPATH": python_path(tree)}


def check(tree: Path) -> None:
    """Raises AssertionError unless processes with this environment run the tree's code."""
    done = subprocess.run(
        [sys.executable, "-c", WHERE], env=environment(tree), cwd=tree, capture_output=True, text=True, check=True
    )
    assert all(place.startswith(str(tree)) for place in done.stdout.split()), done.stdout


def main() -> int:
    """One line; always 0, as a shallow history is nobody's fault."""
    record = last_release()
    there = subprocess.run(["git", "cat-file", "-e", f"{record.commit}^{{commit}}"], cwd=ROOT, capture_output=True, check=False)
    if there.returncode:
        print(f"!!! NOT TESTED: the history here lacks {record.commit}, which {record.version} is; no upgrade from it was tried")
    else:
        print(f"The last release is {record.version}, of {record.commit[:12]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
