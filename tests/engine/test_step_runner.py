"""What a trainer holds of a site's data, and what of them no step sees."""

from __future__ import annotations

import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.synthetic import rows
from tideline.algorithms import METHODS
from tideline.archive.parts import MemoryParts
from tideline.core.algorithm import contract, resolve
from tideline.core.asked.world import World
from tideline.core.errors import DataRefused, NotFound, StepFailed
from tideline.core.run import ClientId, Role, RunId
from tideline.core.settings import plain
from tideline.core.step import Data, View, no_tick
from tideline.engine.compute.step_runner import StepRunner
from tideline.engine.model.brief import Brief
from tideline.engine.model.runs import JOIN
from tideline.engine.ports.site import Job

WORLDS = [World(inputs=(8,), classes=3), World(inputs=(4,), classes=3)]


def test_the_data_of_one_world_are_let_go_before_those_of_the_next_are_read() -> None:
    """So that memory holds one set; the same world's are read once, and again after another's."""
    opened: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def open_site_data(world: World, role: Role) -> Any:
        alive.append(sum(each() is not None for each in opened))
        made = rows(0, world)
        opened.append(weakref.ref(made))
        return made

    step_runner = StepRunner(METHODS, lambda run: MemoryParts(), open_site_data)
    for world in (WORLDS[0], WORLDS[0], WORLDS[1], WORLDS[0]):
        step_runner.opened(world, Role.SOURCE)
    assert alive == [0, 0, 0]


def test_data_that_cannot_be_read_leave_nothing() -> None:
    """And the next world's are read all the same."""

    def open_site_data(world: World, role: Role) -> Any:
        if world == WORLDS[0]:
            raise DataRefused("no")
        return rows(0, world)

    step_runner = StepRunner(METHODS, lambda run: MemoryParts(), open_site_data)
    step_runner.opened(WORLDS[1], Role.SOURCE)
    with pytest.raises(DataRefused):
        step_runner.opened(WORLDS[0], Role.SOURCE)
    assert step_runner.opened(WORLDS[1], Role.SOURCE).site_data.view is not None


class Forgetful:
    """A reader of data that hides no labels."""

    def __init__(self, world: World) -> None:
        self.rows = rows(0, world)

    def view(self, view: View, role: Role) -> Data:
        return self.rows.train if view is View.TRAIN else self.rows.held_out


@pytest.mark.parametrize(("role", "labelled"), [(Role.SOURCE, True), (Role.PEER, True), (Role.TARGET, False)])
def test_a_targets_labels_are_hidden_where_its_reader_forgets_to(role: Role, labelled: bool) -> None:
    """No step of a target sees a training label, whoever wrote the reader: what a site joins with tells what steps see."""
    method = resolve(METHODS, "fedavg")
    config = method.configure({})
    brief = Brief("fedavg", plain(config), WORLDS[0], 1, False, contract(method, config), role)
    parts = MemoryParts()
    step_runner = StepRunner(METHODS, lambda run: parts, lambda world, role: Forgetful(world))
    done = step_runner.run(Job(RunId("run"), ClientId("ann"), JOIN, 1, brief, 0, None, None), no_tick)
    assert done.labelled is labelled


def test_words_of_a_method_that_its_owner_added_stay_at_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its module may name what lies there."""
    (tmp_path / "my_broken_methods.py").write_text("raise OSError('/home/patient 13')")
    monkeypatch.syspath_prepend(tmp_path)
    methods = (*METHODS, ("mine", "my_broken_methods:MINE"))
    job = Job(RunId("run"), ClientId("ann"), JOIN, 1, Brief("mine", {}, WORLDS[0], 1, False, (), Role.SOURCE), 0, None, None)
    with pytest.raises(StepFailed, match="cannot be loaded: OSError") as failed:
        StepRunner(methods, lambda run: MemoryParts(), lambda world, role: rows(0, world)).run(job, no_tick)
    assert "patient" not in str(failed.value)
    missing = replace(job, brief=replace(job.brief, method="other"))
    with pytest.raises(NotFound, match="There is no method 'other'"):
        StepRunner(methods, lambda run: MemoryParts(), lambda world, role: rows(0, world)).run(missing, no_tick)
