"""FedDaDiL: what is asked of whom, what stays at a site, and data that do not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.algorithms.feddadil.played import (
    ALREADY,
    EVERYTHING,
    PLAIN,
    ROSTER,
    federation,
    few,
    memories,
    memory,
    phases,
    played,
    site,
)
from tests.algorithms.lies import night_params
from tests.laws.stage import Stage
from tests.laws.values import raw
from tests.synthetic import CLASSES, blobs, experiment
from tideline.algorithms.feddadil import Config, client, feddadil, server, target
from tideline.algorithms.feddadil.messages import Described, State
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.algorithm import contract
from tideline.core.asked.world import World
from tideline.core.errors import RosterRefused, StepFailed
from tideline.core.privacy import TO_BOTH, Exposure
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId, Member, Role
from tideline.core.step import Data


def test_the_plan_follows_the_paper() -> None:
    """Encode, embed, describe, learn, adapt, score; an adaptation every so many passes and after the last."""
    names = phases(rounds=5, adapt_every=2, encoder_rounds=2, head_rounds=1)
    learn = ["learn", "learn", "adapt", "learn", "learn", "adapt", "learn", "adapt"]
    assert names == ["encode", "encode", "embed", "describe", "head", *learn, "score"]


def test_encode_and_embed_vanish_for_features() -> None:
    """So does the head where nobody wants it; and normal atoms need no description."""
    assert phases(rounds=1, init="normal", **PLAIN) == ["learn", "adapt", "score"]


def test_passes_of_adaptation() -> None:
    """The last pass is always one of them, once."""
    assert target.passes(Config(rounds=6, adapt_every=3)) == (3, 6)
    assert target.passes(Config(rounds=2, adapt_every=9)) == (2,)


def test_no_reply_has_a_field_for_coordinates_features_or_labels() -> None:
    """The contract's whole list: weights of encoder and head, class moments, atoms."""
    reported = {(c.step, c.field, c.exposure) for c in contract(feddadil, Config()) if not c.field.startswith("metrics.")}
    moments = ("total_mean", "total_variance", "mean", "variance")
    assert reported == {
        ("train_encoder", "model", Exposure.WEIGHTS),
        *(("slope", name, Exposure.STATISTIC) for name in ("weight", "bias", "curvature")),
        *(("describe", name, Exposure.COUNT) for name in ("rows", "classes", "count")),
        *(("describe", name, Exposure.STATISTIC) for name in moments),
        *(("learn", name, Exposure.SYNTHETIC) for name in ("z", "y")),
    }


@pytest.mark.parametrize("config", [{}, PLAIN, *night_params({"init": "normal", **PLAIN})])
def test_alpha_and_features_never_cross_the_link(config: dict[str, Any]) -> None:
    """No message, either way, holds the bytes or the digits of a coordinate or of a feature row that a site kept."""
    given = ALREADY if config else {}
    stage, run = played(given=given, atoms=5, **config)
    wire = stage.wire.all()
    for name in ROSTER:
        mine = memory(stage, run, name)
        assert not torch.equal(mine.alpha, torch.full((5,), 0.2)), "a coordinate that never moved proves nothing"
        for what, secrets in kept_back(stage, run, name).items():
            assert not any(secret in wire for secret in secrets), what
        assert not any(repr(float(a)).encode() in wire for a in mine.alpha if float(a) not in (0.0, 1.0))


@pytest.mark.parametrize("what", ["alpha", "rows", "scaled", "labels"])
def test_the_search_would_find_them(what: str) -> None:
    """Coordinates before any pass but the first, features as the site has and as it scales them, one-hot labels in its order."""
    stage, run = played(atoms=5, rounds=2, **PLAIN)
    mine = memory(stage, run, "anna")
    rows = {
        "alpha": [m.alpha for m in memories(stage, run, "anna") if not torch.equal(m.alpha, torch.full((5,), 0.2))][:1],
        "rows": [mine.z],
        "scaled": [client.own(mine, Config())],
        "labels": [torch.nn.functional.one_hot(mine.y, CLASSES).float()],
    }
    leaked = stage.wire.all() + b"".join(raw(row) for row in rows[what])
    assert any(secret in leaked for secret in kept_back(stage, run, "anna")[what])


def kept_back(stage: Stage, run: Any, name: str) -> dict[str, list[bytes]]:
    """What a site must not send, at any time of the run, as bytes."""
    mine, uniform = memory(stage, run, name), torch.full((5,), 0.2)
    alphas = [past.alpha for past in memories(stage, run, name) if not torch.equal(past.alpha, uniform)]
    labels = torch.nn.functional.one_hot(mine.y, CLASSES).float()
    return {
        "alpha": [raw(form) for alpha in alphas for form in (alpha, alpha.double(), alpha.half())],
        "rows": [raw(row) for row in mine.z],
        "scaled": [raw(row) for row in client.own(mine, Config())],
        "labels": [raw(labels[i : i + 12]) for i in range(max(len(labels) - 11, 0))],
    }


