"""Runs of hypernetworks' methods: clients with labels, and a domain that nobody trains on."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from tests.algorithms import compare
from tests.algorithms.remembered import run_player
from tests.laws.stage import HoardingParts, Stage
from tests.synthetic import NAMES, sites
from tideline import nets
from tideline.algorithms import METHODS
from tideline.algorithms.hypernetworks import State
from tideline.core.asked.world import World
from tideline.numerics.aggregation.hypernetwork import generate, trunk

ROSTER = {"anna": "source", "bert": "source", "carl": "source", "dora": "target"}
CLIENTS = ("anna", "bert", "carl")
WORLD = World(inputs=(8,), classes=3, model="mlp")
close = partial(compare.close, rtol=1e-4)
WAITING = {"waiting": {"min_replies": 1, "deadline": 60.0}}


def federation() -> Stage:
    """The sites; no part is forgotten."""
    return Stage(METHODS, sites(NAMES[:4]), parts=HoardingParts())


played = run_player(federation, roster=ROSTER)


def phi(theta: Any, row: Tensor) -> dict[str, Tensor]:
    """A client's model by linear heads."""
    template = nets.template(WORLD)
    return generate(theta, trunk(theta, row), {name: template[name].shape for name in sorted(template)})


def gradient(state: State, client: str, delta: Any) -> dict[str, Tensor]:
    """-J_i^T Delta_i by autograd, from end to end: of all of theta, nu among it."""
    theta = {name: each.clone().requires_grad_() for name, each in state.theta.items()}
    made = phi(theta, theta["nu"][state.clients.index(client)])
    along = -torch.stack([(made[name] * delta[name]).sum() for name in made]).sum()
    found = torch.autograd.grad(along, list(theta.values()))
    return dict(zip(theta, found, strict=True))


def flat(g: dict[str, Tensor]) -> Tensor:
    """A gradient as one vector, float64."""
    return torch.cat([g[name].flatten() for name in sorted(g)]).double()
