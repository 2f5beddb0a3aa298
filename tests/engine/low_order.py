"""Public X25519 keys with which every secret is the same, in each of their encodings: RFC 7748, section 6.1."""

from __future__ import annotations

P = 2**255 - 19
EIGHTH = (
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
)


def encoded(number: int) -> str:
    """A coordinate in hexadecimal."""
    return number.to_bytes(32, "little").hex()


LOW_ORDER = (*EIGHTH, *map(encoded, (0, 1, P - 1, P, P + 1)), *map(encoded, (1 << 255, (1 << 255) + 1)))
