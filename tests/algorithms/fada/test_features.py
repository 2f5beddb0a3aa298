"""Variant B: only where owners let features out, clipped and noised, with a budget; the gradients are those of eq. 5."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.algorithms.fada.played import (
    ROSTER,
    SMALL,
    close,
    contribution,
    cursors,
    federation,
    letting_out,
    marks,
    memory_of,
    network,
    place,
    played,
    replied,
    state,
    train,
    unlabelled,
)
from tests.algorithms.lies import Change, night_params, reported
from tests.engine.toys import until
from tests.synthetic import FEATURES, experiment
from tideline.algorithms import METHODS
from tideline.algorithms.fada import critic
from tideline.algorithms.fada.client import trained
from tideline.algorithms.fada.messages import Exposed, Pull
from tideline.core.algorithm import contract, resolve
from tideline.core.asked.world import world_in
from tideline.core.errors import StepFailed
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing
from tideline.core.run import ClientId, Role
from tideline.engine.model.runs import Status
from tideline.nets.disentangling import logits, sizes
from tideline.numerics.alignment.adversarial import clipped, epsilon, noise

CRITIC: dict[str, Any] = {"critic": "features", "parts": "II", "rounds": 1, "source_rounds": 0, "identify_steps": 2, "noise": 0.0}


def test_the_default_policy_refuses_it() -> None:
    """Before any step, with the clause in words; variant A has no such clause."""
    stage = federation()
    row = stage.play(stage.start(experiment("fada", ROSTER, config=CRITIC)))
    assert row.status is Status.STALLED
    assert "expose/expose sends f (b d) as FEATURES to coordinator" in row.cause
    method = resolve(METHODS, "fada")
    assert not any(c.exposure is Exposure.FEATURES for c in contract(method, method.configure({}, "tiny")))


@pytest.mark.parametrize("world", [FEATURES, *night_params(SMALL)])
def test_each_party_steps_along_eq_5(world: dict[str, Any]) -> None:
    """The gradient by the features that came back, through the same mini-batch and its dropout."""
    stage, run = played(
        stage=letting_out(),
        world=world,
        **CRITIC,
        lambda_adv=0.5,
        ramp=0.0,
        identify_rate=0.1 * sizes(world_in(world))[1],
        clip=100.0,
        weight_decay=0.0,
        rate=0.05,
    )
    sent, before = replied(stage, run, "expose", Exposed), state(stage, run, "share").di["carl"]
    after = state(stage, run, "expose").di["carl"]
    for i, name in enumerate(("anna", "bert", "carl")):
        old, new, shown = (memory_of(stage, run, name, phase) for phase in ("share", "pull", "expose"))
        net = network(old, world)
        net.train()
        torch.manual_seed(shown.seed)
        f = net.get_submodule("features")(train(i, world).x.all()[shown.drawn])
        torch.testing.assert_close(f.detach(), sent[ClientId(name)].f, rtol=0, atol=1e-5)
        pairs = [name] if name != "carl" else ["anna", "bert"]
        loss = sum((-torch.sigmoid(logits(after[s].theta, f)).log().mean() for s in pairs), f.new_zeros(()))
        (0.5 * loss / len(pairs)).backward()
        for key, p in net.get_submodule("features").named_parameters():
            assert p.grad is not None
            torch.testing.assert_close(new.model[f"features.{key}"], (p - 0.05 * p.grad).detach(), rtol=0, atol=1e-5)
    di, f_s, f_t = before["anna"].theta.clone().requires_grad_(), sent[ClientId("anna")].f, sent[ClientId("carl")].f
    loss = -torch.sigmoid(logits(di, f_s)).log().mean() - (1 - torch.sigmoid(logits(di, f_t))).log().mean()
    (g,) = torch.autograd.grad(loss, di)
    torch.testing.assert_close(after["anna"].theta, (di - 0.1 * g).detach(), rtol=0, atol=1e-6)


@pytest.mark.nightly(job="numbers")
def test_a_target_forgets_there_too() -> None:
    """What several steps of a round made counts as that round's: with kept 0 a target has this round's alone."""
    stage, run = played(
        stage=letting_out(),
        **{**CRITIC, "rounds": 2, "identify_steps": 3, "weight_decay": 0.0},
        lambda_adv=0.5,
        ramp=0.0,
        kept=0.0,
    )
    one = memory_of(stage, run, "carl", "follow", 1)
    pulled, two = memory_of(stage, run, "carl", "pull", 6), memory_of(stage, run, "carl", "follow", 2)
    assert pulled.common and not two.common
    for name, w in two.drift.items():
        torch.testing.assert_close(w, pulled.model[name] - one.model[name], rtol=0, atol=1e-7)
        torch.testing.assert_close(pulled.common[name], one.model[name], rtol=0, atol=0)


@pytest.mark.parametrize("meet", [True, *night_params(False)])
@pytest.mark.parametrize("mode", [{"mode": "delta"}, *night_params({"mode": "grad", "steps": 1}, {"mode": "param"})])
def test_what_a_source_pulled_is_part_of_what_it_sends(mode: dict[str, Any], meet: bool) -> None:
    """Its half of eq. 5 is in its network when the local steps begin, and in its contribution, in later rounds too."""
    pulls: dict[str, Any] = {"lambda_adv": 5.0, "ramp": 0.0, "schedule": "constant", "weight_decay": 0.0, "attention": "uniform"}
    stage, run = played(stage=letting_out(), **{**CRITIC, **pulls, **mode, "rounds": 3, "parts": "II", "meet": meet})
    for number in (1, 2, 3):
        changes = []
        for name in ("anna", "bert"):
            last = memory_of(stage, run, name, "pull", 2 * number)
            first, after = memory_of(stage, run, name, "expose", 2 * number - 1), memory_of(stage, run, name, "improve", number)
            assert max(float(w.abs().max()) for w in last.drift.values()) > 1e-3 and not after.drift
            for key, w in last.drift.items():
                torch.testing.assert_close(w, last.model[key] - first.model[key], rtol=0, atol=1e-6)
            before = after.common or first.model
            changes.append({key: w - before[key] for key, w in trained(after.model).items()})
            if mode["mode"] == "grad":
                sent = contribution(stage, run, name, number).theta
                close({key: -0.2 * w for key, w in sent.items()}, changes[-1], 1e-6)
            elif mode["mode"] == "delta":
                close(contribution(stage, run, name, number).theta, changes[-1], 1e-6)
        starts = [memory_of(stage, run, name, "improve", number).common for name in ("anna", "bert")]
        assert not meet or all(torch.equal(starts[0][key], starts[1][key]) for key in starts[0])


@pytest.mark.nightly(job="numbers")
def test_a_pull_moves_what_the_local_steps_begin_from() -> None:
    """At a rate at which local steps are nothing beside it: the network is the mean of the last round, and what was pulled."""
    still: dict[str, Any] = {"lambda_adv": 1e4, "ramp": 0.0, "rate": 1e-6, "schedule": "constant", "weight_decay": 0.0}
    stage, run = played(stage=letting_out(), **{**CRITIC, **still, "rounds": 2})
    pulled, after = memory_of(stage, run, "anna", "pull", 4), memory_of(stage, run, "anna", "improve", 2)
    assert max(float(w.abs().max()) for w in pulled.drift.values()) > 1e-4
    for key, w in pulled.drift.items():
        torch.testing.assert_close(after.model[key], after.common[key] + w, rtol=0, atol=2e-5)


def test_rows_are_clipped_and_noised() -> None:
    """To norm c, and by sigma c; each exchange anew, and what noise is worth so far is told."""
    stage, run = played(stage=letting_out(), **{**CRITIC, "noise": 0.5, "clip": 0.2})
    for number in (1, 2):
        f = replied(stage, run, "expose", Exposed, number)[ClientId("anna")].f
        shown = memory_of(stage, run, "anna", "expose", number)
        with torch.no_grad():
            exact = clipped(network(shown).get_submodule("features")(train(0).x.all()[shown.drawn]), 0.2)
        assert float(exact.norm(dim=1).max()) <= 0.2 + 1e-6
        assert float((f - exact).std()) == pytest.approx(0.1, rel=0.1)
    metrics = next(c for c in stage.result(run)["clients"] if c["name"] == "anna")["metrics"]
    assert metrics["epsilon"] == pytest.approx(epsilon(2, 0.5, 1e-5))


def test_noise_is_not_of_the_seed() -> None:
    """Whoever knows the seed makes the same features and not the same noise; what a site has drawn it keeps to itself."""
    sent = []
    for sigma in (0.0, 0.0, 0.5, 0.5):
        stage, run = played(stage=letting_out(), **{**CRITIC, "noise": sigma})
        sent.append(replied(stage, run, "expose", Exposed)[ClientId("anna")].f)
    assert torch.equal(sent[0], sent[1]) and not torch.equal(sent[2], sent[3])
    keys = [memory_of(stage, run, "anna", "expose", number).key for number in (1, 2)]
    assert keys[0].shape == (32,) and torch.equal(*keys)
    assert not torch.equal(keys[0], memory_of(stage, run, "bert", "expose").key)
    first, second = (replied(stage, run, "expose", Exposed, number)[ClientId("anna")].f for number in (1, 2))
    noises = [noise(bytes(keys[0].tolist()), number, f.shape) for number, f in ((1, first), (2, second))]
    assert float(torch.corrcoef(torch.stack([each.flatten() for each in noises]))[0, 1].abs()) < 0.1
    assert bytes(keys[0].tolist()) not in b"".join(
        read for order in stage.journal.orders(run) for read in replies_of(stage, order)
    )


def replies_of(stage: Any, order: Any) -> list[bytes]:
    """The files that a site sent."""
    return [bytes(stage.parts.view(digest)) for digest, _ in order.reply or ()]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"noise": 0.0}, "without noise: epsilon is infinite"),
        ({"noise": 1.0}, "above the limit of 10"),
        ({"noise": 500.0}, "epsilon"),
    ],
)
def test_the_budget_is_told_before_anybody_works(config: dict[str, Any], words: str) -> None:
    """In the run's notes, with a warning above the limit and with none below."""
    stage = letting_out()
    run = stage.start(experiment("fada", ROSTER, config={**CRITIC, **config}))
    (note,) = stage.row(run).spec.notes
    assert words in note and "2 exchanges" in note
    assert ("above the limit" in note) == (config["noise"] == 1.0)