def test_a_targets_labels_never_reach_training() -> None:
    """Other labels at the target, even wrong ones, change no byte of state, order, reply or memory."""

    def shuffled(data: Data) -> Data:
        return replace(data, y=data.y.flip(0) if data.y is not None else None)

    one, run_1 = played(given={})
    two, run_2 = played(federation(carl=site(2, shuffled)), given={})
    assert one.row(run_1).state_digest == two.row(run_2).state_digest
    assert one.memories(run_1) == two.memories(run_2)


def test_target_memory_has_no_labels() -> None:
    """Sources keep theirs, int64; a target has none."""
    stage, run = played()
    assert memory(stage, run, "anna").y.tolist() == blobs(41, 0, 0).y.tolist()  # type: ignore[union-attr]
    assert len(memory(stage, run, "carl").y) == 0


def test_the_line_must_be_allowed() -> None:
    """It shows two sites' atoms to all of them: refused under the default policy, told as five losses where it is allowed."""
    stage = federation()
    run = stage.start(experiment("feddadil", ROSTER, config={"line": True}, **ALREADY))
    assert stage.play(run).status.value == "stalled"
    assert "learn_shown sends z" in stage.row(run).cause
    open_sites = {name: site(i, policy=EVERYTHING) for i, name in enumerate(ROSTER)}
    stage, run = played(federation(**open_sites), line=True)
    walked = [o.metrics for o in stage.journal.orders(run) if "line_0" in o.metrics]
    assert len(walked) == 3
    for losses in walked:
        ends = max(losses["line_0"], losses["line_4"])
        assert losses["line_2"] <= ends * (1 + 1e-6)
    assert {c.audience for c in contract(feddadil, Config(line=True)) if c.step == "learn_shown" and "." not in c.field} == {
        TO_BOTH
    }


def test_a_source_that_turns_out_to_have_no_labels() -> None:
    """What was assumed at the submission is looked at when all have joined, and who is there is said."""
    roster = (Member(ClientId("s"), Role.SOURCE, False), Member(ClientId("t"), Role.TARGET, False))
    with pytest.raises(RosterRefused, match="at least one source with labels; the roster has s"):
        server.needs_both(Config(), World(), roster)


def test_points_too_large_for_the_wire() -> None:
    """Named before they become infinities: the type, and what to set."""
    with pytest.raises(StepFailed, match=r"more than float16 holds.*Set wire to bfloat16"):
        client.narrowed(torch.tensor([1e5]), torch.float16)


def test_a_site_with_fewer_rows_than_a_mini_batch() -> None:
    """Rows are drawn with replacement: four do."""
    stage, _ = played(federation(anna=site(0, few(4)), carl=site(2, few(4))), points=30, batch=15)
    assert stage


def test_a_source_without_a_class() -> None:
    """It draws from the classes that it has; the atoms keep all of them."""

    def without(data: Data) -> Data:
        assert data.y is not None
        kept = data.y != 2
        return Data(MemoryRows(data.x.all()[kept]), data.y[kept], data.domain[kept], data.domains)

    stage, run = played(federation(anna=site(0, without)))
    last = decode(State, stage.journal.rounds(run)[-1].state[0][0], stage.parts, LAX)
    assert set(last.y[0].argmax(-1).tolist()) == {0, 1, 2}


def test_features_that_are_not_finite() -> None:
    """The site is named, its step fails, and the run says so."""

    def broken(data: Data) -> Data:
        x = data.x.all().clone()
        x[3, 1] = float("inf")
        return replace(data, x=MemoryRows(x))

    stage = federation(bert=site(1, broken))
    run = stage.start(experiment("feddadil", ROSTER, config=PLAIN, **ALREADY))
    row = stage.play(run)
    assert row.status.value == "stalled"
    assert "The features of bert are not finite" in row.cause


def test_a_rounded_number_is_told() -> None:
    """Before anything starts, and in the result: which setting, what was asked, what it becomes."""
    stage, run = played(points=13)
    assert stage.row(run).spec.notes == (
        "config.points is 13; it is rounded up to 15, so that each of the 3 classes has as many",
    )
    assert feddadil.notes(Config(points=200, batch=100), World()) == ()


def test_no_class_is_described_where_atoms_are_normal() -> None:
    """The linear layers need moments of the whole site alone."""
    stage, run = played(init="normal")
    place = phases(rounds=1, encoder_rounds=1, init="normal").index("describe")
    for order in stage.journal.orders(run, place):
        assert len(decode(Described, order.reply[0][0], stage.parts, LAX).classes) == 0
