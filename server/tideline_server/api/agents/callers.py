"""Who calls over HTTP: the same as a call of gRPC says, from headers and from the connection's certificate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope

from tideline_server.limits import OVER_HTTP

Peer = tuple[str, int]
METADATA = "tideline-"


class Certificates:
    """The names in the certificates that open connections have shown, by the connection's other end."""

    def __init__(self) -> None:
        self._names: dict[Peer, tuple[bytes, ...]] = {}

    def opened(self, peer: Peer | None, certificate: Mapping[str, Any] | None) -> None:
        """A connection, and what its other end has shown, as `ssl` has it."""
        if peer is not None and certificate:
            self._names[peer] = names_in(certificate)

    def closed(self, peer: Peer | None) -> None:
        if peer is not None:
            self._names.pop(peer, None)

    def names(self, peer: Peer | None) -> tuple[bytes, ...]:
        return self._names.get(peer, ()) if peer is not None else ()


def names_in(certificate: Mapping[str, Any]) -> tuple[bytes, ...]:
    """The common names of a certificate, and its alternative ones."""
    common = (value for group in certificate.get("subject", ()) for key, value in group if key == "commonName")
    return tuple(each.encode() for each in (*common, *(value for _, value in certificate.get("subjectAltName", ()))))


class HttpContext:
    """A request, as the handlers of calls ask about one."""

    def __init__(self, scope: Scope, certificates: Certificates) -> None:
        self._client: Peer | None = tuple(scope["client"]) if scope.get("client") else None
        self._headers, self._certificates = Headers(scope=scope), certificates

    def peer(self) -> str:
        """The other end as gRPC writes it. Behind a proxy that is believed, the end that it names.

        The mark at its end says that it is none of the gRPC port's connections.
        """
        if self._client is None:
            return "unix:"
        host, port = self._client
        return f"ipv6:[{host}]:{port}{OVER_HTTP}" if ":" in host else f"ipv4:{host}:{port}{OVER_HTTP}"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """What proves the call; of a header that comes twice nothing."""
        return tuple(self._proof())

    def _proof(self) -> Iterator[tuple[str, str]]:
        for name in {each for each in self._headers if each.startswith(METADATA)}:
            values = self._headers.getlist(name)
            if len(values) == 1:
                yield name, values[0]

    def auth_context(self) -> dict[str, tuple[bytes, ...]]:
        """The names of the certificate that the connection's other end has shown to us, if it has."""
        return {"x509_subject_alternative_name": self._certificates.names(self._client)}
