"""Certificates: an authority on P-256 for ten years, and certificates that it signs for 397 days."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tideline.client.logins import write_private
from tideline.core.errors import ConfigRefused, Refused
from tideline.engine.coordinator.enrolment import check_client_name

CA_DAYS, LEAF_DAYS = 3650, 397
EARLY = timedelta(hours=1)  # clocks differ
MARK = "Tideline development authority"  # the organisation in what we made
UNCHANGED = "Choose another --out; nothing was changed"
Key = ec.EllipticCurvePrivateKey


def issue_coordinator(folder: Path, hosts: Sequence[str]) -> dict[str, str]:
    """The authority, made if it is missing, and a new certificate of the coordinator. Raises Refused, ConfigRefused."""
    names = [subject_alternative(host) for host in hosts]
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return leaf(folder, "coordinator", names, authority(folder), ExtendedKeyUsageOID.SERVER_AUTH)


def issue_client(folder: Path, name: str) -> dict[str, str]:
    """An agent's certificate by the folder's authority; the files. Raises Refused where there is none, ConfigRefused."""
    check_client_name(name, empty=False)
    if name in ("ca", "coordinator"):
        raise ConfigRefused(f"{name!r} names another file of the folder", "Choose another name for the client", path="name")
    if not (folder / "ca.pem").exists():
        raise Refused(f"There is no authority in {folder}", f"Make one: tideline tls init --out {folder} --host NAME")
    return leaf(folder, name, [x509.DNSName(name)], authority(folder), ExtendedKeyUsageOID.CLIENT_AUTH)


def authority(folder: Path) -> tuple[x509.Certificate, Key]:
    """The folder's authority, made if neither of its files is there. Raises Refused for one that is not ours or not whole."""
    cert_path, key_path = folder / "ca.pem", folder / "ca.key"
    if not cert_path.exists() and not key_path.exists():
        return new_authority(folder)
    foreign = Refused(f"{cert_path} and {key_path} are no authority that `tideline tls` made", UNCHANGED)
    try:
        cert = x509.load_pem_x509_certificate(cert_path.read_bytes())
        key = load_pem_private_key(key_path.read_bytes(), None)
    except (ValueError, TypeError, FileNotFoundError):
        raise foreign from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != cert.public_key() or not ours(cert):
        raise foreign
    if cert.not_valid_after_utc < datetime.now(UTC) + timedelta(days=LEAF_DAYS):
        raise Refused(f"The authority in {folder} ends on {cert.not_valid_after_utc:%Y-%m-%d}", "Begin a new one: another --out")
    return cert, key


def new_authority(folder: Path) -> tuple[x509.Certificate, Key]:
    """An authority of its own name; the files are written, the key first. Raises Refused where others' files are."""
    if (folder / "coordinator.pem").exists() or (folder / "coordinator.key").exists():
        raise Refused(f"{folder} holds a coordinator's certificate of another authority", UNCHANGED)
    key = ec.generate_private_key(ec.SECP256R1())
    name = named(f"Tideline {os.urandom(4).hex()}")
    usage = x509.KeyUsage(*(False,) * 5, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False)
    made = begun(name, name, key, CA_DAYS).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    cert = made.add_extension(usage, critical=True).sign(key, SHA256())
    write_private(folder / "ca.key", private(key))
    write_private(folder / "ca.pem", cert.public_bytes(Encoding.PEM).decode(), 0o644)
    return cert, key


def leaf(
    folder: Path, name: str, names: list[x509.GeneralName], by: tuple[x509.Certificate, Key], usage: x509.ObjectIdentifier
) -> dict[str, str]:
    """A certificate and its key, the authority's behind it. Raises Refused where the file is not one that the authority made."""
    cert_path, key_path = folder / f"{name}.pem", folder / f"{name}.key"
    check_own(cert_path, key_path, by[0])
    key = ec.generate_private_key(ec.SECP256R1())
    signs = x509.KeyUsage(True, *(False,) * 6, encipher_only=False, decipher_only=False)
    made = (
        begun(named(name), by[0].subject, key, LEAF_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(signs, critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by[1].public_key()), critical=False)
        .sign(by[1], SHA256())
    )
    write_private(key_path, private(key))
    write_private(cert_path, (made.public_bytes(Encoding.PEM) + by[0].public_bytes(Encoding.PEM)).decode(), 0o644)
    return {"authority": str(folder / "ca.pem"), "certificate": str(cert_path), "key": str(key_path)}


def check_own(cert_path: Path, key_path: Path, by: x509.Certificate) -> None:
    """Raises Refused for files that would be lost and that the authority did not make."""
    if not cert_path.exists():
        if key_path.exists():
            raise Refused(f"{key_path} has no certificate beside it", "Choose another --out, or move the key away")
        return
    try:
        x509.load_pem_x509_certificates(cert_path.read_bytes())[0].verify_directly_issued_by(by)
    except (ValueError, TypeError, InvalidSignature):
        raise Refused(f"{cert_path} was not made by the authority beside it", UNCHANGED) from None


def begun(subject: x509.Name, issuer: x509.Name, key: Key, days: int) -> x509.CertificateBuilder:
    """What every certificate has."""
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLY)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, MARK), x509.NameAttribute(NameOID.COMMON_NAME, name)])


def ours(cert: x509.Certificate) -> bool:
    return [each.value for each in cert.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == [MARK]


def subject_alternative(host: str) -> x509.GeneralName:
    """A host as a certificate names it. Raises ConfigRefused."""
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    if not re.fullmatch(r"[A-Za-z0-9.*-]{1,253}", host):
        raise ConfigRefused(f"--host {host!r} is no name and no IP address", "Give it without a port or a scheme", path="host")
    return x509.DNSName(host)


def private(key: Key) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
