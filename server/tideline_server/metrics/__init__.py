"""Numbers for Prometheus. Nothing outside this package knows its library."""

from tideline_server.metrics.federation import Federation
from tideline_server.metrics.process import Metrics

__all__ = ["Federation", "Metrics"]
