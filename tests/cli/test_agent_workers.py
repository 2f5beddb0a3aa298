"""How many threads read rows at a site, as its owner says it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tideline.cli.serving import AGENT_OPTIONS, agent_settings
from tideline.core.errors import ConfigRefused


def given(tmp_path: Path, workers: int | None) -> dict[str, Any]:
    """All options of the command, most of them not given."""
    options = {each.name: None if each.default is each.empty else each.default for each in AGENT_OPTIONS}
    return {**options, "data": tmp_path, "role": ["source"], "name": "anna", "token": "", "workers": workers}


@pytest.mark.parametrize("workers", [None, 0, 1, 64])
def test_a_number_or_as_many_as_cores(workers: int | None, tmp_path: Path) -> None:
    assert agent_settings(given(tmp_path, workers)).workers == workers


@pytest.mark.parametrize("workers", [-1, 65])
def test_numbers_out_of_range(workers: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigRefused, match="workers"):
        agent_settings(given(tmp_path, workers))
