"""Tideline: federated learning for data that shift from place to place. docs/python.md shows what is public here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tideline.core import errors
    from tideline.learning.prediction import Classifier, Predictions, load
    from tideline.learning.sites.site import Site
    from tideline.python.result import Metric, Result, SiteScore
    from tideline.python.run import Run
    from tideline.python.server import Server, connect
    from tideline.python.simulating import simulate

__all__ = [
    "Classifier",
    "Metric",
    "Predictions",
    "Result",
    "Run",
    "Server",
    "Site",
    "SiteScore",
    "__version__",
    "connect",
    "errors",
    "load",
    "simulate",
]
__version__ = "0.2.0"


def __getattr__(name: str) -> object:
    """What needs torch, loaded when it is first asked for: most commands do without."""
    if name in ("Classifier", "Predictions", "load"):
        from tideline.learning import prediction as module
    elif name == "Site":
        from tideline.learning.sites import site as module  # type: ignore[no-redef]
    elif name in ("Metric", "Result", "SiteScore"):
        from tideline.python import result as module  # type: ignore[no-redef]
    elif name == "Run":
        from tideline.python import run as module  # type: ignore[no-redef]
    elif name in ("Server", "connect"):
        from tideline.python import server as module  # type: ignore[no-redef]
    elif name == "simulate":
        from tideline.python import simulating as module  # type: ignore[no-redef]
    elif name == "errors":
        from tideline.core import errors

        return errors
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
