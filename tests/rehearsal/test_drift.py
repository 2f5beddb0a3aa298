"""Whether a verdict still holds for rows that came later."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.rehearsal.stage import ROSTER, SHORT, drawn, experiment, federation
from tideline.core.errors import NotFound
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId, RunId
from tideline.learning.formats.holdings import Holdings
from tideline.numerics.alignment.normalising import Moments, moments
from tideline.numerics.rehearsal.drift import Holds, drift
from tideline.numerics.rehearsal.shifts import shift
from tideline_agent.home.drift import drift_of, said_of
from tideline_agent.vault import FolderVault


def normal(n: int, seed: int, by: float = 0.0, wide: float = 1.0, d: int = 20) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed)) * wide + by


def of(x: Tensor) -> Moments:
    return moments([x], x.shape[1])


SITES = [of(normal(400, i, by=0.5 * i, wide=1 + 0.2 * i)) for i in range(3)]
LABELLED = SITES[0] + SITES[1] + SITES[2]
REHEARSED = [shift(each, LABELLED) for each in SITES]


@pytest.mark.parametrize("n", [10, 30, 300, 3000])
def test_chance_alone_is_no_drift(n: int) -> None:
    """In 40 draws of so few rows or many."""
    old = of(normal(200, 100, by=0.5))
    found = [drift(of(normal(n, 200 + i, by=0.5)), old, LABELLED, REHEARSED).holds for i in range(40)]
    assert set(found) == {Holds.AS_IT_WAS}


def test_a_move_to_a_shift_that_was_rehearsed() -> None:
    """To where another site is."""
    assert drift(of(normal(300, 7)), of(normal(300, 8, by=1.0, wide=1.4)), LABELLED, REHEARSED).holds is Holds.REHEARSED


@pytest.mark.parametrize(("by", "wide"), [(1.0, 1.0), (0.0, 3.0)], ids=["of means", "of spreads"])
def test_a_move_of_means_or_of_spreads_alone_is_drift(by: float, wide: float) -> None:
    """Report drift if one of both has moved, though the other stayed."""
    assert drift(of(normal(300, 7, by, wide)), of(normal(300, 8)), LABELLED, REHEARSED).holds is not Holds.AS_IT_WAS


def test_a_move_to_where_nothing_was_rehearsed() -> None:
    assert drift(of(normal(300, 7, by=9.0)), of(normal(300, 8)), LABELLED, REHEARSED).holds is Holds.NO
    assert drift(of(normal(300, 7, by=9.0)), of(normal(300, 8)), LABELLED, []).holds is Holds.NO


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunId]:
    """A rehearsal whose sites have their vaults on the disk: their homes, and the run."""
    on, homes = federation(), tmp_path_factory.mktemp("homes")
    for name in ROSTER:
        on.agents[ClientId(name)].vault = FolderVault(homes / name / "runs")
    run = on.start(experiment(SHORT, then="run"))
    assert on.run(run)["status"] == "completed"
    return homes, run


def test_a_site_compares_its_rows(rehearsed: tuple[Path, RunId]) -> None:
    """The rows of before hold; the same ones far away do not; each with numbers."""
    homes, run = rehearsed
    home = homes / "dora"

    def rows(by: float) -> Holdings:
        sides = [drawn(3, seed, n) for seed, n in ((0, 80), (5, 40))]
        train, held = (replace(each, x=MemoryRows(torch.cat(list(each.x.parts())) + by)) for each in sides)
        return Holdings(train, held)

    same = drift_of(home, run, lambda world, role: rows(0.0))
    assert same.holds is Holds.AS_IT_WAS and "verdict holds" in next(said_of(same))
    far = drift_of(home, run, lambda world, role: rows(40.0))
    assert far.holds is Holds.NO and far.nearest is not None and far.nearest > 1


def test_what_keeps_no_verdict(rehearsed: tuple[Path, RunId]) -> None:
    """A run that is no rehearsal, a site that was no target, an id that names none."""
    homes, run = rehearsed
    for home, name, words in (
        ("anna", run, "no target"),
        ("dora", f"{run}-t0", "no rehearsal"),
        ("dora", "none", "remembers no"),
    ):
        with pytest.raises(NotFound, match=words):
            drift_of(homes / home, RunId(name), lambda world, role: Holdings(drawn(3, 0, 9), drawn(3, 1, 9)))
