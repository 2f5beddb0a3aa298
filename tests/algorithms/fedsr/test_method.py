"""FedSR in whole runs: its objective, its mean, what stays at home, its prediction, networks, settings and lies."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.algorithms.lies import filled, honest, open_round, reported
from tests.algorithms.remembered import run_player
from tests.algorithms.source_free.played import sent
from tests.laws.stage import HoardingParts, Stage, hoarding_stage
from tests.synthetic import TRAIN, Rows, blobs, experiment, rows, sites
from tideline import nets
from tideline.algorithms import METHODS
from tideline.algorithms.averaging.messages import Model, State
from tideline.algorithms.fedsr import FedSR, Mine, fedsr, objective, predict, prepare
from tideline.archive.checks import LAX
from tideline.archive.parts import MemoryParts
from tideline.archive.reader import decode
from tideline.archive.writer import encode
from tideline.core.algorithm import contract
from tideline.core.asked.world import World
from tideline.core.record import Weights, record
from tideline.core.run import ClientId, Role
from tideline.core.step import Data, Site
from tideline.engine.model.orders import Reply
from tideline.engine.simulation.federation import SimSite
from tideline.experiments.results import Ended
from tideline.learning.prediction import Classifier
from tideline.nets import probabilistic
from tideline.nets.probabilistic import References

ROSTER = {"anna": "source", "bert": "source", "carl": "target"}
WORLD = World(inputs=(8,), classes=3, model="mlp")
BERT = ClientId("bert")
WAITING: dict[str, Any] = {"waiting": {"min_replies": 1, "deadline": 60.0}}


def federation(few: int = TRAIN) -> Stage:
    """Three sites, of which bert has so many rows. Nothing that was sent or kept is forgotten."""

    def opened(i: int, n: int) -> SimSite:
        return SimSite(lambda world, role: Rows(blobs(n, i, 0, world.inputs), rows(i, world).held_out))

    found = {name: opened(i, few if name == "bert" else TRAIN) for i, name in enumerate(ROSTER)}
    return hoarding_stage(METHODS, found)


played = partial(run_player(federation, roster=ROSTER), "fedsr")


def memory_of(stage: Stage, run: Any, name: str) -> list[Mine]:
    """What a site kept, after each of its commits."""
    vault = stage.vaults[ClientId(name)]
    return [decode(Mine, head.memory[0][0], vault.parts(run), LAX) for head in vault.past]


def at(data: Data, **config: Any) -> Site:
    """A site as a step sees it."""
    return Site(FedSR(**config), WORLD, BERT, Role.SOURCE, data, 1, torch.Generator().manual_seed(4))


def network(seed: int = 0) -> nn.Module:
    """An encoder and a classifier in float64, whose scales differ from row to row."""
    torch.manual_seed(seed)
    return probabilistic.build(WORLD).double()


@pytest.mark.parametrize("l2r", ["norm", "squared"])
def test_the_objective_by_hand(l2r: str) -> None:
    """CE(y, g(z)) + a_L2R mean |z| + a_CMI mean KL, z = mu + softplus(s) eps, in float64, term by term."""
    c, net = FedSR(a_l2r=0.3, a_cmi=0.7, l2r=l2r), network()
    x, y = blobs(9, 1, 3).x.all().double(), blobs(9, 1, 3).y
    assert y is not None
    rng = torch.Generator().manual_seed(1)
    eps, r_mu, r_s = (torch.randn(n, 64, generator=rng, dtype=torch.float64) for n in (9, 3, 3))
    references = References(r_mu, r_s, torch.tensor(1.4, dtype=torch.float64))
    with torch.no_grad():
        found = float(objective(c, net, references, x, y, eps))
        e = net.get_submodule("features")(x).numpy()
        mu, sigma = e[:, :64], np.log1p(np.exp(e[:, 64:]))
        z = mu + sigma * eps.numpy()
        logits = net.get_submodule("classifier")(torch.from_numpy(z)).numpy()
    plain = np.mean(np.log(np.exp(logits).sum(1)) - logits[np.arange(9), y.numpy()])
    short = np.mean((z**2).sum(1) if l2r == "squared" else np.sqrt((z**2).sum(1)))
    r, s = r_mu.numpy()[y.numpy()], np.log1p(np.exp(r_s.numpy()))[y.numpy()]
    kl = np.log(s) - np.log(1.4 * sigma) + ((1.4 * sigma) ** 2 + (1.4 * mu - r) ** 2) / (2 * s**2) - 0.5
    assert found == pytest.approx(plain + 0.3 * short + 0.7 * np.mean(kl.sum(1)), rel=1e-9)


def test_its_gradient_is_checked() -> None:
    """By finite differences, over a layer of the network and everything that a site keeps."""
    c, net = FedSR(a_l2r=0.3, a_cmi=0.7), network()
    x, y = blobs(3, 1, 3).x.all().double(), torch.tensor([0, 1, 2])
    eps = torch.randn(3, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    bias = net.get_parameter("features.1.bias").detach().clone().requires_grad_()
    start = [torch.zeros(3, 64).double(), torch.ones(3, 64).double(), torch.tensor(1.0).double()]

    def objective(bias: Tensor, *given: Tensor) -> Tensor:
        whole = Whole(net, c, References(*given))
        found: Tensor = torch.func.functional_call(whole, {"net.features.1.bias": bias}, (x, y, eps))
        return found

    assert torch.autograd.gradcheck(objective, [bias, *(t.requires_grad_() for t in start)])


class Whole(nn.Module):
    """The objective as a module, so that parameters can be exchanged."""

    def __init__(self, net: nn.Module, c: FedSR, references: References) -> None:
        super().__init__()
        self.net, self.c, self.references = net, c, references

    def forward(self, x: Tensor, y: Tensor, eps: Tensor) -> Tensor:
        return objective(self.c, self.net, self.references, x, y, eps)


def test_models_are_averaged_uniformly() -> None:
    """A site with few rows counts as much as one with many, and no number of rows is told."""
    stage, run = played(federation(few=6), rounds=1)
    replies = [reply for _, reply in sent(stage, run, "train").values()]
    last = decode(State, stage.row(run).state_digest, stage.parts)  # type: ignore[arg-type]
    for name, w in last.model.items():
        torch.testing.assert_close(w, (replies[0].model[name] + replies[1].model[name]) / 2)
    assert stage.result(run)["clients"][1]["samples"] is None
    fields = {c.field for c in contract(fedsr, fedsr.configure({}))}
    assert fields == {"model", "metrics.loss", "metrics.accuracy"}


def test_references_begin_alike_and_stay_at_home() -> None:
    """Zeros, ones and C = 1; each site trains its own, from where it left them; a target's are never touched."""
    stage, run = played(rounds=3)
    joined, *after = memory_of(stage, run, "anna")
    assert not joined.r_mu.any() and bool((joined.r_s == 1).all()) and joined.C == 1.0
    trained = [m for i, m in enumerate(after) if i % 2 == 0]  # a scoring keeps what is there
    moved = [float((m.r_mu - joined.r_mu).norm()) for m in trained]
    assert len(trained) == 3 and 0 < moved[0] < moved[1] < moved[2]
    assert all(torch.equal(a.r_mu, b.r_mu) and a.C == b.C for a, b in zip(after[::2], after[1::2], strict=True))
    assert trained[-1].C != 1.0 and bool((trained[-1].r_s != 1).any())
    assert not torch.equal(trained[-1].r_mu, memory_of(stage, run, "bert")[-1].r_mu)
    assert all(not m.r_mu.any() and m.C == 1.0 for m in memory_of(stage, run, "carl"))


