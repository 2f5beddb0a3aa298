"""FedAvg and FedProx against their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.algorithms.remembered import remembered
from tests.laws.stage import HoardingParts, Stage
from tests.laws.values import like
from tests.synthetic import Rows, blobs, experiment
from tideline import nets
from tideline.algorithms import METHODS
from tideline.algorithms.averaging import near
from tideline.algorithms.averaging.messages import State, Update
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.asked.world import World
from tideline.engine.simulation.federation import SimSite
from tideline.learning.fit import cross_entropy

ROSTER = {"anna": "source", "bert": "source", "carl": "target"}
SIZES = {"anna": 12, "bert": 30, "carl": 20}


def uneven() -> dict[str, SimSite]:
    """Sites with unequal numbers of rows."""
    return {
        name: SimSite(lambda world, role, n=n, i=i: Rows(blobs(n, i, 5), blobs(9, i, 6)))
        for i, (name, n) in enumerate(SIZES.items())
    }


@remembered
def played(method: str, roster: dict[str, str] = ROSTER, sites_: Any = None, **config: Any) -> tuple[Stage, Any]:
    """One finished run of which no part is forgotten."""
    stage = Stage(METHODS, sites_ or uneven(), parts=HoardingParts())
    run = stage.start(experiment(method, roster, config=config))
    assert stage.play(run).status.value == "completed", stage.row(run).cause
    return stage, run


def states(stage: Stage, run: Any) -> list[State]:
    """The state after every closed round; the first one before any training."""
    return [decode(State, r.state[0][0], stage.parts, LAX) for r in stage.journal.rounds(run)]


def updates(stage: Stage, run: Any, cursor: int) -> dict[str, Update]:
    """What each site answered."""
    first = states(stage, run)[0]
    orders = stage.journal.orders(run, cursor)
    return {o.client: decode(Update, o.reply[0][0], stage.parts, like(first)) for o in orders}


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_the_new_model_is_the_weighted_mean_of_the_replies(weighting: str) -> None:
    """w is sum n_i w_i / n, or the plain mean, of the models that came, against numpy in float64."""
    stage, run = played("fedavg", weighting=weighting, rounds=1)
    replies = updates(stage, run, 0)
    assert {name: u.samples for name, u in replies.items()} == {"anna": 12, "bert": 30}
    total = sum(u.samples for u in replies.values())
    share = {n: u.samples / total if weighting == "samples" else 1 / len(replies) for n, u in replies.items()}
    for name, tensor in states(stage, run)[-1].model.items():
        expected = sum(share[n] * u.model[name].double().numpy() for n, u in replies.items())
        np.testing.assert_allclose(tensor.numpy(), expected, rtol=1e-6, atol=1e-7)


def test_one_client_keeps_its_own_model() -> None:
    """With a single learner the mean is its model, bit for bit."""
    stage, run = played("fedavg", {"anna": "source"}, rounds=1)
    (reply,) = updates(stage, run, 0).values()
    for name, tensor in states(stage, run)[-1].model.items():
        assert torch.equal(tensor, reply.model[name])


def test_one_full_batch_epoch_is_the_central_step() -> None:
    """Through the whole stack: a round of full-batch plain SGD equals one step on the pooled rows."""
    plain = {"rounds": 1, "epochs": 1, "batch": 100, "momentum": 0.0, "weight_decay": 0.0, "rate": 0.1}
    stage, run = played("fedavg", **plain)
    world = World(inputs=(8,), classes=3, model="mlp")
    net = nets.loaded(world, states(stage, run)[0].model).double()
    pooled = [blobs(SIZES[name], i, 5) for i, name in enumerate(("anna", "bert"))]
    cross_entropy(net, torch.cat([d.x.all() for d in pooled]).double(), torch.cat([d.y for d in pooled])).backward()  # type: ignore[misc, no-untyped-call]
    for name, p in net.named_parameters():
        assert p.grad is not None
        central = (p - 0.1 * p.grad).detach()
        torch.testing.assert_close(states(stage, run)[-1].model[name].double(), central, rtol=0, atol=1e-6)


def test_fedprox_without_its_term_is_fedavg_bit_for_bit() -> None:
    """mu = 0 gives FedAvg's digest; any other mu gives another one."""
    digests = {}
    for mu in (0.0, 1e-2):
        stage, run = played("fedprox", mu=mu)
        digests[mu] = stage.row(run).state_digest
    stage, run = played("fedavg")
    assert digests[0.0] == stage.row(run).state_digest != digests[1e-2]


def test_the_proximal_term_is_half_mu_times_the_squared_distance() -> None:
    """Value and gradient of (mu / 2) |w - w0|^2 over the trainable parameters, against a sum by hand."""
    world = World(inputs=(4,), classes=3, model="mlp")
    net, start = nets.build(world).double(), nets.weights_of(nets.build(world).double())
    term = near(net, start, 0.3)
    assert term is not None
    by_hand = sum(((p.detach() - start[name]) ** 2).sum() for name, p in net.named_parameters())
    torch.testing.assert_close(term.detach().double(), torch.as_tensor(0.15 * by_hand).double())
    term.backward()  # type: ignore[no-untyped-call]
    for name, p in net.named_parameters():
        torch.testing.assert_close(p.grad, 0.3 * (p.detach() - start[name]))


def test_only_learners_train_and_all_are_scored() -> None:
    """A target is never asked to train, its count is never told, and it is scored like the others."""
    stage, run = played("fedavg", rounds=2, evaluate_every=2)
    phases = [(r.phase, r.folded) for r in stage.journal.rounds(run)]
    assert phases == [
        ("join", ("anna", "bert", "carl")),
        ("train", ("anna", "bert")),
        ("train", ("anna", "bert")),
        ("score", ("anna", "bert", "carl")),
    ]
    assert stage.result(run)["clients"][2]["samples"] is None
