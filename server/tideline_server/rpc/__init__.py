"""The agents' door: gRPC in, agent service and run service behind. It translates and holds no logic."""

from tideline_server.rpc.server import Tls, authority_of, not_after, open_door, read_tls
from tideline_server.rpc.servicer import Door
from tideline_server.rpc.wire import SERVICE

__all__ = ["SERVICE", "Door", "Tls", "authority_of", "not_after", "open_door", "read_tls"]
