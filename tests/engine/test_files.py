"""How many files a worker may have open."""

from __future__ import annotations

import subprocess
import sys

PROBE = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 128))
from tideline.engine.process.resources import open_many_files
print(open_many_files(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_as_many_files_as_the_system_allows() -> None:
    """In a process of its own: the soft limit becomes the hard one."""
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["128", "128", "128"]
