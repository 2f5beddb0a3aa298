"""A look at a door's certificate, as the agent's line would judge it."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

from tideline.core.errors import IdentityRefused, Unreachable
from tideline.core.tokens import split_address
from tideline_agent.link.authority import SECONDS, chain, colons, one_of
from tideline_agent.link.lines import Doors


@dataclass(frozen=True)
class Shown:
    """A certificate: whose it is, until when it is good, the fingerprint at the end of its chain, what vouches for it (PEM)."""

    subject: str
    until: datetime
    authority: str
    roots: bytes | None


def look(address: str, doors: Doors, pinned: bytes, own: tuple[Path, Path] | None) -> Shown:
    """The certificate of a door. Raises IdentityRefused for one that is not to be trusted, Unreachable where TLS fails."""
    certificates = chain(address, doors.own)
    if not certificates:
        raise Unreachable(f"{address} shows no certificate", "See that the address is the agents' door")
    roots = one_of(certificates, pinned, address) if pinned else doors.roots
    first, last = certificates[0], certificates[-1]
    shown = Shown(name_of(first), first.not_valid_after_utc, colons(last.fingerprint(SHA256())), roots)
    verify(address, roots, own, shown)
    return shown


def verify(address: str, roots: bytes | None, own: tuple[Path, Path] | None, shown: Shown) -> None:
    """A handshake that believes only what the line would believe."""
    host, port = split_address(address)
    context = ssl.create_default_context(cadata=roots.decode() if roots else None)
    context.set_alpn_protocols(["h2"])
    if own is not None:
        context.load_cert_chain(*own)
    try:
        with socket.create_connection((host, int(port)), SECONDS) as line, context.wrap_socket(line, server_hostname=host):
            return
    except ssl.SSLCertVerificationError as error:
        raise IdentityRefused(
            f"The certificate of {shown.subject} at {address}, good until {shown.until:%Y-%m-%d}, is not to be trusted: "
            f"{error.verify_message}",
            remedy(error.verify_message, shown.until),
        ) from None
    except (OSError, ssl.SSLError) as cause:
        raise Unreachable(
            f"{address} ended the handshake: {cause}", "See whether it asks for a certificate (--tls-cert)"
        ) from None


def remedy(why: str, until: datetime) -> str:
    """What to do about a certificate that was refused."""
    if until < datetime.now(UTC) or "not yet valid" in why:
        return "See that this machine's clock is right; else renew the certificate: tideline tls init"
    if "mismatch" in why:
        return (
            "Call the coordinator by a name that its certificate has, or make one with this name: tideline tls init --host NAME"
        )
    return "Give --ca with the authority that vouches for it, or a new token: tideline invite"


def name_of(certificate: x509.Certificate) -> str:
    """Whose certificate it is, for people."""
    return certificate.subject.rfc4514_string() or f"serial number {certificate.serial_number:x}"
