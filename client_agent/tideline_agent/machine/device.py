"""The name of what steps compute on, told before any of them runs, and so without torch."""

from __future__ import annotations

import importlib.util
import platform
import re
from collections.abc import Callable
from pathlib import Path

from tideline.engine.process.measuring import CPU, cores
from tideline_agent.machine.gpus import MOST_NAME, Read, gpu_of, gpus_in, listed, printable

MODEL = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)
WITH_GPUS = re.compile(r"^(?:cuda|hip)\b[^=\n]*=\s*['\"]", re.MULTILINE)


def device_name(device: str, read: Read = listed, built: Callable[[], bool] | None = None) -> str:
    """Such as `NVIDIA H100 80GB HBM3`, or `AMD EPYC 7B13, 8 cores`. device: as the owner has set it.

    A torch that was built without support for GPUs uses none, whatever there is.
    """
    if device == CPU:
        return processor()
    if device.partition(":")[0] in ("auto", "cuda"):
        found = gpu_of(device, gpus_in(read())) if (built or built_for_gpus)() else None
        if found is not None:
            return found.name
        return processor() if device == "auto" else printable(device)
    return printable(device)


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name, and how many of its cores this process may use."""
    try:
        found = MODEL.search(cpuinfo.read_text(errors="replace"))
    except OSError:
        found = None
    name = found[1].strip() if found else platform.processor() or platform.machine() or CPU
    count = cores()
    return printable(f"{printable(name)[: MOST_NAME - 12]}, {count} core{'s' if count > 1 else ''}")


def built_for_gpus() -> bool:
    """Whether the torch that is installed can use GPUs, by its own file of versions: to load it takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    try:
        return WITH_GPUS.search((Path(spec.origin).parent / "version.py").read_text()) is not None
    except OSError:
        return False
