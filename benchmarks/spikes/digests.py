"""What it costs to hash 100 MB on one thread, by SHA-256 and by BLAKE3.

python benchmarks/spikes/digests.py
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from blake3 import blake3

Way = Callable[[Callable[..., Any], memoryview], object]
MB = 100
SMALL, CHUNK = 40_000, 1_000_000
TRIES = 5


def best(work: Callable[[], object]) -> float:
    """The fastest of some tries, in ms."""
    took = []
    for _ in range(TRIES):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return 1000 * min(took)


def in_chunks(make: Callable[..., Any], content: memoryview) -> None:
    """As they come over a line."""
    made = make()
    for at in range(0, len(content), CHUNK):
        made.update(content[at : at + CHUNK])
    made.digest()


def in_files(make: Callable[..., Any], content: memoryview) -> None:
    """As many small files."""
    for at in range(0, len(content), SMALL):
        make(content[at : at + SMALL]).digest()


def side_by_side(make: Callable[..., Any], content: memoryview) -> None:
    """Two threads, each over all of it."""
    threads = [threading.Thread(target=lambda: make(content).digest()) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def main() -> None:
    """A line each."""
    content = memoryview(os.urandom(MB * 1_000_000))
    ways = {
        "at once": lambda make, c: make(c).digest(),
        "in chunks": in_chunks,
        "in files": in_files,
        "two threads": side_by_side,
    }
    for name, way in ways.items():
        sha, b3 = (best(lambda way=way, make=make: way(make, content)) for make in (hashlib.sha256, blake3))  # type: ignore[misc]
        print(f"{name:12s} SHA-256 {sha:6.1f} ms   BLAKE3 {b3:6.1f} ms")


if __name__ == "__main__":
    main()
