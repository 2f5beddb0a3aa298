"""The agent's line to its coordinators. Nothing else in the agent knows gRPC."""

from tideline_agent.link.grpc_link import GrpcLink, NotSpoken
from tideline_agent.link.lines import Endpoints
from tideline_agent.link.tls import Shown, authority, check_certificate, end_at, end_of, vouches
from tideline_protos.v1.federation_pb2 import EnrolReply

__all__ = [
    "Endpoints",
    "EnrolReply",
    "GrpcLink",
    "NotSpoken",
    "Shown",
    "authority",
    "check_certificate",
    "end_at",
    "end_of",
    "vouches",
]
