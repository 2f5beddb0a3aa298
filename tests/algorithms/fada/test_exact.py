"""Through the whole stack, variant A steps along the gradients of the paper, and no further thing leaves a site."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.algorithms.fada.played import (
    ROSTER,
    SMALL,
    WHOLE,
    close,
    cursors,
    federation,
    memory_of,
    network,
    played,
    replied,
    state,
    train,
)
from tests.algorithms.lies import night_params
from tests.laws.stage import HoardingParts, Stage
from tests.synthetic import sites
from tideline.algorithms import METHODS
from tideline.algorithms.fada.client import applied, moved, trained
from tideline.algorithms.fada.messages import Contribution, Halves
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.nets.disentangling import logits
from tideline.nets.layers import BUFFERS

DECAY, RATE = 5e-4, 0.05
DI_RATE = 0.1  # 64 numbers are features here


def features(stage: Any, run: Any) -> dict[str, Tensor]:
    """f of all rows of each site under the common model."""
    found = {}
    for i, name in enumerate(("anna", "bert", "carl")):
        with torch.no_grad():
            found[name] = network(memory_of(stage, run, name, "share")).get_submodule("features")(train(i).x.all())
    return found


def test_the_identifier_steps_along_the_gradient_of_eq_4() -> None:
    """As if all rows lay in one place; each half was of its own rows alone."""
    stage, run = played(**WHOLE, parts="II", identify_rate=64 * DI_RATE)
    f, before, after = features(stage, run), state(stage, run, "share").di["carl"], state(stage, run, "identify").di["carl"]
    for name in ("anna", "bert"):
        di = before[name].theta.double().requires_grad_()
        p_s, p_t = torch.sigmoid(logits(di, f[name].double())), torch.sigmoid(logits(di, f["carl"].double()))
        (g,) = torch.autograd.grad(-p_s.log().mean() - (1 - p_t).log().mean(), di)
        torch.testing.assert_close(after[name].theta.double(), (di - DI_RATE * g).detach(), rtol=0, atol=1e-6)
    halves = replied(stage, run, "identify", Halves)
    assert sorted(halves["carl"].halves) == ["anna", "bert"] and sorted(halves["anna"].halves) == ["carl"]
    assert {half.count for reply in halves.values() for half in reply.halves.values()} == {41}


def test_both_halves_of_eq_5_are_stepped_along() -> None:
    """The source's beside its class loss, the target's before it takes the contributions; DI stays as it was."""
    stage, run = played(**WHOLE, parts="II", lambda_adv=0.5, ramp=0.0, rate=RATE, attention="uniform")
    common = memory_of(stage, run, "anna", "share")
    di = state(stage, run, "identify").di["carl"]
    deltas = {}
    for i, name in enumerate(("anna", "bert")):
        net, data = network(common).double(), train(i)
        f = net.get_submodule("features")(data.x.all().double())
        loss = functional.cross_entropy(net.get_submodule("classifier")(f), data.y)
        (loss - 0.5 * torch.sigmoid(logits(di[name].theta.double(), f)).log().mean()).backward()
        after = {k: p - RATE * (p.grad + DECAY * p) for k, p in net.named_parameters() if p.grad is not None}
        close(memory_of(stage, run, name, "improve").model, after, 1e-6)
        deltas[name] = {k: w.detach() - common.model[k] for k, w in after.items()}
    net = network(common).double()
    f = net.get_submodule("features")(train(2).x.all().double())
    halves = [-torch.sigmoid(logits(di[name].theta.double(), f)).log().mean() for name in ("anna", "bert")]
    (0.5 * sum(halves, f.new_zeros(())) / 2).backward()
    moved = {k: p if p.grad is None else p - RATE * (p.grad + DECAY * p) for k, p in net.named_parameters()}
    expected = {k: w.detach() + (deltas["anna"][k] + deltas["bert"][k]) / 2 for k, w in moved.items()}
    close(memory_of(stage, run, "carl", "follow").model, expected, 1e-6)
    assert all(torch.equal(state(stage, run).di["carl"][name].theta, di[name].theta) for name in di)


@pytest.mark.parametrize("share", [0.25, *night_params(0.0, 1.0)])
def test_a_share_of_what_eq_5_made_before_stays(share: float) -> None:
    """Round 2 of the target, by hand: its step of eq. 5, less what is forgotten of round 1's, and what the sources made."""
    more = {**WHOLE, "rounds": 2, "parts": "II", "attention": "uniform", "lambda_adv": 0.5, "ramp": 0.0, "rate": RATE}
    stage, run = played(**more, kept=share)
    start, one, two = (memory_of(stage, run, "carl", phase, n).model for phase, n in (("share", 1), ("follow", 1), ("follow", 2)))
    taught = [taught_in(stage, run, number) for number in (1, 2)]
    net = network(memory_of(stage, run, "carl", "follow", 1)).double()
    f, di = net.get_submodule("features")(train(2).x.all().double()), state(stage, run, "identify", 2).di["carl"]
    halves = [-torch.sigmoid(logits(di[name].theta.double(), f)).log().mean() for name in ("anna", "bert")]
    (0.5 * sum(halves, f.new_zeros(())) / 2).backward()
    eta = RATE / 2  # half a cosine over two rounds
    pulled = {k: p.detach() if p.grad is None else (p - eta * (p.grad + DECAY * p)).detach() for k, p in net.named_parameters()}
    drift = {k: w - start[k] - taught[0][k] for k, w in one.items()}
    assert max(float(w.abs().max()) for w in drift.values()) > 1e-3
    expected = {k: w - (1 - share) * drift[k] + taught[1][k] for k, w in pulled.items()}
    close(two, expected, 1e-6)


