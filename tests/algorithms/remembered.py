"""Runs that several tests look at, played once."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from tests.laws.stage import Stage
from tests.synthetic import experiment
from tideline.engine.model.orders import Order

P = ParamSpec("P")
R = TypeVar("R")
MOST = 32  # runs of one folder that are kept


def remembered(play: Callable[P, R]) -> Callable[P, R]:
    """What is asked for in plain words again is answered with the run that was played for them first: who asks only looks.

    With a federation of a test's own, or a choice of who answers, it is played anew each time. `anew` always does.
    """
    kept: OrderedDict[str, R] = OrderedDict()

    @wraps(play)
    def found(*args: P.args, **given: P.kwargs) -> R:
        try:
            asked = json.dumps([args, given])
        except TypeError:
            return play(*args, **given)
        if asked not in kept:
            kept[asked] = play(*args, **given)
        kept.move_to_end(asked)
        if len(kept) > MOST:
            kept.popitem(last=False)
        return kept[asked]

    found.anew = play  # type: ignore[attr-defined]
    return found


def run_player(federation: Callable[[], Stage], **given: Any) -> Any:
    """Return a function that plays a run to its end: of a method, on a federation that is made for it unless one is given.

    given: of every experiment. The function takes a choice of who answers, what else the experiment has (more), and settings.
    """

    @remembered
    def played(
        method: str,
        stage: Stage | None = None,
        choose: Callable[[list[Order]], list[Order]] | None = None,
        more: Mapping[str, Any] | None = None,
        **config: Any,
    ) -> tuple[Stage, Any]:
        stage = stage or federation()
        run = stage.start(experiment(method, **{**given, "config": config, **(more or {})}))
        row = stage.play(run, choose)
        assert row.status.value == "completed", row.cause
        return stage, run

    return played
