"""Thousands of pieces looked for in megabytes at once."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

HEAD = 8  # bytes by which a piece is told from most others


def among(pieces: Iterable[bytes], passed: bytes) -> set[bytes]:
    """Those of the pieces that occur in the bytes, at whatever place."""
    wanted = set(pieces)
    long = [piece for piece in wanted if len(piece) >= HEAD]
    heads = np.unique(np.array([int.from_bytes(piece[:HEAD], "little") for piece in long], np.dtype("<u8")))
    met: set[int] = set()
    for first in range(HEAD if len(heads) else 0):  # words that begin at every place
        words = np.frombuffer(passed, np.dtype("<u8"), max(len(passed) - first, 0) // HEAD, min(first, len(passed)))
        place = np.searchsorted(heads, words).clip(max=len(heads) - 1)
        met.update(words[heads[place] == words].tolist())
    maybe = [piece for piece in wanted if len(piece) < HEAD or int.from_bytes(piece[:HEAD], "little") in met]
    return {piece for piece in maybe if piece in passed}
