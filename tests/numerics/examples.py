"""Property tests with a budget of examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings

from tests.budgets import examples


def for_all(deep: int, *strategies: Any, **named: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Try a test with values of these strategies: so many in the deep suite, a fifth of them in the quick one."""
    return lambda test: settings(max_examples=examples(deep))(given(*strategies, **named)(test))
