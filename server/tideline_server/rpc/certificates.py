"""Who vouches for the coordinator, which a token says, and for how long."""

from __future__ import annotations

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

from tideline.core.errors import ConfigRefused


def authority_of(chain: bytes) -> bytes:
    """SHA-256 of the self-signed certificate in which a chain (PEM) ends; empty where a public authority vouches for it.

    Raises ConfigRefused for what holds no certificate.
    """
    last = certificates(chain)[-1]
    return last.fingerprint(SHA256()) if last.issuer == last.subject else b""


def not_after(chain: bytes) -> float:
    """When the first certificate of a chain (PEM) ends, in seconds since the epoch. Raises ConfigRefused."""
    return min(each.not_valid_after_utc for each in certificates(chain)).timestamp()


def certificates(chain: bytes) -> list[x509.Certificate]:
    """The certificates of a chain (PEM), the coordinator's own first. Raises ConfigRefused for what holds none."""
    try:
        return x509.load_pem_x509_certificates(chain)
    except ValueError as cause:
        raise ConfigRefused(f"--tls-cert holds no certificate: {cause}", "Give a certificate chain as a PEM file") from None
