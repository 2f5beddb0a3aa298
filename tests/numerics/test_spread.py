"""How far models lie apart."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.budgets import examples
from tideline.numerics.aggregation.averaging import spread


@settings(max_examples=examples(40))
@given(st.integers(1, 6), st.integers(0, 2**20))
def test_it_is_the_mean_deviation(n: int, seed: int) -> None:
    """As torch has it for all models at once, far from zero too."""
    rng = torch.Generator().manual_seed(seed)
    models = [{"a": 1e3 + torch.randn(3, 2, generator=rng), "b": torch.randn(4, generator=rng)} for _ in range(n)]
    found = spread(iter(models))
    for name in ("a", "b"):
        whole = torch.stack([model[name] for model in models]).double()
        assert found[name] == pytest.approx(float(whole.std(0, correction=0).mean()), abs=1e-9)


def test_one_model_has_none() -> None:
    """Nor has none at all anything to tell."""
    assert spread([{"a": torch.ones(2)}]) == {"a": 0.0} and spread([]) == {}
