"""How a run's steps compute at every site: in which precision, compiled or not, with how many mini-batches to a step.

No method knows of it. Weights, messages and all that a method computes beside its networks stay float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tideline.core.settings import setting

MOST_ACCUMULATED = 1024  # mini-batches
GPU_MEMORY = "TIDELINE_GPU_MEMORY"  # in the environment of processes that train: the share of a GPU's memory that each may take


class Precision(StrEnum):
    """In which numbers the layers of a network multiply."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class Deterministic(StrEnum):
    """Whether equal steps give equal bytes on one machine.

    AUTO  on the CPU they do; on other devices the fastest kernels are used, which may add in any order
    YES   everywhere; a network with a layer that has no such kernel is refused where the step runs
    NO    nothing is claimed
    """

    AUTO = "auto"
    YES = "yes"
    NO = "no"


@dataclass(frozen=True)
class Computing:
    """How steps compute. The defaults are what a run without this section does, too."""

    precision: Precision = setting(
        Precision.FLOAT32, doc="in which a network's layers multiply: float32, bfloat16, or float16, whose gradients are scaled"
    )
    compile: bool = setting(False, doc="compile networks with torch.compile; where that fails they run as they are, with a note")
    accumulate: int = setting(
        1, low=1, high=MOST_ACCUMULATED, doc="mini-batches whose mean gradient makes one step of the optimiser"
    )
    deterministic: Deterministic = setting(
        Deterministic.AUTO, doc="equal bytes from equal steps: auto, on the CPU; yes, on a GPU, too; no, nothing is claimed"
    )

    @classmethod
    def unfolded(cls, given: Mapping[str, Any], where: str) -> Mapping[str, Any]:
        """`deterministic` may be true or false, too."""
        said = given.get("deterministic")
        return {**given, "deterministic": "yes" if said else "no"} if isinstance(said, bool) else given


@dataclass(frozen=True)
class Computed:
    """How a site computes, as it tells at the join. device: its kind alone, such as cuda. precision: the one that it has."""

    device: str = setting(doc="cpu, cuda, mps or another kind of device")
    precision: Precision = setting(doc="in which its networks multiply")
    deterministic: bool = setting(doc="whether equal steps give equal bytes there")
