"""Calls of agents over HTTP: what the gRPC port answers, for agents that reach no other port."""

from tideline_server.api.agents.callers import Certificates
from tideline_server.api.agents.port import PREFIX, AgentsOverHttp

__all__ = ["PREFIX", "AgentsOverHttp", "Certificates"]
