"""Files by their digests."""

from __future__ import annotations

from tideline.core.run import Digest

Files = tuple[tuple[Digest, int], ...]  # (digest, bytes), the root first


Arrivals = tuple[tuple[Digest, int, int], ...]  # (digest, bytes, offset from which it is sent)
