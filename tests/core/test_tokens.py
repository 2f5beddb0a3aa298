"""Tokens and what is signed: the forms that both ends must agree on, byte for byte."""

from __future__ import annotations

import base64

import pytest

from tideline.core.errors import ConfigRefused
from tideline.core.signing import call_bytes, fingerprint, rotation_bytes
from tideline.core.tokens import PREFIX, Token, Trust, read_token, secret_of, split_address

SECRET = base64.urlsafe_b64encode(bytes(range(200, 224))).decode()
TOKENS = [
    Token(SECRET),
    Token(SECRET, ("127.0.0.1:7800",)),
    Token(SECRET, ("a.example:7800", "[::1]:1"), Trust.PINNED, bytes(range(32))),
    Token(SECRET, ("a.example:7800",), Trust.SYSTEM),
]


@pytest.mark.parametrize("token", TOKENS, ids=lambda token: token.trust.name + str(len(token.addresses)))
def test_a_token_comes_back(token: Token) -> None:
    """Its text holds the secret as it is, so that it can be cut out of an answer that is kept."""
    assert read_token(token.text) == token
    assert token.text.startswith(PREFIX) and SECRET in token.text and "=" not in token.text
    assert token.text.replace(SECRET, "\x1a").replace("\x1a", SECRET) == token.text
    assert secret_of(token.text) == SECRET


def test_an_old_token_is_a_secret() -> None:
    """A text without the prefix is all secret."""
    assert read_token(SECRET) == Token(SECRET) and secret_of(SECRET) == SECRET and read_token("") == Token("")


def test_a_token_that_is_not_whole() -> None:
    """Every cut and every changed character is found out, and the refusal says what to do."""
    text = TOKENS[2].text
    changed = [text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :] for at in range(len(PREFIX), len(text) - 1)]
    for wrong in [*(text[:at] for at in range(len(PREFIX), len(text))), *changed, f"{PREFIX}é", f"{PREFIX}A", text + "AAAA"]:
        with pytest.raises(ConfigRefused, match="not whole") as refusal:
            read_token(wrong)
        assert "tideline invite" in refusal.value.todo and refusal.value.context["path"] == "token"


@pytest.mark.parametrize(
    "wrong", ["", "host", "host:", ":1", "host:x", "host:0", "host:65536", "a,b:1", "a b:1", "u@h:1", "h/p:1", "h:²"]
)
def test_what_is_no_address(wrong: str) -> None:
    """An address is one host and one port."""
    with pytest.raises(ConfigRefused, match="is no address"):
        split_address(wrong)


def test_addresses() -> None:
    """Brackets belong to an address as it is written."""
    assert [split_address(each) for each in ("a.example:7800", "[::1]:80")] == [("a.example", "7800"), ("::1", "80")]


def test_what_is_signed() -> None:
    """Recorded: who changes these bytes locks every agent out that was installed before."""
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert call_bytes("/s/Beat", "ann", 1234, b"") == f"tideline call 2\n/s/Beat\nann\n1234\n{empty}".encode()
    assert call_bytes("/s/Beat", "ann", 1234, b"", "7.ab12cd34").endswith(f"\n{empty}\n7.ab12cd34".encode())
    assert rotation_bytes("ann", b"\x01\x02", b"\xff") == b"tideline rotation 2\nann\n0102\nff"
    assert fingerprint(bytes(32), bytes(32)) == "f5a5 fd42 d16a 2030 2798 ef6e d309 979b"
