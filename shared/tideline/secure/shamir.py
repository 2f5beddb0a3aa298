"""A secret in shares (Shamir 1979): any `threshold` of them make it again, and fewer tell nothing of it.

The secret is the value at 0 of a polynomial of degree threshold - 1 over the integers modulo 2^256 + 297, the smallest prime
above 2^256; a share is the value at its place, a whole number from 1. So every secret of 32 bytes fits, and a share has 33.
Coefficients are 48 random bytes modulo the prime: uniform but for 2^-127.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import prod

from tideline.secure.errors import SharesRefused

PRIME = 2**256 + 297
SECRET_BYTES, SHARE_BYTES, DRAWN_BYTES = 32, 33, 48
MOST_PLACES = 1 << 16
ASK = "Ask more sites, or leave out the one that sent it"


@dataclass(frozen=True)
class Share:
    """The polynomial's value at a place."""

    place: int
    value: bytes


def split(
    secret: bytes, threshold: int, places: Sequence[int], random: Callable[[int], bytes] = secrets.token_bytes
) -> tuple[Share, ...]:
    """A share of a secret for each place. random(n): n bytes that nobody can guess."""
    if len(secret) != SECRET_BYTES:
        raise SharesRefused(f"A secret has {len(secret)} bytes", f"Give {SECRET_BYTES}")
    check_places(places, threshold)
    drawn = [int.from_bytes(random(DRAWN_BYTES)) % PRIME for _ in range(threshold - 1)]
    polynomial = [*drawn, int.from_bytes(secret)]  # the highest power first
    return tuple(Share(x, value_at(polynomial, x).to_bytes(SHARE_BYTES)) for x in places)


def value_at(polynomial: Sequence[int], x: int) -> int:
    return reduce(lambda value, coefficient: (value * x + coefficient) % PRIME, polynomial, 0)


def combine(shares: Iterable[Share], threshold: int) -> bytes:
    """The secret. Raises SharesRefused for too few shares, two of one place, or such as do not belong to one secret."""
    given = sorted(shares, key=lambda share: share.place)
    check_places([share.place for share in given], threshold)
    values = [number(share) for share in given]
    places, known = tuple(share.place for share in given[:threshold]), values[:threshold]
    for share, value in zip(given[threshold:], values[threshold:], strict=True):
        if between(places, known, share.place) != value:
            raise SharesRefused(f"The share at place {share.place} does not belong to the others, or one of them is wrong", ASK)
    secret = between(places, known, 0)
    if secret >= 1 << (8 * SECRET_BYTES):
        raise SharesRefused(f"The shares at the places {list(places)} make no secret of {SECRET_BYTES} bytes", ASK)
    return secret.to_bytes(SECRET_BYTES)


def check_places(places: Sequence[int], threshold: int) -> None:
    if threshold < 1 or len(places) < threshold:
        raise SharesRefused(f"There are {len(places)} shares of a secret that takes {threshold}", "Ask more sites")
    if twice := {x for x in places if list(places).count(x) > 1} if len(set(places)) != len(places) else None:
        raise SharesRefused(f"Two shares are of place {min(twice)}", ASK)
    if odd := [x for x in places if not 0 < x <= MOST_PLACES]:
        raise SharesRefused(f"A share is of place {odd[0]}", f"Places are whole numbers from 1 to {MOST_PLACES}")


def number(share: Share) -> int:
    value = int.from_bytes(share.value)
    if len(share.value) != SHARE_BYTES or value >= PRIME:
        what = f"The share at place {share.place} has {len(share.value)} bytes, or is no number of the field"
        raise SharesRefused(what, ASK)
    return value


def between(places: tuple[int, ...], values: Sequence[int], x: int) -> int:
    """The value at x of the polynomial that has these values at these places (Lagrange)."""
    return sum(weight * value for weight, value in zip(weights(places, x), values, strict=True)) % PRIME


@lru_cache(1024)
def weights(places: tuple[int, ...], x: int) -> tuple[int, ...]:
    """Each place's share of the value at x: the product over the other places j of (x - j) / (place - j)."""

    if x in places:
        return tuple(int(place == x) for place in places)
    above = prod(x - place for place in places)
    below = [(x - place) * prod(place - other for other in places if other != place) for place in places]
    return tuple(above * pow(each, -1, PRIME) % PRIME for each in below)
