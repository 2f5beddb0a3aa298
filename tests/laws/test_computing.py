"""The laws of how steps compute, for every method: none of them knows of it."""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from torch.optim.optimizer import register_optimizer_step_post_hook

from tests.laws.case import Case, cases
from tests.laws.stage import Stage
from tests.laws.trace import answered, asked
from tideline.algorithms import METHODS
from tideline.core.errors import ConfigRefused
from tideline.core.run import RunId
from tideline.engine.model.runs import Status

every = pytest.mark.parametrize("case", cases(METHODS), ids=str)
OWN_LOOP = {"fada", "fdann"}  # whoever adds a method decides whether it belongs here
SITE, STEPS = "tideline.engine.compute.step_runner", "tideline.learning.stepping"
looped = pytest.mark.parametrize("case", [case for case in cases(METHODS) if case.name not in OWN_LOOP], ids=str)


def told(stage: Stage, run: RunId) -> list[Any]:
    """What each site says of how it computes."""
    return [each["computing"] for each in stage.result(run)["clients"]]


def ends_in_numbers(stage: Stage, run: RunId) -> None:
    """The run completed, and every metric is a number; of messages and states the archive sees to that."""
    row = stage.row(run)
    assert row.status is Status.COMPLETED, row.cause
    assert all(math.isfinite(value) for each in stage.result(run)["clients"] for value in each["metrics"].values())


@every
def test_what_is_not_said_changes_no_byte(case: Case) -> None:
    """The section with its defaults gives the bytes of a run without it, and sites then say how they compute."""
    (plain, before), (stage, run) = case.played(), case.played(computing={})
    assert stage.row(run).state_digest == plain.row(before).state_digest
    assert answered(stage.journal, run) == answered(plain.journal, before)
    assert asked(stage.journal, run) == asked(plain.journal, before)
    assert told(plain, before) == [None] * len(case.roster)
    assert told(stage, run) == [{"device": "cpu", "precision": "float32", "deterministic": True}] * len(case.roster)


@contextmanager
def stepped() -> Iterator[set[str]]:
    """The modules by which optimisers step at sites meanwhile: of ours the nearest to the step."""
    found: set[str] = set()

    def note(*_: object) -> None:
        names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_stack(None)]
        ours = [name for name in names if name.startswith("tideline.")]
        if SITE in ours and not ours[0].startswith("tideline.numerics."):  # formulas that descend, in float32 as all of them
            found.add(ours[0])

    hook = register_optimizer_step_post_hook(note)
    try:
        yield found
    finally:
        hook.remove()


@every
def test_it_runs_in_bfloat16(case: Case) -> None:
    """All that is sent and kept stays float32 and finite: records declare their dtypes.

    Sites step by `Steps` alone, which honours all settings; or the method says that it has a loop of its own.
    """
    with stepped() as by:
        stage, run = case.played(computing={"precision": "bfloat16"})
    assert bool(by - {STEPS}) is (case.name in OWN_LOOP), by
    ends_in_numbers(stage, run)
    assert told(stage, run) == [{"device": "cpu", "precision": "bfloat16", "deterministic": True}] * len(case.roster)


@looped
def test_it_adds_up_mini_batches(case: Case) -> None:
    """And scales what float16 would lose."""
    stage, run = case.played(computing={"precision": "float16", "accumulate": 2})
    ends_in_numbers(stage, run)


@pytest.mark.parametrize("name", sorted(OWN_LOOP))
@pytest.mark.parametrize(("key", "value", "instead"), [("precision", "float16", "bfloat16"), ("accumulate", 2, "config.batch")])
def test_loops_of_their_own_refuse_what_they_lack(name: str, key: str, value: Any, instead: str) -> None:
    """Before anybody is asked, with the way out."""
    case = Case(name, METHODS)
    with pytest.raises(ConfigRefused, match=instead) as refused:
        case.stage().start(case.experiment(computing={key: value}))
    assert refused.value.context["path"] == f"computing.{key}"
    assert case.algorithm.own_loop


@looped
def test_no_other_method_says_that_it_has_one(case: Case) -> None:
    """Else float16 would be refused for nothing."""
    assert not case.algorithm.own_loop
