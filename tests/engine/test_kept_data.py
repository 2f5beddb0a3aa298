"""A site's data are read once for runs that see them in several ways, and let go where they are large."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tideline.algorithms import METHODS
from tideline.archive.parts import MemoryParts
from tideline.core.asked.world import World, world_in
from tideline.core.rows import MemoryRows
from tideline.core.run import Role
from tideline.core.step import Data, View
from tideline.engine.compute.kept_data import KeptData, bytes_of
from tideline.engine.compute.step_runner import StepRunner
from tideline.engine.ports.site import SiteData
from tideline.learning.formats.holdings import Holdings

WORLD = world_in({"inputs": [4], "classes": 2, "model": "linear", "normalise": "none"})


def holdings(n: int = 20) -> Holdings:
    side = Data(MemoryRows(torch.rand(n, 4) + torch.arange(n)[:, None]), torch.arange(n) % 2, torch.zeros(n).long(), ("a",))
    return Holdings(side, side)


def test_one_reading_serves_every_scale() -> None:
    """Of one role; what is normalised differently is made once each, and again the same."""
    asked = list[Role]()

    def open_site_data(world: World, role: Role) -> SiteData:
        asked.append(role)
        return holdings()

    runner = StepRunner(METHODS, lambda run: MemoryParts(), open_site_data)
    own = replace(WORLD, normalise=world_in({**vars_of(), "normalise": "site"}).normalise)
    first = [runner.opened(world, role) for world in (WORLD, own) for role in (Role.SOURCE, Role.TARGET)]
    again = [runner.opened(world, role) for world in (WORLD, own) for role in (Role.SOURCE, Role.TARGET)]
    assert all(one is other for one, other in zip(first, again, strict=True))
    assert asked == [Role.SOURCE, Role.TARGET]
    raw, site = (each.site_data.view(View.TRAIN, Role.SOURCE).x.all() for each in (first[0], first[2]))
    assert float(raw.mean()) > 5 and float(site.mean()) == pytest.approx(0, abs=0.1)


def vars_of() -> dict[str, object]:
    return {"inputs": [4], "classes": 2, "model": "linear"}


def test_what_does_not_fit_goes_before_the_next_is_made() -> None:
    """The oldest first; one that is larger than all room goes alone, once another is asked for."""
    kept = KeptData[str, int](float, room=10)
    made = list[str]()

    def of(name: str, size: int) -> None:
        kept.of(name, lambda: made.append(name) or size)  # type: ignore[func-returns-value]

    for name, size in (
        ("a", 4),
        ("b", 4),
        ("a", 4),
        ("c", 4),
        ("d", 1),
        ("a", 4),
        ("b", 4),
        ("huge", 99),
        ("a", 4),
        ("e", 1),
        ("huge", 99),
    ):
        of(name, size)
    assert made == ["a", "b", "c", "d", "b", "huge", "e", "huge"]


def test_data_of_unknown_size_are_held_alone() -> None:
    class Odd:
        def view(self, view: View, role: Role) -> Data:
            return holdings().train

    assert bytes_of(Odd()) == float("inf") and bytes_of(holdings(10)) == 2 * 10 * 4 * 4
