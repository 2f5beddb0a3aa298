"""Freed memory goes back to the kernel when it is told to; where it cannot be told, nothing breaks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tideline.engine.process import resources

# A process of its own: what glibc is told holds for the rest of a process's life. The last block stays, so that the others do
# not lie at the top of the heap, from where they would go back by themselves.
PROGRAM = """
from tideline.engine.process import resources
resources.retain_freed_memory()
held = lambda: next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon"))
blocks = [bytearray(1 << 20) for _ in range(16)]
last = bytearray(1 << 16)
del blocks
before = held()
gave = resources.give_back()
print(gave, before - held())
"""


@pytest.mark.skipif(sys.platform != "linux" or resources.glibc("mallopt") is None, reason="only glibc is told")
def test_freed_memory_goes_back_when_work_ends() -> None:
    """Sixteen megabytes that were kept for the next message."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    gave, kb = done.stdout.split()
    assert gave == "True" and int(kb) > 12 << 10


def test_another_system_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to tell."""
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not resources.retain_freed_memory() and not resources.give_back()
