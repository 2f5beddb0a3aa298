"""Shares of a secret: enough make it, fewer nothing, wrong ones are refused."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.budgets import examples
from tideline.secure.errors import SharesRefused
from tideline.secure.masks import drawing
from tideline.secure.shamir import PRIME, SHARE_BYTES, Share, between, combine, split, value_at

SECRET = bytes(range(32))
SECRETS = st.one_of(st.binary(min_size=32, max_size=32), st.sampled_from([bytes(32), b"\xff" * 32]))


def is_prime(n: int) -> bool:
    """By Miller and Rabin, with 64 bases: a composite passes with 2^-128."""
    odd = n - 1
    twos = (odd & -odd).bit_length() - 1
    odd >>= twos
    rng = Random(0)
    for _ in range(64):
        x = pow(rng.randrange(2, n - 1), odd, n)
        if x in (1, n - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True


def test_the_field_is_one() -> None:
    """The modulus is prime, the first above 2^256."""
    assert is_prime(PRIME) and not any(is_prime(n) for n in range(2**256 + 1, PRIME, 2))


def test_golden() -> None:
    """Shares of a fixed polynomial."""
    shares = split(SECRET, 2, [1, 2, 5], drawing(bytes(32)))
    assert [share.value.hex() for share in shares] == [
        "0053108cfecb4a3cc0b16cbefcd0d8809af4fc065c2495f0cb1623d610dbc6fe98",
        "00a62017fa928f737a5ad073ee95a3f326d9e6faa53516cb7f142e92069b70df11",
        "009f4eb8ede85f17a756fb92c3e4064aca88a7d78066995b9b0e4ec5e7da6e7f53",
    ]
    assert combine(shares, 2) == SECRET


def test_by_hand() -> None:
    """7 + 2x + 3x^2 at three places."""
    assert [value_at([3, 2, 7], x) for x in (1, 2, 3)] == [12, 23, 40]
    assert between((1, 2, 3), [12, 23, 40], 0) == 7 and between((1, 2, 3), [12, 23, 40], 4) == 63
    assert between((1, 2, 3), [12, 23, 40], 2) == 23


@settings(max_examples=examples(100))
@given(SECRETS, st.integers(1, 9), st.integers(0, 6), st.randoms())
def test_any_enough_shares_make_it(secret: bytes, threshold: int, more: int, rng: Random) -> None:
    places = rng.sample(range(1, 3501), threshold + more)
    shares = [*split(secret, threshold, places)]
    rng.shuffle(shares)
    assert all(len(share.value) == SHARE_BYTES for share in shares)
    assert combine(shares[:threshold], threshold) == combine(shares, threshold) == secret


def test_every_six_of_eight_make_it_and_five_do_not() -> None:
    shares = split(SECRET, 6, range(1, 9))
    assert all(combine(six, 6) == SECRET for six in combinations(shares, 6))
    for five in combinations(shares, 5):
        with pytest.raises(SharesRefused, match=r"There are 5 shares of a secret that takes 6\. Ask more sites"):
            combine(five, 6)


@settings(max_examples=examples(100))
@given(SECRETS, SECRETS)
def test_fewer_shares_fit_every_secret(one: bytes, other: bytes) -> None:
    """Two shares of three: for any other secret there is a polynomial that has them, too."""
    shares = split(one, 3, [1, 2, 3])
    known = [int.from_bytes(share.value) for share in shares[:2]]
    third = between((0, 1, 2), [int.from_bytes(other), *known], 3)
    assert combine([*shares[:2], Share(3, third.to_bytes(SHARE_BYTES))], 3) == other


def test_two_splits_have_no_share_in_common() -> None:
    assert not set(split(SECRET, 3, [1, 2, 3])) & set(split(SECRET, 3, [1, 2, 3]))


GOOD = split(SECRET, 3, [1, 2, 3, 4], drawing(bytes(32)))
WRONG = Share(4, bytes(SHARE_BYTES))
BAD: dict[str, tuple[tuple[Share, ...], str]] = {
    "too few": (GOOD[:2], "There are 2 shares of a secret that takes 3"),
    "none": ((), "There are 0 shares"),
    "one twice": ((*GOOD[:3], GOOD[0]), "Two shares are of place 1"),
    "two of one place": ((*GOOD[:3], Share(1, GOOD[1].value)), "Two shares are of place 1"),
    "one of another secret": ((*GOOD[:3], WRONG), "The share at place 4 does not belong to the others, or one of them is wrong"),
    "at no place": ((*GOOD[:3], Share(0, GOOD[0].value)), "A share is of place 0. Places are whole numbers from 1"),
    "too short": ((*GOOD[:2], Share(3, GOOD[2].value[1:])), "The share at place 3 has 32 bytes, or is no number of the field"),
    "beyond the field": ((*GOOD[:2], Share(3, PRIME.to_bytes(SHARE_BYTES))), "is no number of the field"),
    "of no secret": (tuple(Share(at, (2**256).to_bytes(SHARE_BYTES)) for at in (1, 2, 3)), "make no secret of 32 bytes"),
}


@pytest.mark.parametrize("what", BAD)
def test_shares_are_refused(what: str) -> None:
    shares, words = BAD[what]
    with pytest.raises(SharesRefused, match=words):
        combine(shares, 3)


@pytest.mark.parametrize(
    ("secret", "threshold", "places", "words"),
    [
        (b"short", 2, [1, 2], "A secret has 5 bytes. Give 32"),
        (SECRET, 3, [1, 2], "There are 2 shares of a secret that takes 3"),
        (SECRET, 0, [1, 2], "takes 0"),
        (SECRET, 2, [1, 1], "Two shares are of place 1"),
        (SECRET, 2, [0, 1], "of place 0"),
        (SECRET, 2, [1, 1 << 17], "of place 131072"),
    ],
)
def test_splits_are_refused(secret: bytes, threshold: int, places: list[int], words: str) -> None:
    with pytest.raises(SharesRefused, match=words):
        split(secret, threshold, places)
