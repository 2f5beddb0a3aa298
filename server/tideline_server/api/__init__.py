"""The HTTP API in front of the run service. Routers translate and call; they hold no logic."""

from __future__ import annotations

from tideline_server.api.app import create_app
from tideline_server.api.services import DEFAULTS, ApiSettings, Services

__all__ = ["DEFAULTS", "ApiSettings", "Services", "create_app"]
