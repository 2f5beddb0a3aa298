"""A process in a container may have what the container may, not what the machine has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tideline.core.asked.world import World
from tideline.learning.formats import folder
from tideline.learning.formats.memory import memory_bytes

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("", {}, MACHINE),
        ("0::/\n", {"memory.max": "max\n"}, MACHINE),
        ("0::/\n", {"memory.max": "2000000\n"}, 2_000_000),
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "3000000"}, 3_000_000),
        ("0::/a/b\n", {"a/b/memory.max": "1000000", "a/memory.max": "3000000"}, 1_000_000),
        ("0::/not/seen\n", {"memory.max": "4000000"}, 4_000_000),
        ("5:cpu:/x\n4:memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": "5000000"}, 5_000_000),
        ("4:cpu,memory:/docker/abc\n", {"memory/memory.limit_in_bytes": "6000000"}, 6_000_000),
        ("4:memory:/a\n", {"memory/a/memory.limit_in_bytes": "9223372036854771712"}, MACHINE),
        ("0::/\n", {"memory.max": "nonsense"}, MACHINE),
        ("no group\n", {}, MACHINE),
    ],
)
def test_the_least_limit_holds(tmp_path: Path, groups: str, files: dict[str, str], expected: int) -> None:
    """Of the group and of those above it, in both versions; what cannot be read is no limit."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert memory_bytes(tmp_path) == expected


def test_without_such_files(tmp_path: Path) -> None:
    """As on other systems: the machine's."""
    assert memory_bytes(tmp_path) == MACHINE and 0 < memory_bytes() <= MACHINE


def test_rows_are_held_in_memory_as_far_as_the_container_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand rows of a thousand numbers are 4 MB."""
    world = World((1000,), 2, "linear")
    for limit, held in ((4_000_000, True), (3_999_999, False)):
        monkeypatch.setattr(folder, "memory_bytes", lambda limit=limit: limit)
        assert folder.in_memory(1000, world, 1 << 30) is held
