"""A site's own model as a file, written by a process of its own: the agent's process loads no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tideline.core.errors import NotFound, Refused

SECONDS = 300.0


def export_model(home: Path, run: str, out: Path) -> None:
    """Raises NotFound with what the command said, Refused for one that does not end."""
    command = [sys.executable, "-m", "tideline", "site", "export", f"--home={home}", f"--run={run}", "model", f"--out={out}"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Refused("The model was not written in time", "Write it yourself: tideline site export") from None
    if ended.returncode or not out.is_file():
        said = ended.stderr.strip().splitlines()
        raise NotFound(said[0][:500] if said else "The model cannot be written", f"See `tideline site list --run {run[:80]}`")
