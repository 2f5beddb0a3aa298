"""What an ST-LF run leaves for links to be formed again without training: models, divergences, counts, errors, joules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from tideline.algorithms.stlf.messages import Mine, State
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.run import RunId
from tideline.engine.simulation.federation import Federation
from tideline.numerics.links import bounds
from tideline.numerics.links.link_problem import Phi, Problem


@dataclass(frozen=True)
class SavedLinks:
    """One run's devices, sorted by name: error, count, labelled (N,), d, K (N, N), and the models of those that have one."""

    said: Mapping[str, Any]
    names: tuple[str, ...]
    error: np.ndarray[Any, Any]
    count: np.ndarray[Any, Any]
    labelled: np.ndarray[Any, Any]
    d: np.ndarray[Any, Any]
    K: np.ndarray[Any, Any]
    h: Mapping[int, Mapping[str, Tensor]]

    def problem(self, *, d: Any = None, energy: float = 1.0, **constants: Any) -> Problem:
        """(P) with other divergences or constants: scale, complexity, target (phi_T). Published ones where none is given."""
        report = bounds.Measured(self.error, self.count, self.labelled, self.d if d is None else d)
        scale, complexity = constants.get("scale", 100.0), constants.get("complexity", "published")
        S, T = bounds.bounds(report, complexity=complexity, divergence_scale=scale)
        return Problem(S, T, self.K, Phi(1.0, constants.get("target", 0.5), energy), report.pinned)


def save_links(path: Path, federation: Federation, run: str, said: Mapping[str, Any]) -> None:
    """Write a run's file. said: what else is to be known of it, such as the scale of its deal."""
    path.parent.mkdir(parents=True, exist_ok=True)
    state = decode(State, federation.journal.rounds(RunId(run))[-1].state[0][0], federation.parts, LAX)
    at = [state.roster.index(name) for name in state.names]
    columns = {key: torch.tensor([getattr(state, key)[n] for n in state.names]) for key in ("error", "count", "labelled")}
    tensors = {**columns, "d": state.d, "K": state.K[at][:, at].contiguous()}
    for i, name in enumerate(state.names):
        mine = memory(federation, run, name)
        tensors |= {f"h.{i}.{key}": w.clone() for key, w in mine.h.items()}
    save_file(tensors, path, {"names": json.dumps(state.names), "said": json.dumps(said)})


def memory(federation: Federation, run: str, name: str) -> Mine:
    """What a device keeps."""
    vault = federation.agents[name].vault  # type: ignore[index]
    head = vault.head(RunId(run))
    assert head is not None
    return decode(Mine, head.memory[0][0], vault.parts(RunId(run)), LAX)


def load_links(path: Path) -> SavedLinks:
    """A run from its file."""
    with safe_open(path, "pt") as file:
        words, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    h: dict[int, dict[str, Tensor]] = {}
    for name, w in tensors.items():
        if name.startswith("h."):
            _, i, key = name.split(".", 2)
            h.setdefault(int(i), {})[key] = w
    error, count, labelled, d, K = (tensors[key].numpy() for key in ("error", "count", "labelled", "d", "K"))
    return SavedLinks(json.loads(words["said"]), tuple(json.loads(words["names"])), error, count, labelled, d, K, h)