def test_without_the_second_term_references_stay() -> None:
    """Nothing draws on them, whatever the first term's weight is."""
    stage, run = played(a_cmi=0.0, weight_decay=0.0)
    last = memory_of(stage, run, "anna")[-1]
    assert not last.r_mu.any() and bool((last.r_s == 1).all()) and last.C == 1.0


@pytest.mark.nightly(job="numbers")
def test_representations_grow_shorter_under_the_first_term() -> None:
    """The larger its weight, the shorter z is in the end."""

    def lengths(weight: float) -> float:
        stage, run = played(a_l2r=weight, rounds=4)
        net = nets.loaded(WORLD, decode(State, stage.row(run).state_digest, stage.parts).model, made=probabilistic.build)  # type: ignore[arg-type]
        with torch.no_grad():
            return float(probabilistic.encoded(net, blobs(60, 0, 1).x.all())[0].norm(dim=1).mean())

    found = [lengths(weight) for weight in (0.0, 0.1, 1.0)]
    assert found[0] > found[1] > found[2]


@pytest.mark.parametrize("draws", [0, 1, 20])
def test_a_prediction_by_hand(draws: int) -> None:
    """The mean of the softmax over draws from the site's generator, row batches of the network's; mu alone for 0."""
    torch.manual_seed(0)
    model = nets.weights_of(probabilistic.build(WORLD))
    data = blobs(11, 1, 3)
    found = predict(Model(model), prepare(FedSR(), at(data)), at(data, draws=draws), data.x.all())
    net = nets.loaded(WORLD, model, made=probabilistic.build)
    with torch.no_grad():
        mu, sigma = probabilistic.encoded(net, data.x.all())
        eps = torch.randn(draws, 11, 64, generator=torch.Generator().manual_seed(4))
        z = mu + sigma * eps if draws else mu[None]
        expected = net.get_submodule("classifier")(z).softmax(2).mean(0)
    torch.testing.assert_close(found.exp(), expected)
    again = predict(Model(model), prepare(FedSR(), at(data)), at(data, draws=draws), data.x.all())
    assert torch.equal(found, again)
    if draws == 0:
        torch.testing.assert_close(expected.log(), net.get_submodule("classifier")(mu).log_softmax(1))


