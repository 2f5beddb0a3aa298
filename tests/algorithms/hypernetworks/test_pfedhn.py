"""pFedHN: one client at a time, and a step on what comes back."""

from __future__ import annotations

import pytest
import torch

from tests.algorithms.hypernetworks.played import CLIENTS, close, flat, gradient, phi, played
from tests.algorithms.source_free.played import sent, states
from tideline.algorithms.pfedhn import Config, pfedhn
from tideline.algorithms.pfedhn.messages import State


def test_every_client_has_its_turn_in_every_pass() -> None:
    """Once in N steps, in an order that the seed draws anew."""
    stage, run = played("pfedhn", rounds=9, evaluate_every=9)
    turns = [client for client, _ in sorted(sent(stage, run, "train"), key=lambda place: place[1])]
    passes = [turns[i : i + 3] for i in range(0, 9, 3)]
    assert all(sorted(each) == list(CLIENTS) for each in passes)
    orders = {tuple(sent_to(seed)) for seed in range(8)}
    assert len(orders) > 2


def sent_to(seed: int) -> list[str]:
    """Whose turn it was in the first pass of a run with this seed."""
    stage, run = played("pfedhn", more={"seed": seed}, rounds=3, evaluate_every=3)
    return [client for client, _ in sorted(sent(stage, run, "train"), key=lambda place: place[1])]


@pytest.mark.parametrize("clip", [0.0, 1e-3])
def test_a_step_by_hand(clip: float) -> None:
    """SGD with momentum and weight decay along J_i^T (phi_i - phi~_i), shortened to the largest norm."""
    stage, run = played(
        "pfedhn", rounds=2, evaluate_every=2, server_clip=clip, server_rate=0.1, server_momentum=0.5, server_weight_decay=0.2
    )
    found = [s.hyper for s in states(stage, run, State)]
    exchange = {r: (k, *each) for (k, r), each in sent(stage, run, "train").items()}
    parameters = {name: torch.nn.Parameter(w.clone()) for name, w in found[0].theta.items()}
    by = torch.optim.SGD(parameters.values(), lr=0.1, momentum=0.5, weight_decay=0.2)
    for r in (1, 2):
        client, order, reply = exchange[r]
        close(order.model, phi(found[r - 1].theta, found[r - 1].theta["nu"][CLIENTS.index(client)]))
        g = gradient(found[r - 1], client, reply.delta)
        scale = min(1.0, clip / float(flat(g).norm())) if clip else 1.0
        for name, p in parameters.items():
            p.grad = scale * g[name]
        by.step()
        close(found[r].theta, {name: p.detach() for name, p in parameters.items()})
    assert found[0].v == {} and found[2].steps == 2


def test_the_published_settings() -> None:
    """Those of the authors' code by default; in the comparison of hFedF whole epochs and Adam at both ends."""
    c = Config()
    assert (c.batches, c.rate, c.momentum, c.weight_decay, c.max_norm) == (50, 5e-3, 0.9, 5e-5, 50.0)
    assert (c.server_rate, c.server_momentum, c.server_weight_decay, c.server_clip) == (1e-2, 0.9, 1e-3, 50.0)
    for preset, rates in {"pacs": (1e-2, 1e-3, 1e-5), "office_home": (1e-3, 1e-4, 1e-4), "vlcs": (1e-3, 1e-4, 1e-4)}.items():
        c = pfedhn.configure({}, preset)
        assert (c.server_rate, c.server_weight_decay, c.weight_decay) == rates
        assert (c.optimiser, c.server_optimiser, c.batches, c.epochs, c.rate) == ("adam", "adam", 0, 2, 1e-3)
