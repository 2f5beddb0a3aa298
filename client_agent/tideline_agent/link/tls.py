"""Certificates as a coordinator shows them: the authority that a token names, and a check as gRPC would make it."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from OpenSSL import SSL

from tideline.core.errors import ConfigRefused, IdentityRefused, Unreachable
from tideline.core.tokens import Place, place_of
from tideline_agent.link.lines import Endpoints
from tideline_agent.link.proxies import dial, proxy_for

SECONDS = 10.0  # for a handshake


def authority(endpoints: Endpoints, fingerprint: bytes) -> bytes:
    """The authority's certificate (PEM), from the first that answers. Raises IdentityRefused for another, Unreachable."""
    *others, last = endpoints.addresses
    for address in others:
        with contextlib.suppress(Unreachable):
            return one_of(chain(address, endpoints), fingerprint, address)
    return one_of(chain(last, endpoints), fingerprint, last)


def one_of(shown: Sequence[x509.Certificate], fingerprint: bytes, address: str) -> bytes:
    """Of the certificates that are shown the one with this fingerprint (PEM). Raises IdentityRefused."""
    for each in shown:
        if each.fingerprint(SHA256()) == fingerprint:
            return each.public_bytes(Encoding.PEM)
    got = shown[-1].fingerprint(SHA256()).hex(":") if shown else "none"
    what = f"The coordinator at {address} shows a certificate of another authority: expected SHA256 {fingerprint.hex(':')}"
    todo = "See that the address is the coordinator's; if its certificate has changed, ask for a new token"
    raise IdentityRefused(f"{what}, got {got}", todo)


def chain(address: str, endpoints: Endpoints) -> list[x509.Certificate]:
    """The certificates that the server at an address shows. Nothing is believed of them yet, and nothing is sent."""
    place, own = place_of(address), endpoints.own
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.set_alpn_protos([protocol_at(place).encode()])
    if own is not None:
        context.use_certificate(x509.load_pem_x509_certificate(own[1]))
        context.use_privatekey(load_pem_private_key(own[0], None))  # type: ignore[arg-type]
    try:
        with dial(place.host, place.port, SECONDS, proxy_for(place, endpoints.proxy)) as line:
            line.setblocking(True)  # as OpenSSL wants it; the system ends a wait
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(SECONDS), 0))
            tls = SSL.Connection(context, line)
            if not is_ip(place.host):
                tls.set_tlsext_host_name(place.host.encode())
            tls.set_connect_state()
            tls.do_handshake()
            return list(tls.get_peer_cert_chain(as_cryptography=True) or ())
    except (OSError, SSL.Error) as cause:
        words = str(cause) or "the connection was closed"
        todo = "Check the address and that the coordinator runs"
        raise Unreachable(f"{address} does not answer with TLS: {words}", todo) from None


def end_of(pem: bytes) -> float:
    """When a certificate (PEM) ends, in seconds since the epoch."""
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()


def protocol_at(place: Place) -> str:
    """What is spoken there over TLS, as ALPN names it."""
    return "h2" if place.scheme == "grpc" else "http/1.1"


def end_at(address: str, endpoints: Endpoints) -> float | None:
    """When the certificate that the server at an address shows ends, whether it is to be trusted or not. Raises Unreachable."""
    shown = chain(address, endpoints)
    return shown[0].not_valid_after_utc.timestamp() if shown else None


def is_ip(host: str) -> bool:
    """Whether a host is an address by itself: those have no name to ask for."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def vouches(pem: bytes, fingerprint: bytes) -> bool:
    """Whether a certificate of this fingerprint is among those of a file (PEM)."""
    try:
        return fingerprint in fingerprints(pem)
    except ValueError:
        return False


def fingerprints(pem: bytes) -> frozenset[bytes]:
    """SHA-256 of each certificate of a file (PEM). Raises ValueError where there is none."""
    return frozenset(each.fingerprint(SHA256()) for each in x509.load_pem_x509_certificates(pem))


def check_whole(pem: bytes, path: Path) -> list[x509.Certificate]:
    """The certificates of a file. Raises ConfigRefused where it has none, or one that is not whole."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise ConfigRefused(f"{path} holds no certificate that is whole", "Write it again") from None


def check_own(chain: bytes, key: bytes, path: Path, now: float) -> None:
    """Raises ConfigRefused for an agent's certificate (PEM) that it cannot show with this key. now: seconds since the epoch."""
    own = check_whole(chain, path)[0]
    try:
        fits = load_pem_private_key(key, None).public_key() == own.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        fits = False
    if not fits:
        raise ConfigRefused(f"--tls-key is not the key of {path}", "Write both files, those that belong together")
    if not own.not_valid_before_utc <= datetime.fromtimestamp(now, UTC) < own.not_valid_after_utc:
        days = f"{own.not_valid_before_utc:%Y-%m-%d} to {own.not_valid_after_utc:%Y-%m-%d}"
        raise ConfigRefused(f"The certificate in {path} is good from {days}, and not now", "Make a new one")


@dataclass(frozen=True)
class Shown:
    """A certificate: whose it is, until when it is good, the fingerprint at the end of its chain, what vouches for it (PEM)."""

    subject: str
    until: datetime
    authority: str
    roots: bytes | None


def check_certificate(address: str, endpoints: Endpoints, pinned: bytes, own: tuple[Path, Path] | None) -> Shown:
    """The certificate of a server. Raises IdentityRefused for one that is not to be trusted, Unreachable where TLS fails."""
    certificates = chain(address, endpoints)
    if not certificates:
        raise Unreachable(f"{address} shows no certificate", "See that the address is the gRPC port")
    roots = one_of(certificates, pinned, address) if pinned else endpoints.roots
    first, last = certificates[0], certificates[-1]
    shown = Shown(name_of(first), first.not_valid_after_utc, last.fingerprint(SHA256()).hex(":"), roots)
    verify(address, replace(endpoints, roots=roots), own, shown)
    return shown


def verify(address: str, endpoints: Endpoints, own: tuple[Path, Path] | None, shown: Shown) -> None:
    """A handshake that believes only what the line would believe."""
    place, roots = place_of(address), endpoints.roots
    context = ssl.create_default_context(cadata=roots.decode() if roots else None)
    context.set_alpn_protocols([protocol_at(place)])
    if own is not None:
        context.load_cert_chain(*own)
    try:
        with (
            dial(place.host, place.port, SECONDS, proxy_for(place, endpoints.proxy)) as line,
            context.wrap_socket(line, server_hostname=place.host),
        ):
            return
    except ssl.SSLCertVerificationError as error:
        whose = f"The certificate of {shown.subject} at {address}, good until {shown.until:%Y-%m-%d}"
        what = f"{whose}, is not to be trusted: {error.verify_message}"
        raise IdentityRefused(what, remedy(error.verify_message, shown.until)) from None
    except (OSError, ssl.SSLError) as cause:
        todo = "See whether it asks for a certificate (--tls-cert)"
        raise Unreachable(f"{address} ended the handshake: {cause}", todo) from None


def remedy(why: str, until: datetime) -> str:
    if until < datetime.now(UTC) or "not yet valid" in why:
        return "See that this machine's clock is right; else renew the certificate: tideline tls init"
    if "mismatch" in why:
        other = "make one with this name: tideline tls init --host NAME"
        return f"Call the coordinator by a name that its certificate has, or {other}"
    return "Give --ca with the authority that signed it, or a new token: tideline invite"


def name_of(certificate: x509.Certificate) -> str:
    return certificate.subject.rfc4514_string() or f"serial number {certificate.serial_number:x}"
