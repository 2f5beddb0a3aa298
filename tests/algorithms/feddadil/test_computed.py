"""FedDaDiL: what atoms start from, what comes of them, and what the owner may take."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.algorithms.feddadil.played import (
    ALREADY,
    ROSTER,
    federation,
    few,
    left,
    memory,
    of_images,
    phases,
    played,
    scored,
    site,
)
from tests.algorithms.lies import night_params
from tests.laws.stage import Stage
from tests.synthetic import CLASSES, IMAGES, blobs, experiment
from tideline.algorithms.feddadil import Config, client, feddadil, server
from tideline.algorithms.feddadil.messages import Described, State
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.asked.world import World
from tideline.core.phase import Replies, Turn
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId
from tideline.core.step import Data


def test_several_targets_each_adapt() -> None:
    """Every target chooses for itself, from candidates of its own."""
    roster = {"anna": "source", "bert": "target", "carl": "target"}
    stage = federation()
    run = stage.start(experiment("feddadil", roster, **ALREADY))
    assert stage.play(run).status.value == "completed", stage.row(run).cause
    for name in ("bert", "carl"):
        mine = memory(stage, run, name)
        assert {"r2", "e2"} <= mine.candidates.keys()
        assert mine.chosen in ("none", "committee")
        assert set(mine.evidence) == {"s", "rho"}


def test_scores_side_by_side() -> None:
    """At a target -R, -E, the choice, the oracle and the unadapted model; at a source the unadapted model alone."""
    stage, run = played(given={"scores": "accuracy"})
    reported = scored(stage, run, "carl")
    assert {
        "accuracy",
        "accuracy_r",
        "accuracy_e",
        "accuracy_oracle",
        "accuracy_linear",
        "accuracy_own",
        "source_only",
        "distilled_1",
    } <= reported.keys()
    assert reported["accuracy_oracle"] >= max(reported["accuracy"], reported["accuracy_r"], reported["source_only"])
    assert set(scored(stage, run, "anna")) == {"accuracy", "source_only", "accuracy_linear", "accuracy_own"}


def test_the_largest_eigenvalue_whatever_the_symmetry() -> None:
    """Rows (t, -t) are orthogonal to the vector of ones, from which no iteration would leave zero."""
    t = torch.linspace(-1, 1, 20)
    z = torch.stack([t, -t], dim=1)
    assert client.top_eigenvalue(z) == pytest.approx(float(torch.linalg.eigvalsh(z.T @ z / 20)[-1]), rel=1e-4)


@pytest.mark.parametrize("wire", ["float16", *night_params("bfloat16")])
def test_half_the_bytes_on_the_wire(wire: str) -> None:
    """Atoms travel in the narrower type, both ways, and are computed with in float32."""
    wide, run_1 = played(rounds=1)
    narrow, run_2 = played(rounds=1, wire=wire)
    cursor = phases(rounds=1, encoder_rounds=1, head_rounds=1).index("learn")

    def sizes(stage: Stage, run: Any) -> tuple[int, int]:
        order = stage.journal.orders(run, cursor)[0]
        return order.bytes_down, order.bytes_up

    for big, small in zip(sizes(wide, run_1), sizes(narrow, run_2), strict=True):
        assert small < 0.75 * big
    last = narrow.journal.rounds(run_2)[-1]
    state = decode(State, last.state[0][0], narrow.parts, LAX)
    assert state.z.dtype == torch.float32
    assert torch.allclose(state.y.sum(-1), torch.ones(state.y.shape[:-1]), atol=1e-6), "labels lie on the simplex again"


def test_points_are_rounded_up_to_as_many_for_each_class() -> None:
    """13 points for 3 classes become 15."""
    config, world = Config(points=13, encoder_rounds=0), World(inputs=(8,), classes=3, model="linear")
    state = server.begin(config, world, (), torch.Generator().manual_seed(0))
    assert state.z.shape == (3, 15, 8)
    assert torch.allclose(state.y.sum(-1), torch.ones(3, 15))
    assert state.y[0].argmax(-1).tolist() == [0] * 5 + [1] * 5 + [2] * 5


def described(present: list[int], shift: float) -> Described:
    """What a source with these classes tells."""
    classes = torch.tensor(present, dtype=torch.int64)
    mean = torch.full((len(present), 2), shift) + classes[:, None]
    reported = (classes, torch.full((len(present),), 20), mean, torch.zeros(len(present), 2))
    return Described(20 * len(present), mean.mean(0), torch.ones(2), *reported)


def test_first_atoms_come_from_one_source_each() -> None:
    """Atom k from source k; a class that this source lacks from all that have it; one that nobody has stays N(0, 1)."""
    world = World(inputs=(2,), classes=3, model="linear")
    config = Config(atoms=3, points=6, encoder_rounds=0)
    state = server.begin(config, world, (), torch.Generator().manual_seed(0))
    turn = Turn(config, world, (), 1, torch.Generator().manual_seed(1))
    reported = {ClientId("a"): described([0, 1], 10.0), ClientId("b"): described([0], 20.0)}
    after = server.first_atoms(state, Replies({name: lambda each=each: each for name, each in reported.items()}), turn)
    assert after.z[0, :4].tolist() == [[10.0] * 2] * 2 + [[11.0] * 2] * 2
    assert after.z[1, :2].tolist() == [[20.0] * 2] * 2
    assert after.z[1, 2:4].tolist() == [[11.0] * 2] * 2, "only a has class 1"
    assert after.z[2, :2].tolist() == [[10.0] * 2] * 2, "the sources take turns"
    assert torch.equal(after.z[:, 4:], state.z[:, 4:])


def test_few_rows_of_a_class_are_not_described() -> None:
    """Moments of nine rows would tell about single ones."""

    def thinned(data: Data) -> Data:
        assert data.y is not None
        kept = torch.cat([(data.y == 0).nonzero().flatten()[:9], (data.y != 0).nonzero().flatten()])
        return Data(MemoryRows(data.x.all()[kept]), data.y[kept], data.domain[kept], data.domains)

    stage, run = played(federation(anna=site(0, thinned)))
    place = phases(rounds=1, encoder_rounds=1, head_rounds=1).index("describe")
    (order,) = [o for o in stage.journal.orders(run, place) if o.client == "anna"]
    reported = decode(Described, order.reply[0][0], stage.parts, LAX)
    assert reported.classes.tolist() == [1, 2]
    assert int(reported.count.min()) >= 10


def test_memory_of_the_optimiser_lasts() -> None:
    """Adam's steps of all passes are counted; a restart of the site does not begin them anew."""
    stage, run = played(rounds=3)
    batches = 2  # 12 points in mini-batches of 6
    assert int(memory(stage, run, "carl").moments.alpha_steps) == 3 * batches


