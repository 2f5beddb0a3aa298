"""The people's door: HTTP and JSON in front of the run service. Routers translate and call; they hold no logic.

app         create_app: routers, handlers and middleware put together
services    what the shell hands in
handshake   middleware: which API both ends speak
doors       middleware: unexpected errors; the size, the time and the strictness of bodies
access      middleware: the key and its role            roles    the table of roles
once        middleware: a call with a key is done once
tags        middleware: answers that have not changed   ranges   bytes of a file
answers     every error in one shape                    pages    lists in pages
strict      JSON without its traps                      schema   settings dataclasses as JSON schema
models      what is answered, for people and for generated clients
described   the OpenAPI description                     connections   how many, and how slow
runs, events, files, links, algorithms, clients, keys, health  the endpoints
"""

from __future__ import annotations

from tideline_server.api.app import create_app
from tideline_server.api.services import DEFAULTS, ApiSettings, Services

__all__ = ["DEFAULTS", "ApiSettings", "Services", "create_app"]
