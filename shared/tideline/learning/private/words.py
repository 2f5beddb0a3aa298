"""What fields of replies are made of in runs that protect rows, in words of the contract."""

from __future__ import annotations

TRAINED = "from clipped gradients with noise"
NUMBER = "the public number that the run names"
UNREAD = "a public number, of no row"
SUMMED = "from sums over rows of bounded length, with noise"
