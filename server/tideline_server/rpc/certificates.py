"""Who vouches for the coordinator: what a token says of it."""

from __future__ import annotations

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

from tideline.core.errors import ConfigRefused


def authority_of(chain: bytes) -> bytes:
    """SHA-256 of the self-signed certificate in which a chain (PEM) ends; empty where a public authority vouches for it.

    Raises ConfigRefused for what holds no certificate.
    """
    try:
        last = x509.load_pem_x509_certificates(chain)[-1]
    except ValueError as cause:
        raise ConfigRefused(f"--tls-cert holds no certificate: {cause}", "Give a certificate chain as a PEM file") from None
    return last.fingerprint(SHA256()) if last.issuer == last.subject else b""
