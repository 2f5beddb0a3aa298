"""Copies of the tree into which faults are planted; the tree itself stays as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.planted.faults import ROOT, Fault

ROOTS = ("shared", "server", "client_agent", "protos")


class DoesNotApply(Exception):
    """A patch that does not fit today's code."""


def listed() -> list[str]:
    """Every file of the tree: what git tracks, and what is new and not ignored."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in said.split("\0") if name and (ROOT / name).is_file()]


@contextmanager
def copied(fault: Fault | None = None) -> Iterator[Path]:
    """A copy of the tree, with a fault in it if one is given. Raises DoesNotApply."""
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        tree = Path(folder) / "tree"
        for name in listed():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
        if fault is not None:
            plant(fault, tree)
        yield tree


def plant(fault: Fault, tree: Path) -> None:
    """Change a tree as a fault's patch says. Raises DoesNotApply."""
    if said := applied(fault, tree):
        raise DoesNotApply(f"{fault.patch.relative_to(ROOT)} no longer applies. Write it anew.\n{said}")


def applied(fault: Fault, tree: Path, *more: str) -> str:
    """Apply a patch, or with --check only see whether it applies. What git says where it does not."""
    apart = os.environ | {"GIT_CEILING_DIRECTORIES": str(tree.parent)}  # the copy may lie within another repository
    words = ["git", "apply", *more, str(fault.patch)]
    done = subprocess.run(words, cwd=tree, env=apart, capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


def environment(tree: Path) -> dict[str, str]:
    """An environment in which Python finds the copy's own packages, before those that are installed."""
    path = [*(str(tree / root) for root in ROOTS), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path)), "PYTHONDONTWRITEBYTECODE": "1"}
