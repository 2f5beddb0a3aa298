"""The numeric worker behind its port."""

from __future__ import annotations

from pathlib import Path

import pytest

from tideline.core.errors import Unreachable
from tideline_server.worker import ProcessCompute


def test_a_look_that_takes_too_long_is_tried_again(tmp_path: Path) -> None:
    """A worker that does not answer a look is ended, and whoever looked may look again: it is no fault of a run or a reply."""
    place, methods = ("", tmp_path, 0.0), "tideline.algorithms:METHODS"
    compute = ProcessCompute(place, methods, patience=0.01)  # to load its libraries alone takes longer
    try:
        with pytest.raises(Unreachable, match=r"The call methods took longer than 0\.01 s, and the worker was ended"):
            compute.methods()
        assert compute.pid is None
    finally:
        compute.end()
