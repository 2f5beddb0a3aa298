"""Weights that one process uploads are read by another: over a shared folder, and over a bucket of which it has no copy."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save
from stores import SHARED, store

from tideline import nets
from tideline.archive.digests import digest_of
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.engine.compute.initial_weights import check_initial_weights, read_initial_weights
from tideline.engine.coordinator.part_store import PartStore
from tideline.engine.model.experiment import UPLOADER
from tideline.engine.simulation.adapters import ManualClock
from tideline.engine.simulation.journal import MemoryJournal

WORLD = World(inputs=(1, 64, 64), classes=40, model="mlp")  # of about a megabyte, as a large object is


@pytest.mark.parametrize("kind", SHARED)
def test_weights_are_read_where_they_were_not_uploaded(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    """As a numeric worker reads them: checked, then copied; what is cut, or gone, is refused at its place."""
    here, there = (store(kind, request, tmp_path / name) for name in ("one", "two"))
    weights = nets.weights_of(nets.build(WORLD))
    content = save(weights)
    digest = digest_of([content])
    room = PartStore(here, MemoryJournal(), ManualClock())
    upload = room.upload_initial_weights(digest, len(content))
    with pytest.raises(ConfigRefused, match="There are no weights"):
        check_initial_weights(there, WORLD, digest)
    upload.write(content)
    room.commit([upload], *UPLOADER)
    assert check_initial_weights(there, WORLD, digest) == len(content)
    read = read_initial_weights(there, WORLD, digest)
    assert list(read) == list(weights) and all(torch.equal(read[name], w) for name, w in weights.items())
    there.drop(digest)
    with pytest.raises(ConfigRefused, match="There are no weights") as refusal:
        check_initial_weights(store(kind, request, tmp_path / "three"), WORLD, digest)
    assert refusal.value.context["path"] == "weights"
