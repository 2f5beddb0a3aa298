"""The bulk lane of a coordinator, built from its settings."""

from __future__ import annotations

import socket
import ssl

from tideline_server.bulk.listener import Listener
from tideline_server.bulk.tickets import Lane, Tickets
from tideline_server.connections import Warden, peer_of, share_of
from tideline_server.rpc import Servicer, verified
from tideline_server.settings import CoordinatorSettings
from tideline_server.tls import Certificate, context_of

PART, MOST = 0.1, 256  # of the descriptors; connections, however many there are


def lane_of(given: tuple[str, int] | None, bulk: socket.socket | None) -> Lane | None:
    """What agents are told of the lane. given: host and port of the settings, if any; bulk: the bound socket."""
    if given is None or bulk is None:
        return None
    return Lane(Tickets(verified), f"{given[0]}:{bulk.getsockname()[1]}")


def listener_of(
    settings: CoordinatorSettings, servicer: Servicer, warden: Warden, port: int, certificate: Certificate | None
) -> Listener:
    """The lane's port. Its connections are looked after as those of the other ports."""
    assert servicer.lane is not None, "a listener is for a lane"
    warden.watch(port, share_of(settings.grpc_connections, PART, MOST))
    return Listener(
        tickets=servicer.lane.tickets,
        agent_service=servicer.agent_service,
        still=servicer.callers.still_here,
        listening=lambda: servicer.listening,
        tls=tls_of(certificate),
        certified=settings.tls_client_ca is not None,
        proven=lambda peer: warden.proven(port, peer_of(*peer[:2])),
    )


def tls_of(certificate: Certificate | None) -> ssl.SSLContext | None:
    """TLS of the lane, which asks for agents' certificates where the gRPC port does. Raises ConfigRefused."""
    if certificate is None:
        return None
    wanted = ssl.CERT_NONE if certificate.current.clients is None else ssl.CERT_REQUIRED
    return context_of(certificate.current, wanted)
