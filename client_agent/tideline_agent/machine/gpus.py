"""The machine's GPUs, as the driver's own command lists them. Where there is none, or no driver, there are no GPUs."""

from __future__ import annotations

import csv
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

COMMAND = (
    "nvidia-smi",
    "--query-gpu=index,uuid,name,utilization.gpu,memory.used,memory.total",
    "--format=csv,noheader,nounits",
)
SECONDS = 5.0  # that the command has
MOST_GPUS, MOST_NAME = 64, 80
MIB = 1 << 20
VISIBLE = "CUDA_VISIBLE_DEVICES"
Read = Callable[[], str]


@dataclass(frozen=True)
class Gpu:
    """One GPU. use: the share of the last moment in which it worked, 0 to 1; memory in bytes. None: the driver does not say."""

    name: str
    use: float | None
    used: int | None
    total: int | None


def listed() -> str:
    """What the command prints; nothing where it is not there, or does not end."""
    try:
        return subprocess.run(COMMAND, capture_output=True, text=True, timeout=SECONDS, check=True, errors="replace").stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def gpus_in(text: str, environment: Mapping[str, str] = os.environ) -> tuple[Gpu, ...]:
    """The GPUs that this agent's processes see, in their order. Lines that are not as the command writes them are left out.

    >>> gpus_in("0, GPU-1, NVIDIA A2, 50, 1, 2\\n", {})
    (Gpu(name='NVIDIA A2', use=0.5, used=1048576, total=2097152),)
    """
    found: dict[str, Gpu] = {}
    names: dict[str, str] = {}
    for cells in csv.reader(text.splitlines()[:MOST_GPUS], skipinitialspace=True):
        if len(cells) == 6:
            index, uuid, name, use, used, total = (cell.strip() for cell in cells)
            share, taken, whole = number(use), number(used), number(total)
            found[index] = Gpu(
                name=printable(name),
                use=None if share is None else min(share / 100, 1.0),
                used=None if taken is None else int(taken * MIB),
                total=None if whole is None else int(whole * MIB),
            )
            names[uuid] = index
    return visible(found, names, environment.get(VISIBLE))


def visible(found: Mapping[str, Gpu], names: Mapping[str, str], only: str | None) -> tuple[Gpu, ...]:
    """Those that CUDA shows: all, or up to the first that is not there, those of its list."""
    if only is None:
        return tuple(found.values())
    shown: list[Gpu] = []
    for word in filter(None, (each.strip() for each in only.split(","))):
        index = word if word in found else next((at for uuid, at in names.items() if uuid.startswith(word)), None)
        if index is None:
            break
        shown.append(found[index])
    return tuple(shown)


def number(cell: str) -> float | None:
    """A cell that is a number; `[N/A]` is none."""
    try:
        found = float(cell)
    except ValueError:
        return None
    return found if 0 <= found < 1e12 else None


def printable(name: str) -> str:
    return "".join(filter(str.isprintable, name))[:MOST_NAME]


def gpu_of(device: str, gpus: Sequence[Gpu]) -> Gpu | None:
    """The GPU that a device of torch is: `cuda` is the first."""
    kind, _, number_of = device.partition(":")
    at = int(number_of) if number_of.isdecimal() else 0
    return gpus[at] if kind in ("auto", "cuda") and at < len(gpus) else None
