"""Certificates that the command line makes."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.cli.world import assert_refuses, json_of, refusal_of, tide


def init(out: Path, *hosts: str) -> dict[str, str]:
    return dict(json_of(tide("tls", "init", "--out", out, *(word for host in hosts for word in ("--host", host)), "--json")))


def test_an_authority_and_its_leaf(tmp_path: Path) -> None:
    """The leaf names its hosts and is for servers; the authority vouches for it and for nothing below; keys are private."""
    files = init(tmp_path / "tls", "coordinator.example", "10.0.0.7", "::1")
    leaf, ca = x509.load_pem_x509_certificates(Path(files["certificate"]).read_bytes())
    assert ca == x509.load_pem_x509_certificate(Path(files["authority"]).read_bytes())
    leaf.verify_directly_issued_by(ca)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["coordinator.example"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.7", "::1"]
    usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    limits = ca.extensions.get_extension_for_class(x509.BasicConstraints)
    assert limits.critical and limits.value.ca and limits.value.path_length == 0
    assert 390 < (leaf.not_valid_after_utc - datetime.now(UTC)).days < 398 < (ca.not_valid_after_utc - datetime.now(UTC)).days
    for path in (tmp_path / "tls").glob("*.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    made = sorted(path.name for path in (tmp_path / "tls").iterdir())
    assert made == ["ca.key", "ca.pem", "coordinator.key", "coordinator.pem"]


def test_done_again_the_authority_stays(tmp_path: Path) -> None:
    first = init(tmp_path, "one.example")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert init(tmp_path, "two.example") == first
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {name for name in before if before[name] == after[name]} == {"ca.pem", "ca.key"}


def test_a_clients_certificate(tmp_path: Path) -> None:
    assert_refuses(tide("tls", "client", "hospital-a", "--out", tmp_path), "There is no authority", "tideline tls init")
    init(tmp_path, "one.example")
    for _ in range(2):
        assert tide("tls", "client", "hospital-a", "--out", tmp_path).exit_code == 0
    leaf, ca = x509.load_pem_x509_certificates((tmp_path / "hospital-a.pem").read_bytes())
    leaf.verify_directly_issued_by(ca)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["hospital-a"]
    for name in ("coordinator", "ca", "a/b", "../x"):
        assert tide("tls", "client", name, "--out", tmp_path).exit_code == 2


@pytest.mark.parametrize("taken", ["ca.pem", "ca.key", "coordinator.pem", "coordinator.key"])
def test_what_is_not_its_own_is_left_alone(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).write_text("-----BEGIN SOMETHING-----")
    assert "Choose another --out" in refusal_of(tide("tls", "init", "--out", tmp_path, "--host", "one.example"))
    assert (tmp_path / taken).read_text() == "-----BEGIN SOMETHING-----"


def test_another_authoritys_leaf_is_left_alone(tmp_path: Path) -> None:
    init(tmp_path / "one", "one.example")
    init(tmp_path / "two", "one.example")
    theirs = (tmp_path / "two" / "coordinator.pem").read_bytes()
    (tmp_path / "one" / "coordinator.pem").write_bytes(theirs)
    refused = tide("tls", "init", "--out", tmp_path / "one", "--host", "one.example")
    assert refused.exit_code == 2 and "was not made by the authority beside it" in refused.stderr
    assert (tmp_path / "one" / "coordinator.pem").read_bytes() == theirs


@pytest.mark.parametrize("host", ["", "https://one.example", "one.example:7800", "one example", "é.example"])
def test_what_is_no_host(tmp_path: Path, host: str) -> None:
    refused = tide("tls", "init", "--out", tmp_path / "tls", "--host", host)
    assert refused.exit_code == 2 and "without a port or a scheme" in refused.stderr and not (tmp_path / "tls").exists()
