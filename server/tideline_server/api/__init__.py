"""The people's door: HTTP and JSON in front of the office. Routers translate and call; they hold no logic.

app         create_app: routers, handlers and middleware put together
services    what the shell hands in
doors       middleware: unexpected errors, the key, the size and the strictness of bodies
once        middleware: a call with a key is done once
answers     every error in one shape
strict      JSON without its traps        schema   settings dataclasses as JSON schema
models      what is answered, for people and for generated clients
runs, events, files, algorithms, clients, health   the endpoints
"""

from __future__ import annotations

from tideline_server.api.app import create_app
from tideline_server.api.services import DEFAULTS, ApiSettings, Services

__all__ = ["DEFAULTS", "ApiSettings", "Services", "create_app"]
