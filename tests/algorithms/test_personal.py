"""Local: every site alone."""

from __future__ import annotations

import torch

from tests.laws.stage import HoardingParts, Stage
from tests.laws.values import leaves
from tests.synthetic import experiment, sites
from tideline import nets
from tideline.algorithms import METHODS
from tideline.algorithms.personal import Mine, Start, initial, local
from tideline.archive.codec import LAX, decode
from tideline.core.algorithm import contract
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing
from tideline.core.run import World
from tideline.engine.rows import JOIN

ROSTER = {"anna": "source", "bert": "peer", "carl": "target"}


def played(roster: dict[str, str] = ROSTER) -> tuple[Stage, str]:
    stage = Stage(METHODS, sites(), parts=HoardingParts())
    run = stage.start(experiment("local", roster))
    assert stage.play(run).status.value == "completed", stage.row(run).cause
    return stage, run


def model(stage: Stage, run: str, name: str) -> Mine:
    """A site's own model at the end."""
    vault = stage.vaults[name]  # type: ignore[index]
    head = vault.head(run)  # type: ignore[arg-type]
    assert head is not None
    return decode(Mine, head.memory[0][0], vault.parts(run), LAX)  # type: ignore[arg-type]


def test_no_reply_holds_a_tensor() -> None:
    """Nothing leaves but metrics: every reply's message is empty, and so is the contract beside them."""
    stage, run = played()
    plan = local.plan(local.configure({}, "tiny"))
    for order in stage.journal.orders(run):  # type: ignore[arg-type]
        if order.cursor != JOIN:
            step = plan[order.cursor].step
            assert step is not None
            assert step.gives is Nothing
            assert list(leaves(decode(step.gives, order.reply[0][0], stage.parts, LAX))) == []
    assert {len(data) for _, _, data in stage.wire.up} == {min(len(data) for _, _, data in stage.wire.up)}
    assert {c.exposure for c in contract(local, local.configure({}))} == {Exposure.METRIC}


def test_who_else_takes_part_makes_no_difference() -> None:
    """A site's model is the same alone and in company."""
    together, alone = played(), played({"bert": "peer"})
    for (name, ours), (other, theirs) in zip(leaves(model(*together, "bert")), leaves(model(*alone, "bert")), strict=True):
        assert name == other
        assert torch.equal(ours, theirs)


def test_sites_start_from_common_weights() -> None:
    """The one seed that is sent gives every site the same first model, whatever its own generators say."""
    world = World(inputs=(8,), classes=3, model="mlp")
    torch.manual_seed(1)
    first = initial(Start(5), world)
    torch.manual_seed(2)
    again = initial(Start(5), world)
    assert all(torch.equal(first[k], again[k]) for k in first)
    assert any(not torch.equal(first[k], v) for k, v in initial(Start(6), world).items())
    assert first.keys() == nets.build(world).state_dict().keys()


def test_a_target_is_left_alone() -> None:
    """A site without training labels has no model of its own: it is not asked and has no accuracy."""
    stage, run = played()
    assert {o.client for o in stage.journal.orders(run) if o.cursor != JOIN} == {"anna", "bert"}  # type: ignore[arg-type]
    assert stage.result(run)["clients"][2]["accuracy"] is None  # type: ignore[arg-type]
    assert model(stage, run, "carl").model == {}