def test_a_gradient_of_other_rows_is_refused() -> None:
    """The coordinator gives one for each row that was sent."""
    site = place({"critic": "features"}, Role.TARGET, unlabelled(train(2)))
    stage, run = played(**{**CRITIC, "critic": "gradients"})
    shown = critic.expose.run(Nothing(), memory_of(stage, run, "carl", "share"), site)
    with pytest.raises(StepFailed, match="The gradient is of 3 rows, and 16 were sent"):
        critic.pull.run(Pull(torch.zeros(3, 64)), shown.memory, site)


@pytest.mark.parametrize("what", ["a row", *night_params("no row", "rows that are too long")])
def test_what_is_no_features_is_left_out(what: str) -> None:
    """Whoever sends it, of another agent than ours: the others go on, and the run ends as it should."""
    made: dict[str, Change] = {
        "no row": lambda given: {"f": given["f"][:0]},
        "a row": lambda given: {"f": given["f"][:1]},
        "rows that are too long": lambda given: {"f": 1e15 * torch.ones_like(given["f"])},
    }
    stage = letting_out()
    waiting = {"min_replies": 1, "deadline": 60.0}
    run = stage.start(experiment("fada", ROSTER, config={**CRITIC, "noise": 0.3}, waiting=waiting))
    until(stage, run, cursors(stage, run, "expose")[0])
    (order,) = stage.agent_service.orders(ClientId("bert"))
    assert reported(stage, run, order, ClientId("bert"), made[what]).verdict == "accepted"
    row = stage.play(run)
    assert row.status is Status.COMPLETED, row.cause
    assert marks(stage, run, "expose") == [{"left out": ("bert",)}, {}]
    before, after = state(stage, run, "share").di["carl"], state(stage, run, "expose").di["carl"]
    assert torch.equal(before["bert"].theta, after["bert"].theta)
    assert not torch.equal(before["anna"].theta, after["anna"].theta)
