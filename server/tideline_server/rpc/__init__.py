"""The calls of agents, in front of the agent service and the run service, and the gRPC port. It translates and holds no logic."""

from tideline_server.rpc.callers import verified
from tideline_server.rpc.server import MAX_MESSAGE, open_servers
from tideline_server.rpc.servicer import Servicer
from tideline_server.rpc.threshold import Connections
from tideline_server.rpc.wire import MAX_KIND, MAX_WORDS, SERVICE, serialize

__all__ = [
    "MAX_KIND",
    "MAX_MESSAGE",
    "MAX_WORDS",
    "SERVICE",
    "Connections",
    "Servicer",
    "open_servers",
    "serialize",
    "verified",
]
