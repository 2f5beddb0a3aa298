"""FedDaDiL's privacy claim on captured bytes: coordinates, features and rows of a site never pass the line, either way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.acceptance.conftest import SITES
from tests.acceptance.harness import Net
from tests.acceptance.tap import tapped
from tideline.algorithms.feddadil import Config
from tideline.algorithms.feddadil.client import own
from tideline.algorithms.feddadil.messages import Mine, State
from tideline.archive.checks import LAX
from tideline.archive.folder import FolderParts
from tideline.archive.reader import decode
from tideline.core.run import Digest, RunId
from tideline_agent.home.runs import memory_of
from tideline_agent.vault import FolderVault

pytestmark = pytest.mark.processes
ATOMS = 5
CONFIG = {"encoder_rounds": 0, "head_rounds": 0, "init": "normal", "atoms": ATOMS}
WORLD = {"inputs": [6], "classes": 3, "model": "linear", "normalise": "none"}


class Tapped(Net):
    """A federation whose agents reach the coordinator by way of a tap."""

    door: int | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.door or self.grpc}"


def raw(tensor: Any) -> bytes:
    return bytes(tensor.contiguous().numpy().tobytes())


@pytest.mark.nightly(job="journeys")
def test_no_coordinate_and_no_feature_passes_the_line(tmp_path: Path, data: dict[str, Path]) -> None:
    """Every byte of a run is kept; what sites remember is not among them, and what they sent is."""
    federation = Tapped(tmp_path)
    try:
        federation.coordinator()
        with tapped(federation.grpc) as tap:
            federation.door = tap.port
            for name, role in SITES.items():
                federation.agent(name, data[name], role)
            given = {"method": "feddadil", "preset": "tiny", "config": CONFIG, "world": WORLD, "roster": SITES, "seed": 5}
            result = federation.completed(run := federation.run(given))
            wire = tap.all()
    finally:
        federation.stop()
    state = decode(State, Digest(result["state_digest"]), FolderParts(federation.folder / "parts"), LAX)
    sent = [raw(row) for row in state.z.flatten(0, 1)[:, :4]]
    assert sum(row not in wire for row in sent) <= 1, "the tap hears what is sent (a frame may begin within a row)"
    for name in SITES:
        kept = memory_of(FolderVault(federation.home / f"home-{name}" / "runs"), RunId(run), Mine)
        assert not torch.equal(kept.alpha, torch.full((ATOMS,), 1 / ATOMS)), "a coordinate that never moved proves nothing"
        for form in (kept.alpha, kept.alpha.double(), kept.alpha.half()):
            assert raw(form)[:16] not in wire
        assert not any(raw(row)[:16] in wire for row in kept.z)
        assert not any(raw(row)[:16] in wire for row in own(kept, Config()))
        assert not any(row.tobytes()[:16] in wire for row in np.load(data[name] / "blobs.npz", allow_pickle=False)["x"])
        assert not any(repr(float(a)).encode() in wire for a in kept.alpha if 0 < a < 1)