def taught_in(stage: Any, run: Any, number: int) -> dict[str, Tensor]:
    """The mean change that sources made in a round."""
    made = [memory_of(stage, run, name, "improve", number) for name in ("anna", "bert")]
    begun = [m.common for m in made] if number > 1 else [memory_of(stage, run, "anna", "share").model] * 2
    return {k: sum(m.model[k] - b[k] for m, b in zip(made, begun, strict=True)) / 2 for k in begun[0]}


@pytest.mark.parametrize("method", ["fada", "fdann"])
def test_no_row_and_no_feature_is_on_the_wire(method: str) -> None:
    """No tensor of any message has an axis of a mini-batch's length, or is as wide as features with an axis of rows."""
    sizes = {"batch": 23, "identify_batch": 29}
    stage, run = played(method, **sizes, rounds=2, clustered=19)
    shapes = [tuple(t.shape) for t in everything(stage, run)]
    assert len(shapes) > 50
    assert not {23, 29, 19, 41} & {n for shape in shapes for n in shape}
    # Of two axes none is but a layer's, and the matrix of three classes: f has 64 numbers here, a row 8.
    assert {shape for shape in shapes if len(shape) > 1} <= {(64, 8), (3, 64), (3, 3)}


def everything(stage: Any, run: Any) -> list[Tensor]:
    """Every tensor that any site sent, open or sealed, and every one that it was sent."""
    found = [t for o in stage.journal.orders(run) for files in (o.files, o.reply or ()) for t in parts_of(stage.parts, files)]
    for vault in stage.vaults.values():
        for head in vault.past:
            for envelope in head.sealed:
                found += decode(Contribution, envelope.handle.digest, vault.parts(run), LAX).theta.values()
    return found


def parts_of(parts: Any, files: Any) -> list[Tensor]:
    """The tensors of a message's files."""
    from tideline.archive.layout import parse

    shapes = []
    for digest, _ in files:
        shapes += [torch.empty(entry.shape, device="meta") for entry in parse(parts.view(digest)).entries.values()]
    return shapes


def test_one_source_and_mode_param_is_its_model_bit_for_bit() -> None:
    """w = 1, without attention; batch norm's statistics are of the target's own rows, and no site sends any."""
    stage = federation({"anna": "source", "carl": "target"})
    stage, run = played(stage=stage, world=SMALL, mode="param", parts="I", rounds=1)
    source, target = memory_of(stage, run, "anna", "improve"), memory_of(stage, run, "carl", "follow")
    assert state(stage, run).w == {"carl": {"anna": 1.0}}
    for name, w in trained(source.model).items():
        assert bytes(w.numpy().tobytes()) == bytes(target.model[name].numpy().tobytes()), name
    means = [name for name in target.model if name.endswith("running_mean")]
    assert means and not any(torch.equal(source.model[name], target.model[name]) for name in means)
    for envelope in (e for v in stage.vaults.values() for head in v.past for e in head.sealed):
        theta = decode(Contribution, envelope.handle.digest, stage.vaults[envelope.handle.holder].parts(run), LAX).theta
        assert not any(name.endswith(BUFFERS) for name in theta)


