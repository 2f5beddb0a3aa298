"""Which sites and candidates count where some of them failed."""

from __future__ import annotations

import pytest
import torch

from tests.rehearsal.stage import SHORT, experiment, federation, statuses
from tideline.core.run import RunId
from tideline.learning.rehearsal.choosing import whole


@pytest.mark.parametrize(
    ("there", "sites", "candidates"),
    [
        (["111", "111", "111"], [0, 1, 2], [0, 1, 2]),
        (["111", "011", "111"], [0, 2], [0, 1, 2]),  # without the reference a site has nothing to compare
        (["111", "101", "111"], [0, 2], [0, 1, 2]),  # most have it: the site goes
        (["101", "101", "111"], [0, 1, 2], [0, 2]),  # most lack it: the candidate goes
        (["111", "101", "110"], [0, 1, 2], [0]),  # one site alone would be left: the candidates go
        (["111", "101"], [0, 1], [0, 2]),
        (["011", "011"], [], [0, 1, 2]),
    ],
)
def test_what_counts(there: list[str], sites: list[int], candidates: list[int]) -> None:
    assert whole(torch.tensor([[each == "1" for each in row] for row in there])) == (sites, candidates)


def test_a_run_that_is_cancelled_leaves_out_its_site_alone() -> None:
    """Not the candidate, which the two others have rehearsed."""
    on = federation()
    run = on.start(experiment(SHORT))
    on.run_service.cancel(RunId(f"{run}-s1-1"))
    verdict = on.run(run)["verdict"]
    assert statuses(on, run)["-s1-1"] == "cancelled"
    assert verdict["rehearsed_at"] == ["anna", "carl"] and not verdict["candidates_left_out"]
    assert "cancelled by a person" in verdict["left_out"]["bert"]
