"""What has to start fast, or must not hold tensors, loads no torch."""

from __future__ import annotations

import subprocess
import sys

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


def test_light_modules_load_no_torch() -> None:
    """The vocabulary, the layout of files and the coordinator's bookkeeping are usable where torch is not.

    Nor does an agent's process, the coordinator's process or the command line load it, or anything that they import.
    A module that is gone leaves the lists.
    """
    modules = {s.module for s in sources()}
    names = [name for name in sorted(modules) if name.startswith(LIGHT) and not name.startswith(WITH_TORCH)]
    assert len(names) > 20 and modules >= {*ENTRIES, *WITH_TORCH}
    probe = subprocess.run([sys.executable, "-c", PROBE, *names, *ENTRIES], capture_output=True, text=True, check=False)
    assert probe.stderr.strip() == ""
