"""Runs that several tests look at, played once."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

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
