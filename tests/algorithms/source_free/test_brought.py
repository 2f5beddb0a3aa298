"""Methods of the family that begin from a source model which a person brings: no source takes part."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from safetensors.torch import save

from tests.algorithms.source_free.played import ROSTER, site
from tests.synthetic import FEATURES, experiment
from tideline import nets
from tideline.algorithms import METHODS
from tideline.core.algorithm import resolve
from tideline.core.asked.world import World
from tideline.core.privacy import DEFAULT_POLICY, Audience, Exposure
from tideline.core.settings import parse
from tideline.engine.simulation.federation import Federation

OTHERS = ("fedamp_pl", "ifca_pl", "fedpcl_pl")
ALLOWED = DEFAULT_POLICY | {(Exposure.STATISTIC, Audience.PEERS)}
TARGETS = {name: role for name, role in ROSTER.items() if role == "target"}


@pytest.mark.parametrize("method", OTHERS)
def test_targets_adapt_what_is_brought(method: str) -> None:
    """The run ends; h_S is the file, bit for bit; another file ends elsewhere."""
    assert resolve(METHODS, method).initial_weights is not None
    ends = {}
    for seed in (3, 4):
        torch.manual_seed(seed)
        federation = Federation(METHODS, {name: replace(site(name), policy=ALLOWED) for name in TARGETS})
        file = save(nets.weights_of(nets.build(parse(World, FEATURES))))
        run = federation.start(experiment(method, TARGETS) | {"weights": federation.bring([file])})
        result = federation.run(run)
        assert result["status"] == "completed", result["cause"]
        assert all(client["source_only"] is not None for client in result["clients"])
        ends[result["state_digest"]] = result
    assert len(ends) == 2
