"""What has to start fast, or must not hold tensors, loads no torch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

from tests.architecture.sources import sources

# Of otherwise light packages, what works on tensors. Everything else in them loads none.
WITH_TORCH = (
    *("tideline.archive.checks", "tideline.archive.reader", "tideline.archive.readings", "tideline.archive.writer"),
    "tideline.archive.wire",
    *("tideline.engine.compute", "tideline.engine.simulation.federation", "tideline.engine.simulation.pools"),
    "tideline.engine.simulation.ray_pool",
)
LIGHT = ("tideline.core", "tideline.archive", "tideline.engine", "tideline.secure")
ENTRIES = ("tideline_agent.main", "tideline_server.main", "tideline.__main__")

PROBE = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    if 'torch' in sys.modules:
        sys.exit(f'{name} loads torch')
"""


def probe(modules: Iterable[str]) -> str:
    """Import modules one after the other in a fresh interpreter; what the first says that loads torch."""
    done = subprocess.run([sys.executable, "-c", PROBE, *modules], capture_output=True, text=True, check=False)
    return done.stderr.strip()


def test_light_modules_load_no_torch() -> None:
    """The vocabulary, the layout of files and the coordinator's bookkeeping are usable where torch is not.

    Nor does an agent's process, the coordinator's process or the command line load it, or anything that they import.
    """
    names = [s.module for s in sources() if s.module.startswith(LIGHT) and not s.module.startswith(WITH_TORCH)]
    assert len(names) > 20 and {s.module for s in sources()} >= set(ENTRIES)
    assert probe([*names, *ENTRIES]) == ""


def test_the_exceptions_exist() -> None:
    """A module that is gone leaves the list."""
    assert {s.module for s in sources()} >= set(WITH_TORCH)
