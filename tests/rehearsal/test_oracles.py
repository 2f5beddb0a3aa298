"""Shifts with a known answer: each site's features are stretched and moved by the site, which its own mean and spread undo."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from tests.rehearsal.stage import CLASSES, SITE, D, experiment
from tideline.algorithms import METHODS
from tideline.core.asked.world import World
from tideline.core.rows import MemoryRows
from tideline.core.run import Role
from tideline.core.step import Data
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.learning.formats.holdings import Holdings


@dataclass(frozen=True)
class Stretched:
    """A site's rows: x a + b, with a and b of its own; the same classes everywhere."""

    site: int
    seed: int
    by: float = 1.0

    def side(self, n: int, draw: int) -> Data:
        rng = torch.Generator().manual_seed(10_000 * self.seed + 10 * self.site + draw)
        y = torch.arange(n) % CLASSES
        x = 2.5 * torch.eye(CLASSES, D)[y] + torch.randn(n, D, generator=rng)
        own = torch.Generator().manual_seed(77 * self.seed + self.site)
        a, b = torch.randn(D, generator=own), torch.randn(D, generator=own)
        moved = x * torch.exp(self.by * a) + 3 * self.by * b
        return Data(MemoryRows(moved), y, torch.zeros(n, dtype=torch.int64), ("d",))

    def __call__(self, world: World, role: Role) -> Holdings:
        return Holdings(self.side(90, 0), self.side(45, 1))


def verdict(seed: int, by: float = 1.0) -> dict[str, object]:
    names = ("anna", "bert", "carl", "dora")
    on = Federation(METHODS, {name: SimSite(Stretched(i, seed, by)) for i, name in enumerate(names)})
    given = experiment(SITE, config={"rounds": 4, "rate": 0.1}, then="run", rehearse={"rule": "mean"})
    result = on.run(on.start(given))
    assert result["status"] == "completed", result["cause"]
    found: dict[str, object] = {**result["verdict"], "clients": result["clients"]}
    return found


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.nightly(job="numbers")) for n in range(1, 100))])
def test_it_finds_what_undoes_the_shift(seed: int) -> None:
    """With three labelled sites, whatever the target is like."""
    found = verdict(seed)
    (target,) = found["targets"]  # type: ignore[misc]
    assert target["chosen"] == {"site": 1.0}
    (dora,) = [each for each in found["clients"] if each["name"] == "dora"]  # type: ignore[union-attr]
    assert dora["accuracy"] > 0.7 and target["gain"]["value"] > 0.1


def test_it_expects_little_where_nothing_is_shifted() -> None:
    """Whatever it chooses there."""
    (target,) = verdict(0, by=0.0)["targets"]  # type: ignore[misc]
    assert abs(target["gain"]["value"]) < 0.05