def test_what_the_owner_may_take() -> None:
    """At a target the classifier, the summaries and a picture, of a memory whose rows are gone; at a source nothing."""
    stage, run = played(given={}, distil=[1, 2])
    config = feddadil.configure(stage.row(run).spec.config)
    assert feddadil.keepsakes(config, left(stage, run, "anna")) == {}
    taken = feddadil.keepsakes(config, left(stage, run, "carl"))
    assert len(left(stage, run, "carl").z) == 0
    assert set(taken) == {"summary_1", "summary_2", "classifier", "picture"}
    assert taken["summary_2"]["x"].shape[0] == 2 * CLASSES
    assert torch.allclose(taken["summary_2"]["soft"].sum(1), torch.ones(2 * CLASSES))
    assert taken["picture"]["site"].shape == (41, 2)
    assert all(bool(torch.isfinite(a.float()).all()) for arrays in taken.values() for a in arrays.values())


@pytest.mark.nightly(job="numbers")
def test_the_linear_layers_are_those_of_all_rows_together() -> None:
    """Descent on averaged gradients ends where a fit on all sources' rows, which nobody could make, ends; so does the fit that
    weighs sites alike."""
    sites = {name: site(i, few(n)) for i, (name, n) in enumerate(zip(ROSTER, (41, 14, 41), strict=True))}
    stage, run = played(federation(**sites), head_rounds=300, encoder_rounds=0, rounds=1)
    state = decode(State, stage.journal.rounds(run)[-1].state[0][0], stage.parts, LAX)
    data = [few(41)(blobs(41, 0, 0)), few(14)(blobs(41, 1, 0))]
    x, y = torch.cat([d.x.all() for d in data]), torch.cat([d.y for d in data])
    heads = state.heads
    variance = x.var(0, unbiased=False)
    assert torch.allclose(heads.shift, x.mean(0), atol=1e-5)
    assert torch.allclose(heads.stretch, (variance + 0.01 * variance.mean()).sqrt(), atol=1e-4)
    assert heads.decay == pytest.approx(8 / 55)
    z = (x - heads.shift) / heads.stretch
    for layer, weight in enumerate((torch.full((55,), 1 / 55), torch.cat([torch.full((n,), 1 / n / 2) for n in (41, 14)]))):
        W, b = heads.weight[layer].clone().requires_grad_(), heads.bias[layer].clone().requires_grad_()
        loss = weight @ torch.nn.functional.cross_entropy(z @ W.mT + b, y, reduction="none") + heads.decay / 2 * W.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        assert W.grad is not None and b.grad is not None
        assert float(W.grad.abs().max()) < 1e-4, "the gradient vanishes at the minimum"
        assert float(b.grad.abs().max()) < 1e-4


def test_images_are_encoded_first() -> None:
    """On images the encoder's features are what the atoms live among."""
    stage = federation(**of_images())
    run = stage.start(experiment("feddadil", ROSTER, world=dict(IMAGES)))
    assert stage.play(run).status.value == "completed", stage.row(run).cause
    assert memory(stage, run, "carl").z.shape == (41, 128)
