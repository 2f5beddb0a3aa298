"""Runs over a frozen encoder in this process, and what they begin from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from tests.synthetic import FEATURES, IMAGES, experiment, sites
from tideline import nets
from tideline.algorithms import METHODS
from tideline.core.asked.world import World
from tideline.core.privacy import DEFAULT_POLICY, Policy
from tideline.core.settings import parse
from tideline.engine.simulation.federation import Federation

ROSTER = {"anna": "source", "bert": "source", "carl": "target"}
HEAD = {"trains": "head"}


def drawn(given: Mapping[str, Any] = FEATURES, seed: int = 3) -> dict[str, Tensor]:
    """Weights of a world's network."""
    torch.manual_seed(seed)
    return nets.weights_of(nets.build(parse(World, given)))


def encoder(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Without the head."""
    return {name: w for name, w in weights.items() if not name.startswith("classifier.")}


def begun(
    weights: Mapping[str, Tensor],
    method: str = "fedavg",
    world: Mapping[str, Any] = FEATURES,
    trains: str | Sequence[str] = "head",
    policy: Policy = DEFAULT_POLICY,
    **more: Any,
) -> tuple[Federation, str]:
    """A federation, and a run in it of whose network a part trains: the head, unless it is said otherwise."""
    federation = Federation(METHODS, {name: replace(site, policy=policy) for name, site in sites().items()})
    asked = {**experiment(method, ROSTER, **more), "world": {**world, "trains": trains}}
    return federation, federation.start({**asked, "weights": federation.bring([save(dict(weights))])})


__all__ = ["FEATURES", "HEAD", "IMAGES", "ROSTER", "begun", "drawn", "encoder"]
