"""Tokens and what is signed: the forms that both ends must agree on, byte for byte."""

from __future__ import annotations

import base64
import math

import pytest

from tideline.core.errors import ConfigRefused
from tideline.core.signing import call_bytes, fingerprint, rotation_bytes
from tideline.core.tokens import PREFIX, Token, Trust, read_token, secret_of, split_address
from tideline.engine.model.access.spending import (
    DAY_SECONDS,
    Spending,
    Spent,
    bounded,
    day_of,
    month,
    month_of,
    spending_of,
    summed,
)

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


# Bounds of what a site says that a step took, and the months in which it is counted.


@pytest.mark.parametrize(
    ("said", "gpu", "cpu"),
    [
        (Spent(8.0, 30.0, 1, 4), 8.0, 30.0),
        (Spent(20.0, 50.0, 1, 4), 10.0, 40.0),  # no longer than the order was open, on each of them
        (Spent(20.0, 5.0, 0, 0), 0.0, 0.0),  # of nothing
        (Spent(math.nan, math.nan, 1, 1), 0.0, 0.0),
        (Spent(-1.0, -math.inf, 1, 1), 0.0, 0.0),
        (Spent(math.inf, 1e308, 2**32 - 1, 2**32 - 1), 640.0, 10240.0),  # on as many as one step can have
    ],
)
def test_bounds(said: Spent, gpu: float, cpu: float) -> None:
    """Of an order that was open for ten seconds."""
    found = bounded(said, 10.0)
    assert (found.gpu, found.cpu) == (gpu, cpu)


def test_nothing_takes_no_time() -> None:
    """Where the coordinator's clock went back, an order was open for none."""
    assert bounded(Spent(1.0, 1.0, 1, 1), 0.0) == Spent(0.0, 0.0, 1, 1)


def test_sums() -> None:
    """Replies that say nothing are counted apart."""
    assert summed(map(spending_of, (Spent(1.0, 2.0), None, Spent(0.5)))) == Spending(1.5, 2.0, 2, 1)
    assert (Spending(3600.0, 1800.0).gpu_hours, Spending(3600.0, 1800.0).cpu_hours) == (1.0, 0.5)


@pytest.mark.parametrize(("at", "name", "days"), [(0.0, "1970-01", 31), (59 * DAY_SECONDS - 1, "1970-02", 28)])
def test_months(at: float, name: str, days: int) -> None:
    """By their calendar, in UTC."""
    found = month_of(at)
    assert (found.name, found.end - found.first) == (name, days) and found.first <= day_of(at) < found.end


def test_a_year_ends() -> None:
    """December is followed by January."""
    assert month(1999, 12).end == month(2000, 1).first and month(1999, 12).over == "2000-01-01 00:00 UTC"
    with pytest.raises(ValueError, match="month"):
        month(1999, 13)
