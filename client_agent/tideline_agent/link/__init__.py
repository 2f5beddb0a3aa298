"""The agent's line to its coordinators. Nothing else in the agent knows gRPC."""

from tideline_agent.link.grpc_link import GrpcLink, NotSpoken
from tideline_agent.link.lines import Endpoints
from tideline_agent.link.tls import Shown, authority, check_certificate, vouches
from tideline_agent.link.tls import chain as shown_by
from tideline_protos.v1.federation_pb2 import EnrolReply

__all__ = ["Endpoints", "EnrolReply", "GrpcLink", "NotSpoken", "Shown", "authority", "check_certificate", "shown_by", "vouches"]
