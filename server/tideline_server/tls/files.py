"""The files of a coordinator's certificate, and what has to be true of new ones before any port shows them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from tideline.core.errors import ConfigRefused
from tideline.core.tokens import MOST_AUTHORITIES, MOST_PEM


@dataclass(frozen=True)
class Tls:
    """Key and certificate chain (PEM) of all ports; clients: certificates of which one must have signed an agent's own.

    authorities: certificates (PEM) that agents are to trust; nothing where a public authority vouches for the chain.
    """

    key: bytes
    chain: bytes
    clients: bytes | None = None
    authorities: bytes = b""


@dataclass(frozen=True)
class TlsFiles:
    """Where they lie. authorities: those that agents are to trust; without it, the one at the end of the chain."""

    cert: Path | None = None
    key: Path | None = None
    clients: Path | None = None
    authorities: Path | None = None


def authority_of(chain: bytes) -> bytes:
    """SHA-256 of the self-signed certificate in which a chain (PEM) ends; empty where a public authority vouches for it.

    Raises ConfigRefused for what holds no certificate.
    """
    last = certificates(chain)[-1]
    return fingerprint_of(last) if last.issuer == last.subject else b""


def fingerprint_of(certificate: x509.Certificate) -> bytes:
    return certificate.fingerprint(SHA256())


def not_after(chain: bytes) -> float:
    """When the first certificate of a chain (PEM) ends, in seconds since the epoch. Raises ConfigRefused."""
    return min(each.not_valid_after_utc for each in certificates(chain)).timestamp()


def certificates(chain: bytes, option: str = "--tls-cert") -> list[x509.Certificate]:
    """The certificates of a file (PEM); of a chain the coordinator's own first. Raises ConfigRefused for what holds none."""
    try:
        return x509.load_pem_x509_certificates(chain)
    except ValueError as cause:
        raise ConfigRefused(f"{option} holds no certificate: {cause}", "Give a certificate chain as a PEM file") from None


def read_tls(files: TlsFiles) -> Tls | None:
    """What the files hold; None where there are none. Raises ConfigRefused."""
    if files.cert is None or files.key is None:
        return None
    chain = read(files.cert, "--tls-cert")
    own = certificates(chain)[-1].public_bytes(Encoding.PEM) if authority_of(chain) else b""
    given = None if files.authorities is None else read(files.authorities, "--tls-ca")
    made = Tls(
        key=read(files.key, "--tls-key"),
        chain=chain,
        clients=None if files.clients is None else read(files.clients, "--tls-client-ca"),
        authorities=own if given is None else given,
    )
    check_authorities(made)
    return made


def read(path: Path, option: str) -> bytes:
    try:
        found = path.read_bytes()
    except OSError as cause:
        raise ConfigRefused(f"{option} {path} cannot be read: {cause.strerror}", "Correct the path, or its permissions") from None
    if b"-----BEGIN " not in found:
        raise ConfigRefused(f"{option} {path} is no PEM file", "Give a file with -----BEGIN lines")
    return found


def known_by(tls: Tls) -> frozenset[bytes]:
    """The fingerprints of the authorities that agents are to trust; nothing where these are public ones."""
    return frozenset(map(fingerprint_of, certificates(tls.authorities, "--tls-ca"))) if tls.authorities else frozenset()


def check_authorities(tls: Tls) -> None:
    """Raises ConfigRefused for authorities with which agents could not know this coordinator."""
    if not tls.authorities:
        return
    found = certificates(tls.authorities, "--tls-ca")
    if len(found) > MOST_AUTHORITIES or len(tls.authorities) > MOST_PEM:
        raise ConfigRefused(f"--tls-ca has {len(found)} certificates", f"Name the {MOST_AUTHORITIES} at most that sign")
    authority = authority_of(tls.chain)
    if authority not in known_by(tls):
        ends = (
            "does not end with a certificate of its authority" if not authority else "is of an authority that is not in --tls-ca"
        )
        raise ConfigRefused(f"The chain of --tls-cert {ends}", "Write that certificate into both files")


def check_new(new: Tls, old: Tls, now: float) -> None:
    """Raises ConfigRefused for what is not to take the place of the old one, whoever knows it. now: seconds since the epoch."""
    chain = certificates(new.chain)
    check_key(new.key, chain[0])
    check_links(chain)
    for each in chain:
        check_times(each, datetime.fromtimestamp(now, UTC))
    if new.clients is not None:
        certificates(new.clients, "--tls-client-ca")
    if bool(new.authorities) != bool(old.authorities):
        which = "an authority of its own" if new.authorities else "a public authority"
        raise ConfigRefused(f"The new certificate is of {which}, and the old one is not", "Agents need new tokens: restart")


def check_key(key: bytes, own: x509.Certificate) -> None:
    try:
        fits = load_pem_private_key(key, None).public_key() == own.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigRefused("--tls-key holds no private key that can be read", "Give a PEM file without a password") from None
    if not fits:
        raise ConfigRefused("The key of --tls-key is not that of the certificate", "Write both files, those that belong together")


def check_links(chain: Sequence[x509.Certificate]) -> None:
    """Raises ConfigRefused where a certificate was not signed by the one behind it."""
    for each, by in itertools.pairwise(chain):
        try:
            each.verify_directly_issued_by(by)
        except (ValueError, TypeError, InvalidSignature):
            what = f"The chain of --tls-cert is broken: {each.subject.rfc4514_string()} is not signed by the one behind it"
            raise ConfigRefused(what, "Write the certificate first, and behind it who signed it") from None


def check_times(certificate: x509.Certificate, now: datetime) -> None:
    whose = certificate.subject.rfc4514_string()
    if certificate.not_valid_after_utc <= now:
        raise ConfigRefused(f"The certificate of {whose} ended on {certificate.not_valid_after_utc:%Y-%m-%d}", "Make a new one")
    if certificate.not_valid_before_utc > now:
        what = f"The certificate of {whose} is good from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on"
        raise ConfigRefused(what, "See that this machine's clock is right, or wait")
