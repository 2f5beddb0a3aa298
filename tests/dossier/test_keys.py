"""The key that signs: made once, for its owner alone, whole or not at all; and files that are none."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tideline.core.errors import ConfigRefused
from tideline.dossier.signing import fingerprint_of, own_signer, private_pem, public_key, signer_in

PEM, PKCS8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8


def test_it_is_made_once(tmp_path: Path) -> None:
    """Whatever the umask says, its owner alone reads it; the next start has the same one."""
    before = os.umask(0)
    try:
        made = own_signer(tmp_path / "signing.key")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "signing.key").stat().st_mode) == 0o600
    assert own_signer(tmp_path / "signing.key").fingerprint == made.fingerprint
    assert [each.name for each in tmp_path.iterdir()] == ["signing.key"]
    assert fingerprint_of(public_key(made.pem)) == made.fingerprint and len(bytes.fromhex(made.public)) == 32


def test_half_a_key_of_a_killed_start_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "signing.key.tmp").write_bytes(b"-----BEGIN")
    own_signer(tmp_path / "signing.key")
    assert not (tmp_path / "signing.key.tmp").exists()


RSA = rsa.generate_private_key(65537, 2048).private_bytes(PEM, PKCS8, serialization.NoEncryption())
EC = ec.generate_private_key(ec.SECP256R1()).private_bytes(PEM, PKCS8, serialization.NoEncryption())
LOCKED = Ed25519PrivateKey.generate().private_bytes(PEM, PKCS8, serialization.BestAvailableEncryption(b"x"))
ODD = {"empty": b"", "text": b"hello", "rsa": RSA, "curve": EC, "locked": LOCKED, "binary": bytes(range(256))}


@pytest.mark.parametrize("name", ODD)
def test_files_that_are_no_key(tmp_path: Path, name: str) -> None:
    file = tmp_path / "signing.key"
    file.write_bytes(ODD[name])
    with pytest.raises(ConfigRefused, match="is no private Ed25519 key") as refused:
        own_signer(file)
    assert "backup" in refused.value.todo and file.read_bytes() == ODD[name]
    with pytest.raises(ConfigRefused, match="is no private Ed25519 key") as refused:
        signer_in(file)
    assert "openssl genpkey -algorithm ed25519" in refused.value.todo and refused.value.context["path"] == "signing_key"


def test_a_named_key_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigRefused, match="cannot be read: No such file"):
        signer_in(tmp_path / "none.key")


def test_a_key_that_openssl_made(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    (tmp_path / "k").write_bytes(private_pem(key))
    assert signer_in(tmp_path / "k").fingerprint == fingerprint_of(key.public_key())
