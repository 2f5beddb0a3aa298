"""FedDaDiL: settings, rosters and data that do not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.algorithms.feddadil.played import ALREADY, PLAIN, ROSTER, federation, few, phases, played, site
from tests.synthetic import experiment
from tideline.algorithms.feddadil import Config, client, feddadil, server
from tideline.algorithms.feddadil.messages import Described, State
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, RosterRefused, StepFailed
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId, Member, Role
from tideline.core.step import Data


def member(name: str, role: Role, labelled: bool = True) -> Member:
    """A member of a roster."""
    return Member(ClientId(name), role, labelled)


@pytest.mark.parametrize(
    ("roster", "lacks"),
    [
        ((member("t", Role.TARGET, False),), "source with labels"),
        ((member("s", Role.SOURCE, False), member("t", Role.TARGET, False)), "source with labels"),
        ((member("s", Role.SOURCE),), "target"),
    ],
)
def test_a_roster_without_teacher_or_pupil(roster: tuple[Member, ...], lacks: str) -> None:
    """Both are needed, and who is there is said."""
    with pytest.raises(RosterRefused, match=f"at least one {lacks}; the roster has {roster[0].id}"):
        server.needs_both(Config(), World(), roster)


def test_images_without_an_encoder() -> None:
    """No features would come of them."""
    both = (member("s", Role.SOURCE), member("t", Role.TARGET, False))
    with pytest.raises(ConfigRefused, match="encoder_rounds is 0") as reported:
        server.needs_both(Config(encoder_rounds=0), World(), both)
    assert reported.value.context["path"] == "config.encoder_rounds"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"atoms": 0}, "atoms is 0; it should be at least 1"),
        ({"points": 0}, "points is 0"),
        ({"batch": 0}, "batch is 0"),
        ({"optimiser": "adamw"}, "adam, rows, sgd"),
        ({"wire": "int8"}, "float32, float16, bfloat16"),
        ({"distil": [0]}, r"distil\[0\] is 0"),
    ],
)
def test_settings_out_of_range(wrong: dict[str, Any], words: str) -> None:
    """The setting, the bound and the value are named."""
    with pytest.raises(ConfigRefused, match=words):
        feddadil.configure(wrong)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (Config(label_confidence=0.2), "label_confidence is 0.2; with 4 classes"),
        (Config(head_rounds=0, choice="committee"), "choice is 'committee', which needs the sources' linear layers"),
        (Config(head_rounds=0, choice="none", encoder_rounds=0), "choice is 'none'"),
    ],
)
def test_settings_that_do_not_fit(wrong: Config, words: str) -> None:
    """What would turn labels round, or choose what is not there, is refused before anything starts."""
    both = (member("s", Role.SOURCE), member("t", Role.TARGET, False))
    with pytest.raises(ConfigRefused, match=words):
        server.needs_both(wrong, World(inputs=(8,), classes=4, model="linear"), both)


def test_what_plain_gradients_and_no_guard_mean_is_told() -> None:
    """In the notes of a run."""
    assert "coordinates can be inferred" in feddadil.notes(Config(optimiser="sgd"), World())[0]
    assert "no guard is possible" in feddadil.notes(Config(head_rounds=0), World())[0]


def test_points_too_large_for_the_wire() -> None:
    """Named before they become infinities: the type, and what to set."""
    with pytest.raises(StepFailed, match=r"more than float16 holds.*Set wire to bfloat16"):
        client.narrowed(torch.tensor([1e5]), torch.float16)


def test_fewer_points_than_classes() -> None:
    """Every class gets a point: one is the least."""
    assert server.begin(
        Config(points=1, encoder_rounds=0), World(inputs=(2,), classes=7, model="linear"), (), torch.Generator()
    ).z.shape == (3, 7, 2)


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


def test_many_local_epochs_at_a_large_step_are_told() -> None:
    """One epoch, or a small step, is as the method is meant."""
    (note,) = feddadil.notes(Config(epochs=5), World())
    assert "config.epochs is 5 at a rate of 0.3" in note
    assert feddadil.notes(Config(epochs=5, rate=0.1), World()) == ()


def test_no_class_is_described_where_atoms_are_normal() -> None:
    """The linear layers need moments of the whole site alone."""
    stage, run = played(init="normal")
    place = phases(rounds=1, encoder_rounds=1, init="normal").index("describe")
    for order in stage.journal.orders(run, place):
        assert len(decode(Described, order.reply[0][0], stage.parts, LAX).classes) == 0
