"""The gRPC port for agents, in front of the agent service and the run service. It translates and holds no logic."""

from tideline_server.rpc.callers import verified
from tideline_server.rpc.server import Tls, authority_of, not_after, open_servers, read_tls
from tideline_server.rpc.servicer import Servicer
from tideline_server.rpc.threshold import Connections
from tideline_server.rpc.wire import SERVICE

__all__ = ["SERVICE", "Connections", "Servicer", "Tls", "authority_of", "not_after", "open_servers", "read_tls", "verified"]