def test_a_weight_of_one_takes_that_source_alone() -> None:
    """Bit for bit, negative zeros too, whoever stands before it."""
    theirs = [{"w": torch.randn(5)}, {"w": torch.tensor([1.0, -0.0, 0.0, -2.0, 3.0])}]
    given = applied("param", {"w": torch.randn(5)}, [(0.0, theirs[0]), (1.0, theirs[1])], 0.1)
    assert given["w"].numpy().tobytes() == theirs[1]["w"].numpy().tobytes()


def test_a_change_of_one_step_is_a_gradient() -> None:
    """mode delta with one local step and mode grad end alike, weight decay among it; all parts are in."""
    more: Mapping[str, Any] = {**WHOLE, "batch": 16, "rounds": 1, "attention": "uniform"}
    (one, run), (other, again) = (played(**more, mode=mode) for mode in ("delta", "grad"))
    a, b = memory_of(one, run, "carl", "follow"), memory_of(other, again, "carl", "follow")
    close(a.model, b.model, 1e-6)
    assert any(not torch.equal(a.model[k], memory_of(one, run, "carl", "share").model[k]) for k in a.model)


def test_without_weights_of_losses_it_is_attention_alone() -> None:
    """All lambdas 0: the states, the memories and what people read are those of parts I."""
    none = {"lambda_adv": 0.0, "lambda_ent": 0.0, "lambda_mi": 0.0, "lambda_rec": 0.0}
    (one, run), (other, again) = played(parts="I"), played(parts="III", **none)
    assert one.row(run).state_digest == other.row(again).state_digest
    assert one.memories(run) == other.memories(again)


def test_equal_weights_and_models_are_federated_averaging() -> None:
    """Each round's target is the plain mean of what sources came to, and they go on from it."""
    stage, run = played(parts="I", attention="uniform", mode="param", rounds=3)
    for number in (1, 2, 3):
        models = [trained(memory_of(stage, run, name, "improve", number).model) for name in ("anna", "bert")]
        mean = {name: (models[0][name] + models[1][name]) / 2 for name in models[0]}
        close(trained(memory_of(stage, run, "carl", "follow", number).model), mean, 1e-6)
        if number < 3:
            close(memory_of(stage, run, "anna", "improve", number + 1).common, mean, 1e-6)


def test_contributions() -> None:
    """A change, a gradient, a model; nothing of what has no weight."""
    theta, after = {"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([1.5, 1.0])}
    assert moved("delta", theta, after)["w"].tolist() == [0.5, -1.0]
    assert moved("param", theta, after)["w"].tolist() == [1.5, 1.0]
    assert applied("delta", theta, [(0.5, moved("delta", theta, after))], 0.1)["w"].tolist() == [1.25, 1.5]
    assert applied("grad", theta, [(0.5, {"w": torch.tensor([2.0, 4.0])})], 0.1)["w"].tolist() == pytest.approx([0.9, 1.8])
    assert applied("delta", theta, [], 0.1)["w"].tolist() == [1.0, 2.0]


@pytest.mark.nightly(job="numbers")
@pytest.mark.parametrize("mode", ["delta", "param"])
def test_what_a_source_sent_itself_does_not_come_back(mode: str) -> None:
    """It knows it, however many exchanges lie between: as much goes down as to sites that forget no part."""
    down = []
    for stage in (Stage(METHODS, sites(tuple(ROSTER)), parts=HoardingParts()), federation()):
        stage, run = played(stage=stage, **WHOLE | {"rounds": 2, "identify_steps": 5}, mode=mode)
        at = cursors(stage, run, "improve")[1]
        down.append([o.bytes_down for o in stage.journal.orders(run) if o.cursor == at])
    assert down[0] == down[1] and min(down[0]) > 0
