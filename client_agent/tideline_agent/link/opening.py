"""A line to a coordinator, of the kind that its address says."""

from __future__ import annotations

from tideline.core.tokens import place_of
from tideline_agent.link.https_line import HttpsLine
from tideline_agent.link.lines import Endpoints, Line

AnyLine = Line | HttpsLine


def open_line(address: str, endpoints: Endpoints) -> AnyLine:
    """HOST:PORT is a gRPC port, https://HOST a port for HTTPS. Raises ConfigRefused."""
    return Line(address, endpoints) if place_of(address).scheme == "grpc" else HttpsLine(address, endpoints)
