"""What equal bytes depend on: a seed and a number of threads, which are set around what is computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tideline.nets import DRAWING


@contextmanager
def reproducible(seed: int, threads: int, device: str = "cpu") -> Iterator[torch.Generator]:
    """A fresh generator, torch's global ones forked and seeded alike, and a fixed number of threads (both change last digits).

    On the CPU no other device is asked: that would load and probe its driver, at every turn. No other thread draws meanwhile.
    """
    before = torch.get_num_threads()
    on_cpu = device == "cpu"
    with DRAWING, torch.random.fork_rng(() if on_cpu else range(torch.cuda.device_count())):
        seed_all = torch.default_generator.manual_seed if on_cpu else torch.manual_seed
        seed_all(seed)
        torch.set_num_threads(threads)
        try:
            yield torch.Generator().manual_seed(seed)
        finally:
            torch.set_num_threads(before)


def fingerprint(threads: int) -> str:
    """What equal bytes depend on: torch, the processor's instructions, the number of threads."""
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {threads} threads"
