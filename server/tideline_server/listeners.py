"""Where a coordinator listens, and what it says of that: to tokens, to agents, and to commands on the same machine."""

from __future__ import annotations

import json
import os
import socket
import time

from tideline.core.errors import Refused
from tideline.core.tokens import Trust
from tideline_server.api.services import Meeting
from tideline_server.rpc.announcing import Announcement
from tideline_server.settings import EVERYWHERE, CoordinatorSettings
from tideline_server.tls import Certificate, TlsFiles, authority_of, context_of, read_tls


class WallClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()


def certificate_of(settings: CoordinatorSettings) -> Certificate | None:
    """What all ports show, and take up anew while they serve; None without TLS. Raises ConfigRefused."""
    files = TlsFiles(settings.tls_cert, settings.tls_key, settings.tls_client_ca, settings.tls_ca)
    first = read_tls(files)
    if first is None:
        return None
    context_of(first)
    return Certificate(files, first, WallClock())


def bound(settings: CoordinatorSettings) -> tuple[int, socket.socket]:
    """A free or checked gRPC port, and the HTTP socket. Raises Refused for a port in use."""
    http = listen(settings.host, settings.http_port, "--http-port")
    with listen(settings.host, settings.grpc_port, "--grpc-port") as probe:
        return probe.getsockname()[1], http


def listen(host: str, port: int, option: str) -> socket.socket:
    """A bound socket. Raises Refused."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except OSError as cause:
        made.close()
        todo = f"Stop what uses it, or choose another {option} (0 takes a free one)"
        raise Refused(f"Cannot listen on {host}:{port}: {cause.strerror}", todo) from None
    return made


def meeting_of(settings: CoordinatorSettings, grpc_port: int, certificate: Certificate | None) -> Meeting:
    """What tokens say of where agents meet this coordinator, and how they know it. Raises ConfigRefused."""
    own = () if settings.host in EVERYWHERE else (f"{bracketed(settings.host)}:{grpc_port}",)
    if certificate is None:
        return Meeting(settings.advertised, own)
    authority = authority_of(certificate.current.chain)
    return Meeting(settings.advertised, own, Trust.PINNED if authority else Trust.SYSTEM, authority)


def announcement_of(settings: CoordinatorSettings, certificate: Certificate | None) -> Announcement:
    """What agents are to know of where coordinators are, and of who vouches for them."""
    authorities = b"" if certificate is None else certificate.current.authorities
    return Announcement(settings.advertised, authorities.decode("ascii", "ignore"))


def announce(settings: CoordinatorSettings, grpc_port: int, http_socket: socket.socket) -> dict[str, str | int]:
    """Write where the coordinator listens to its home, for the commands on this machine."""
    scheme = "http" if settings.tls_cert is None else "https"
    host = bracketed(settings.host)
    http = f"{scheme}://{host}:{http_socket.getsockname()[1]}"
    addresses: dict[str, str | int] = {"grpc": f"{host}:{grpc_port}", "http": http, "pid": os.getpid()}
    temporary = settings.folder / "coordinator.json.tmp"
    temporary.write_text(json.dumps(addresses))
    temporary.replace(settings.folder / "coordinator.json")
    return addresses


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
