"""The agent's line to its coordinators. Nothing else in the agent knows gRPC."""

from tideline_agent.link.grpc_link import GrpcLink

__all__ = ["GrpcLink"]
