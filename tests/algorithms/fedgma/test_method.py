"""FedGMA in whole runs: its fold against the definition, its limits, its settings, and replies that lie."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.algorithms.lies import Change, filled, night_params, open_round, reported
from tests.algorithms.test_averaging import ROSTER, SIZES, played, states, updates
from tests.laws.stage import HoardingParts, Stage
from tests.synthetic import FEATURES, Rows, blobs, experiment, sites
from tideline import nets
from tideline.algorithms import METHODS
from tideline.algorithms.averaging.messages import Model, State, Update
from tideline.algorithms.fedgma import fedgma, fold, fold_sums, terms
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.asked.secure import SecureSums
from tideline.core.asked.world import World
from tideline.core.phase import Replies, Turn
from tideline.core.run import ClientId
from tideline.core.settings import parse
from tideline.engine.simulation.federation import SimSite

BERT = ClientId("bert")
IMAGES: dict[str, Any] = {"inputs": [1, 8, 8], "classes": 3, "model": "lenet_bn"}
WAITING: dict[str, Any] = {"waiting": {"min_replies": 1, "deadline": 60.0}}


def federation() -> Stage:
    """Sites with unequal numbers of rows, in the shape that the world asks for. No part is forgotten."""

    def opened(i: int, n: int) -> SimSite:
        return SimSite(lambda world, role: Rows(blobs(n, i, 5, world.inputs), blobs(9, i, 6, world.inputs)))

    return Stage(METHODS, {name: opened(i, n) for i, (name, n) in enumerate(SIZES.items())}, parts=HoardingParts())


@pytest.mark.parametrize("weighting", ["samples", *night_params("uniform")])
@pytest.mark.parametrize(("tau", "rate"), [(0.0, 1.0), (0.7, 1.0), (0.7, 0.01), (0.5, 3.0)])
def test_the_new_model_is_the_masked_step(weighting: str, tau: float, rate: float) -> None:
    """w + eta_s m sum p_i Delta_i of the replies, in float64 NumPy, in both rounds."""
    stage, run = played("fedgma", weighting=weighting, tau=tau, server_rate=rate)
    before, middle, *_ = (s.model for s in states(stage, run))
    replies = updates(stage, run, 0)
    total = sum(u.samples for u in replies.values())
    p = {k: u.samples / total if weighting == "samples" else 1 / len(replies) for k, u in replies.items()}
    for name, w in before.items():
        start = w.double().numpy()
        deltas = {k: u.model[name].double().numpy() - start for k, u in replies.items()}
        a = np.abs(sum(np.sign(d) for d in deltas.values())) / len(deltas)
        step = np.where(a >= tau, 1.0, a) * sum(p[k] * d for k, d in deltas.items())
        np.testing.assert_allclose(middle[name].numpy(), start + rate * step, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weighting", ["samples", *night_params("uniform")])
@pytest.mark.parametrize("world", [FEATURES, IMAGES], ids=["mlp", "batch norm"])
def test_without_a_threshold_it_is_federated_averaging(weighting: str, world: dict[str, Any]) -> None:
    """tau = 0 and eta_s = 1 end in its digest; the settings of old do not."""

    def digest(method: str, **config: Any) -> Any:
        stage = federation()
        run = stage.start(experiment(method, ROSTER, world=dict(world), config={"weighting": weighting, **config}))
        assert stage.play(run).status.value == "completed", stage.row(run).cause
        return stage.row(run).state_digest

    assert digest("fedgma", tau=0.0) == digest("fedavg") != digest("fedgma", tau=1.0)


def test_one_client_keeps_its_own_model() -> None:
    """Whatever the threshold, N = 1 leaves the mask 1 wherever something moved."""
    stage, run = played("fedgma", {"anna": "source"}, rounds=1, tau=1.0)
    (reply,) = updates(stage, run, 0).values()
    assert all(torch.equal(w, reply.model[name]) for name, w in states(stage, run)[-1].model.items())


def test_what_batch_norm_measures_is_not_masked() -> None:
    """With a step of nothing the parameters stay; running means and variances are the plain mean."""
    stage = federation()
    run = stage.start(experiment("fedgma", ROSTER, world=IMAGES, config={"rounds": 1, "server_rate": 0.0, "tau": 1.0}))
    assert stage.play(run).status.value == "completed", stage.row(run).cause
    first, last = states(stage, run)[0].model, states(stage, run)[-1].model
    replies = updates(stage, run, 0)
    for name, w in last.items():
        if "running" in name:
            expected = sum(u.model[name] * (u.samples / 42) for u in replies.values())
            torch.testing.assert_close(w, torch.as_tensor(expected))
            assert not torch.equal(w, first[name])
        else:
            assert torch.equal(w, first[name])


def test_sums_of_signs_and_changes_make_the_same_model() -> None:
    """The fold of sums over sites is that of the sites' replies, but for the last digits."""
    at, world = sites(), parse(World, FEATURES)
    torch.manual_seed(5)
    w = nets.weights_of(nets.build(world))
    made = {name: {k: t + 0.1 * torch.randn(t.shape) for k, t in w.items()} for name in at}
    replies = {name: Update(model, 10 + i) for i, (name, model) in enumerate(made.items())}
    c, asked = fedgma.configure({"tau": 0.9, "server_rate": 0.5}), SecureSums()
    turn = Turn(config=c, world=world, roster=(), round=1, rng=torch.Generator())
    from_replies = fold(State(w), Replies({name: (lambda r=r: r) for name, r in replies.items()}), turn)
    total: dict[str, torch.Tensor] = {}
    for reply in replies.values():
        for name, term in terms(reply, Model(w), SimpleNamespace(config=c), asked).items():  # type: ignore[arg-type]
            total[name] = total.get(name, torch.zeros(term.shape, dtype=torch.float64)) + term
    from_sums = fold_sums(total, State(w), turn, asked)
    assert all(torch.allclose(from_sums.model[k], from_replies.model[k], atol=1e-6) for k in w)


def first_round(**config: Any) -> tuple[Any, Any, Any]:
    """A run whose first round is open, and bert's order."""
    return open_round(federation(), experiment("fedgma", ROSTER, config=config), "train", BERT)


@pytest.mark.parametrize("config", [{}, *night_params({"server_rate": 10.0, "tau": 0.0}, {"weighting": "uniform", "tau": 1.0})])
@pytest.mark.parametrize(
    "change",
    [
        filled("model", 1e15),
        filled("model", -1e15),
        lambda given: {"samples": 10**15},
        lambda given: {**filled("model", 1e15)(given), "samples": 10**15},
    ],
    ids=["the largest model", "the least", "the most rows", "both"],
)
def test_a_reply_that_is_taken_can_be_folded(change: Change, config: dict[str, Any]) -> None:
    """The round closes, the state is finite, and the run ends as it should."""
    stage, run, order = first_round(rounds=1, **config)
    assert reported(stage, run, order, BERT, change).verdict == "accepted"
    row = stage.play(run)
    assert row.status.value == "completed", row.cause
    assert BERT in next(r for r in stage.journal.rounds(run) if r.cursor == order.cursor).folded
    last = [decode(State, r.state[0][0], stage.parts, LAX) for r in stage.journal.rounds(run)][-1]
    assert all(bool(torch.isfinite(w).all()) and float(w.abs().max()) <= 1.001e15 for w in last.model.values())
