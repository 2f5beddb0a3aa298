"""Methods that begin from weights which a person brings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from safetensors.torch import save

from tests.algorithms.lies import tier_params
from tests.algorithms.source_free.played import ROSTER, site
from tests.algorithms.targeted import NORMED
from tests.laws.laws import EVERYTHING
from tests.laws.values import leaves, raw
from tests.synthetic import FEATURES, experiment
from tideline import nets
from tideline.algorithms import METHODS
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.algorithm import resolve
from tideline.core.asked.world import world_in
from tideline.core.errors import ConfigRefused
from tideline.engine.model.orders import Order
from tideline.engine.simulation.federation import Federation

TARGETS = {name: role for name, role in ROSTER.items() if role == "target"}
TWO, ONE_TARGET = {"anna": "source", "bert": "source", "carl": "target"}, {"anna": "source", "bert": "source", "dora": "target"}
BROUGHT: Mapping[str, tuple[str, Mapping[str, str], Mapping[str, Any]]] = {
    **{
        name: (name, TARGETS, FEATURES)
        for name in ("shot", "fedavg_shot", "fedprox_pl", "fedamp_pl", "ifca_pl", "fedpcl_pl", "fedwca")
    },
    **{name: (name, TWO, FEATURES) for name in ("central", "fedavg", "fedprox", "fedgma", "self_training")},
    **{name: (name, ONE_TARGET, NORMED) for name in ("fdan", "kd3a")},
    "adabn": ("adabn", TARGETS, NORMED),
}


def weights(world: Mapping[str, Any], seed: int = 3) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    return nets.weights_of(nets.build(world_in(dict(world))))


def federation(roster: Mapping[str, str]) -> Federation:
    """Sites whose owners forbid nothing."""
    return Federation(METHODS, {name: replace(site(name), policy=EVERYTHING) for name in roster})


@pytest.mark.parametrize(("method", "roster", "world"), tier_params(BROUGHT, "fedgma", "ifca_pl", "adabn"))
def test_a_run_begins_from_what_is_brought(method: str, roster: dict[str, str], world: dict[str, Any]) -> None:
    """The first state has the file's tensors, bit for bit, and the run ends; of the source-free methods no source takes part."""
    at, brought = federation(roster), weights(world)
    run = at.start(experiment(method, roster, world=dict(world), weights=at.bring([save(brought)])))
    held = set[bytes]()

    def look(orders: list[Order]) -> list[Order]:
        if not held and (closed := at.journal.rounds(run)):
            first = decode(resolve(METHODS, method).state, closed[0].state[0][0], at.parts, LAX)
            held.update(raw(value) for _, value in leaves(first) if isinstance(value, torch.Tensor))
        return orders

    result = at.run(run, order_of=look)
    assert result["status"] == "completed", result["cause"]
    assert "source" not in {phase["name"] for phase in result["phases"]}
    assert {raw(w) for w in brought.values()} <= held


@pytest.mark.nightly(job="numbers")
def test_another_file_ends_elsewhere() -> None:
    ends = set()
    for seed in (3, 4):
        at = federation(TARGETS)
        ends.add(
            at.run(at.start(experiment("fedamp_pl", TARGETS, weights=at.bring([save(weights(FEATURES, seed))]))))["state_digest"]
        )
    assert len(ends) == 2


def test_a_model_without_batch_norm_is_refused() -> None:
    at = federation(TARGETS)
    with pytest.raises(ConfigRefused, match="no batch norm"):
        at.start(experiment("adabn", TARGETS, weights=at.bring([save(weights(FEATURES))])))
