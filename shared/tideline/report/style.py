"""What charts have in common: their width, the size of their words, the sites' colours."""

from __future__ import annotations

# Narrow, so that the words can still be read where the page is as wide as a hand.
INCHES, DPI, WORDS = 6.0, 200, 10.5
# Colours that differ in lightness too (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a6d00")
NAME = 22  # characters of a name beside bars and rows


def cut(name: str, most: int = NAME) -> str:
    """A name that is not longer than there is room for."""
    return name if len(name) <= most else f"{name[: most - 1]}…"
