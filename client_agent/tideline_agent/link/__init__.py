"""The agent's line to its coordinators. Nothing else in the agent knows gRPC or HTTPS."""

from tideline_agent.link.grpc_link import GrpcLink
from tideline_agent.link.lines import Endpoints
from tideline_agent.link.outcomes import NotSpoken
from tideline_agent.link.proxies import Proxy, dial, proxy_for
from tideline_agent.link.tls import (
    Shown,
    authority,
    check_certificate,
    check_own,
    check_whole,
    end_at,
    end_of,
    fingerprints,
    vouches,
)
from tideline_protos.v1.federation_pb2 import Announcement, EnrolReply

__all__ = [
    "Announcement",
    "Endpoints",
    "EnrolReply",
    "GrpcLink",
    "NotSpoken",
    "Proxy",
    "Shown",
    "authority",
    "check_certificate",
    "check_own",
    "check_whole",
    "dial",
    "end_at",
    "end_of",
    "fingerprints",
    "proxy_for",
    "vouches",
]
