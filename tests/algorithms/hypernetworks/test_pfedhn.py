"""pFedHN: one client at a time, and a step on what comes back."""

from __future__ import annotations

import pytest
import torch

from tests.algorithms.hypernetworks.played import CLIENTS, ROSTER, WAITING, close, federation, flat, gradient, phi, played
from tests.algorithms.source_free.played import away, sent, states
from tests.synthetic import experiment
from tideline.algorithms.pfedhn import Config, State, pfedhn
from tideline.core.algorithm import contract
from tideline.core.privacy import TO_BOTH


def test_every_client_has_its_turn_in_every_pass() -> None:
    """Once in N steps, in an order that the seed draws anew."""
    passes = [(tuple(turns[:3]), tuple(turns[3:])) for turns in map(sent_to, range(4))]
    assert all(sorted(turns) == list(CLIENTS) for both in passes for turns in both)
    assert len({first for first, _ in passes}) > 2
    assert any(first != second for first, second in passes)


def sent_to(seed: int) -> list[str]:
    """Whose turn it was in the first two passes of a run with this seed."""
    stage, run = played("pfedhn", more={"seed": seed}, rounds=6, evaluate_every=6)
    return [client for client, _ in sorted(sent(stage, run, "train"), key=lambda place: place[1])]


@pytest.mark.parametrize("clip", [1e6, 1e-3])
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
        scale = min(1.0, clip / float(flat(g).norm()))
        for name, p in parameters.items():
            p.grad = scale * g[name]
        by.step()
        close(found[r].theta, {name: p.detach() for name, p in parameters.items()})
    assert found[0].v == {} and found[2].steps == 2


def test_what_is_not_generated_moves_by_a_share() -> None:
    """rest <- rest + Delta_i / N, so that no site is sent another's tensors as they are; the clause says who may see a share."""
    stage, run = played("pfedhn", rounds=3, evaluate_every=3, generate=["classifier.*"])
    found = [s.hyper for s in states(stage, run, State)]
    exchange = {r: each for (_, r), each in sent(stage, run, "train").items()}
    for r in (1, 2, 3):
        order, reply = exchange[r]
        for name, w in found[r - 1].rest.items():
            assert order.model[name].equal(w)
            torch.testing.assert_close(found[r].rest[name], w + reply.delta[name] / 3)
    (clause,) = [c for c in contract(pfedhn, Config()) if c.field == "delta"]
    assert clause.audience == TO_BOTH


def test_a_lost_site_loses_its_turn() -> None:
    """Where the run's rule says how few will do; else it is waited for. Nothing is learnt in a step that nobody answered."""
    stage = federation()
    lost = [("train", r) for r in range(1, 7)]
    stage, run = played("pfedhn", stage, away(stage, "bert", *lost), WAITING, rounds=6, evaluate_every=6)
    found = [s.hyper for s in states(stage, run, State)]
    answered = {r for (_, r), (_, reply) in sent(stage, run, "train").items() if reply is not None}
    assert len(answered) == 4
    for r in range(1, 7):
        assert (found[r].steps == found[r - 1].steps + 1) == (r in answered)
    stage = federation()
    run = stage.start(experiment("pfedhn", ROSTER, config={"rounds": 3, "evaluate_every": 3}))
    assert stage.play(run, away(stage, "bert", *lost)).status.value == "stalled"


def test_local_settings_reach_local_training() -> None:
    """So many mini-batches, each gradient no longer than it may be."""
    moved = {}
    for name, config in {"free": {"batches": 1}, "two": {"batches": 2}, "clipped": {"batches": 1, "clip_gradient": 1e-4}}.items():
        stage, run = played("pfedhn", rounds=1, rate=1.0, momentum=0.0, weight_decay=0.0, **config)
        ((_, reply),) = sent(stage, run, "train").values()
        moved[name] = float(flat(reply.delta).norm())
    assert moved["clipped"] == pytest.approx(1e-4, rel=1e-2) and moved["two"] != moved["free"] > 0.01
