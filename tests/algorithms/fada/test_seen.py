"""What people and a target's owner see in the end."""

from __future__ import annotations

import pytest
import torch

from tests.algorithms.fada.played import memory_of, played
from tideline.algorithms.fada.client import keepsakes

FEW = {"rounds": 2, "source_rounds": 1, "identify_steps": 1, "evaluate_every": 2}


@pytest.mark.parametrize("method", ["fada", "fdann"])
def test_targets_count_which_classes_are_taken_for_which(method: str) -> None:
    """Where that is asked for, after the last scoring; sources, which are not scored, count nothing."""
    stage, run = played(method, confusion=True, **FEW)
    phases = stage.result(run)["phases"]
    assert phases[-1]["name"] == "confusion"
    assert set(phases[-1]["tables"]) == {"confusion of carl"}
    counts = torch.tensor(phases[-1]["tables"]["confusion of carl"]["values"])
    accuracy = next(c["accuracy"] for c in stage.result(run)["clients"] if c["name"] == "carl")
    assert float(counts.trace() / counts.sum()) == pytest.approx(accuracy)
    plain, other = played(method, **FEW)
    assert plain.result(other)["phases"][-1]["name"] == "score"


def test_a_target_keeps_a_picture_of_its_rows_and_a_source_none() -> None:
    """Where the watched rows lie by G_t, and what C_t takes them for; as the model of the last round has them."""
    stage, run = played(**FEW, clustered=15)
    carl, anna = (memory_of(stage, run, name, phase, 2) for name, phase in (("carl", "follow"), ("anna", "improve")))
    picture = keepsakes(None, carl)["picture"]
    assert picture["site"].shape == (15, 2) and bool(torch.isfinite(picture["site"]).all())
    assert picture["site_class"].shape == (15,) and set(picture["site_class"].tolist()) <= {0, 1, 2}
    assert set(keepsakes(None, anna)) == {"model"}
