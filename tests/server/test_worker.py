"""The numeric worker behind its port."""

from __future__ import annotations

from pathlib import Path

import pytest

from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, Unreachable
from tideline.core.run import Digest, RunId, RunSpec
from tideline.engine.ports.compute import CheckRequest
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


def test_code_that_can_no_longer_be_loaded_ends_no_run(tmp_path: Path) -> None:
    """A worker that had to start again while its operator edits a file: who asks for something new hears why, and runs wait."""
    compute = ProcessCompute(("", tmp_path, 0.0), "tideline.algorithms:METHODS", ("no_such_module:NETWORKS",))
    spec = RunSpec(RunId("r"), "fedavg", {}, World(), seed=0, contract=Digest(""), keeps=False)
    try:
        with pytest.raises(ConfigRefused, match="no_such_module"):
            compute.methods()
        with pytest.raises(Unreachable, match="no_such_module"):
            compute.check(CheckRequest(spec=spec, cursor=0, asked=Digest("b3-" + "0" * 64), reply=Digest("b3-" + "0" * 64)))
    finally:
        compute.end()
