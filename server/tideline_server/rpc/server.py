"""The gRPC servers of an address, with what agents behind proxies and narrow lines need of it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

import grpc
import grpc.aio

from tideline_server.rpc.servicer import Servicer
from tideline_server.tls import Certificate, Tls

# Of any message. The largest call and the largest chunk of a push have 1 MiB, so that `wire` can say of what is more what it is.
MAX_MESSAGE = 5 << 18
MAX_STREAMS = 32  # of one connection

# A server takes up its next call only when its event loop has heard of the last, and must have the interpreter twice for that:
# where threads are busy, calls stand before an idle loop for seconds. The kernel spreads connections over several servers.
LISTENERS = 8 if hasattr(socket, "SO_REUSEPORT") else 1

# Keepalive as agents need it behind proxies; gRPC's defaults end a quiet stream.
# A small fixed window a stream, widened to a chunk when one is awaited: left to itself, gRPC buffers tens of MB for each of
# many agents that push at once. A chunk of 1 MiB in each round trip is 20 MB/s over a line of 50 ms.
OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.so_reuseport", int(LISTENERS > 1)),
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_concurrent_streams", MAX_STREAMS),
    ("grpc.max_metadata_size", 8 << 10),
    ("grpc.absolute_max_metadata_size", 16 << 10),
    # Nothing is unpacked here: a compressed message is refused as it is.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.per_message_decompression", 0),
    # Who connects and says nothing, who has no call for long, and who has vanished.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.http2.settings_timeout", 10_000),
    ("grpc.max_connection_idle_ms", 600_000),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 1 << 17),
    ("grpc.experimental.tcp_max_read_chunk_size", 1 << 18),
)


class Listeners:
    """Servers of one servicer, at one address."""

    def __init__(self, servers: list[Any]) -> None:
        self._servers = servers

    async def stop(self, grace: float | None) -> None:
        """Take no more calls; those under way have `grace` seconds."""
        await asyncio.gather(*(server.stop(grace) for server in self._servers))


async def open_servers(
    servicer: Servicer, address: str, certificate: Certificate | None, connections: int = 1 << 16
) -> Listeners:
    """Servers at an address, started; over TLS where there is a certificate. connections: of all of them together.

    They share their port, and would share it with another process of this kind: the caller sees that it is free.
    """
    # The kernel spreads connections over them by chance: one may have twice its part.
    options = (*OPTIONS, ("grpc.max_allowed_incoming_connections", max(2 * connections // LISTENERS, 1)))
    servers = [server_at(servicer, address, certificate, options) for _ in range(LISTENERS)]
    await asyncio.gather(*(server.start() for server in servers))
    return Listeners(servers)


def server_at(servicer: Servicer, address: str, certificate: Certificate | None, options: Sequence[tuple[str, int]]) -> Any:
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers((servicer.handler(),))
    if certificate is None:
        server.add_insecure_port(address)
    else:
        server.add_secure_port(address, credentials_of(certificate))
    return server


def credentials_of(certificate: Certificate) -> grpc.ServerCredentials:
    """What each new connection is shown: the certificate that is in use then. Those that are open go on."""
    shown = certificate.current

    def others() -> grpc.ServerCertificateConfiguration | None:
        nonlocal shown
        if certificate.current is shown:
            return None
        shown = certificate.current
        return configured(shown)

    return grpc.dynamic_ssl_server_credentials(configured(shown), others, shown.clients is not None)


def configured(tls: Tls) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(tls.key, tls.chain)], tls.clients)
