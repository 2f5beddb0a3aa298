"""The experiment of a demonstration of one method: what stands beside it trains as long."""

from __future__ import annotations

from typing import Any

import pytest

from tideline.cli.local.demo import DemoOptions, MethodFacts, one_method
from tideline.core.settings import Plain


def facts(preset: dict[str, Plain] | None, extra_rounds: int) -> MethodFacts:
    """What the demonstration asks of a method."""
    presets = {} if preset is None else {"demo": preset}
    return MethodFacts(cast=[], unlike="styles", extra_rounds=extra_rounds, network="lenet", presets=presets)


@pytest.mark.parametrize(
    ("preset", "extra", "rounds", "config"),
    [
        ({"rounds": 2}, 20, None, {"rounds": 22}),
        ({"rounds": 2}, 20, 1, {"rounds": 21}),
        ({"rounds": 2}, 0, None, {}),
        (None, 0, None, {}),
    ],
)
def test_averaging_beside_it_trains_as_long(
    preset: dict[str, Plain] | None, extra: int, rounds: int | None, config: dict[str, Plain]
) -> None:
    """By as many rounds more as the method's sites train beside its own rounds, also where those are named."""
    made: Any = one_method(DemoOptions("m", agents=4, rounds=rounds), facts(preset, extra))
    assert made["reference"] == {"method": "fedavg", "config": config}
    assert made["config"] == ({} if rounds is None else {"rounds": rounds})
