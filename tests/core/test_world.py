"""Names of classes in a world: optional, one for each class, and unseen where they are not given."""

from __future__ import annotations

from typing import Any

import pytest

from tideline.algorithms import METHODS
from tideline.archive.parts import MemoryParts
from tideline.core.asked.world import World, plain_world, world_in
from tideline.core.errors import ConfigRefused
from tideline.core.run import ClientId, Member, Role
from tideline.core.settings import parse, plain
from tideline.engine.compute.inline import InlineCompute
from tideline.engine.ports.compute import DraftRequest

NAMED = {"inputs": [4], "classes": 2, "model": "mlp", "class_names": ["cat", "dog"]}


def drafted(world: dict[str, Any]) -> Any:
    """The world as a run keeps it and tells it to sites."""
    roster = (Member(ClientId("a"), Role.SOURCE, labelled=True),)
    asked = DraftRequest("fedavg", "tiny", {}, parse(World, world, "world"), roster)
    return plain_world(InlineCompute(MemoryParts(), METHODS).draft(asked).world)


def test_names_are_kept() -> None:
    """A run's world has them, and a site reads them."""
    assert world_in(NAMED).class_names == ("cat", "dog") and drafted(NAMED)["class_names"] == ["cat", "dog"]
    assert world_in(plain_world(world_in(NAMED))) == world_in(NAMED)


def test_a_world_without_names_is_told_as_before() -> None:
    """Sites of earlier versions read it, and its bytes are the same."""
    told = {"inputs": [1, 28, 28], "classes": 10, "model": "lenet", "sizes": {}}
    assert plain_world(World()) == drafted(plain(World())) == told


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"inputs": [1 << 27]}, r"inputs\[0\] is 134217728; it should be at most"),
        ({"inputs": [3, 100_000, 100_000]}, "a sample of them has more than 67108864 numbers"),
        ({"inputs": [1 << 26] * 5}, "a sample of them has more than"),
        ({"inputs": [1 << 26] * 100_000}, "has 100000 sizes; a sample has 1 to 5"),
        ({"classes": (1 << 20) + 1}, "classes is 1048577; it should be at most"),
    ],
)
def test_a_world_beyond_all_size_is_refused(changed: dict[str, object], said: str) -> None:
    """Where it is asked for, and where a site is asked to hold its samples."""
    with pytest.raises(ConfigRefused, match=said) as refusal:
        drafted({"inputs": [4], "classes": 2, "model": "mlp"} | changed)
    assert len(refusal.value.what) < 500
    with pytest.raises(ConfigRefused, match=said):
        world_in({"inputs": [4], "classes": 2, "model": "mlp"} | changed)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["cat"], "1 names for 2 classes"),
        (["cat", "cat"], "'cat' cannot name one class alone"),
        (["cat", " cat "], "'cat' cannot name"),
        (["\u00f6", "o\u0308"], "cannot name one class alone"),
        (["cat", ""], "'' cannot name"),
        (["cat", "a\nb"], "cannot name"),
        (["cat", 2], "world.class_names"),
        ("cat", "world.class_names"),
    ],
)
def test_names_that_cannot_be_are_refused(names: object, said: str) -> None:
    """By the place of the setting."""
    with pytest.raises(ConfigRefused, match=said) as refusal:
        drafted(NAMED | {"class_names": names})
    assert str(refusal.value.context["path"]).startswith("world.class_names")
