"""How much memory this process may have: the machine's, or less where a container has a limit (cgroup v1 and v2)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

V1, V2 = "memory.limit_in_bytes", "memory.max"
ROOT = Path("/")


def memory_bytes(root: Path = ROOT) -> int:
    """The least of the machine's memory and all limits that hold for this process. root: of the file system that tells them."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min((machine, *limits(root)))


def limits(root: Path) -> Iterator[int]:
    """Of this process's control group and those above it, as far as they are seen from here."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    mounted = root / "sys/fs/cgroup"
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            yield from upwards(mounted, path, V2)
        elif "memory" in controllers.split(","):
            yield from upwards(mounted / "memory", path, V1)


def upwards(mounted: Path, path: str, name: str) -> Iterator[int]:
    """The limits in a group's folder and in those above. In a container the group's own path may not be seen: its root is."""
    group = PurePosixPath(path.lstrip("/"))
    for folder in (group, *group.parents):
        try:
            yield int((mounted / folder / name).read_text())
        except (OSError, ValueError):  # it is not there, or says max
            continue
