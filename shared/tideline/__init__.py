"""Tideline: federated learning for data that shift from place to place."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tideline.learning.prediction import load

__all__ = ["__version__", "load"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """What needs torch, loaded when it is first asked for: most commands do without."""
    if name == "load":
        from tideline.learning.prediction import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