@pytest.mark.parametrize("name", ["lenet", "lenet_bn"])
def test_networks_of_images(name: str) -> None:
    """They train and are scored; with confidences too, of which every held-out row is in one bin."""
    world = {"inputs": [1, 8, 8], "classes": 3, "model": name}
    stage, run = played(more={"world": world, "scores": "accuracy"}, rounds=1, confidence=True)
    told_of = next(p for p in stage.result(run)["phases"] if p["name"] == "score")
    assert sum(sum(line) for each in told_of["tables"].values() for line in each["values"]) == 3 * 60
    assert all(0 <= c["metrics"]["ece"] <= 1 for c in stage.result(run)["clients"])
    shape = memory_of(stage, run, "anna")[-1].r_mu.shape
    assert shape == (3, 128)


def test_adam_trains_the_references_too() -> None:
    """One optimiser for all that is trained."""
    stage, run = played(optimiser="adam", rate=1e-2, rounds=1)
    assert bool(memory_of(stage, run, "anna")[-1].r_mu.any())


def test_its_owner_takes_out_the_references() -> None:
    """r_mu, r_sigma and C, once they were trained."""
    stage, run = played()
    last = memory_of(stage, run, "bert")[-1]
    found = fedsr.keepsakes(fedsr.configure({}), last)["references"]
    assert torch.equal(found["r_mu"], last.r_mu) and torch.equal(found["r_sigma"], functional.softplus(last.r_s))
    assert float(found["C"]) == last.C
    assert fedsr.keepsakes(fedsr.configure({}), memory_of(stage, run, "carl")[-1]) == {}


def first_round(**config: Any) -> tuple[Any, Any, Any]:
    """A run whose first round is open, and bert's order."""
    return open_round(federation(), experiment("fedsr", ROSTER, config=config), "train", BERT)


def test_references_beside_the_model_are_refused() -> None:
    """An agent that tells them all the same: the coordinator takes nothing that is not declared."""
    stage, run, order = first_round()
    reply, parts = honest(stage, run, order, BERT), MemoryParts()
    kind: Any = record(type("Free", (), {"__annotations__": {"model": Weights, "r_mu": Tensor}}))
    files = encode(kind(reply.model, torch.zeros(3, 64)), parts, LAX).files
    with stage.agent_service.push(BERT, order.id, tuple((digest, size, 0) for digest, size in files)) as intake:
        for digest, _ in files:
            intake.write(parts.view(digest))
        stage.agent_service.received(BERT, order.id, intake)
    receipt = stage.agent_service.report(BERT, Reply(order.id, files))
    assert receipt.verdict == "refused" and receipt.error is not None and receipt.error.kind == "Undeclared"


@pytest.mark.parametrize("config", [{}, {"draws": 0}, {"confidence": True}])
def test_a_reply_that_is_taken_can_be_folded(config: dict[str, Any]) -> None:
    """Of the largest numbers: the round closes, the state is finite, and the run ends as it should."""
    stage, run, order = first_round(rounds=1, **config)
    assert reported(stage, run, order, BERT, filled("model", 1e15)).verdict == "accepted"
    row = stage.play(run)
    assert row.status.value == "completed", row.cause
    assert BERT in next(r for r in stage.journal.rounds(run) if r.cursor == order.cursor).folded


def test_its_model_predicts_with_the_mean() -> None:
    """Without draws to the row as the run was scored, and without a note; with draws the note says what is different."""
    stage = Stage(METHODS, sites(), parts=HoardingParts())
    run = stage.start(experiment("fedsr", ROSTER, config={"draws": 0}))
    stage.play(run)
    ended = Ended(stage.result(run), METHODS)
    model = ended.of_run(decode(State, stage.journal.rounds(run)[-1].state[0][0], stage.parts, LAX))
    assert model is not None and model.origin.note == ""
    for client in ended.result["clients"]:
        held = sites()[client["name"]].open_site_data(WORLD, Role.SOURCE).held_out  # type: ignore[attr-defined]
        right = (Classifier(model).predict(held.x.all()).classes == held.y).double().mean()
        assert float(right) == client["accuracy"]
    assert fedsr.run_model is not None
    assert "mean over 20 draws" in fedsr.run_model.differs(fedsr.configure({}))
