"""Keys of the noise of private runs, and what an order that is charged follows from. Nothing of the key leaves the site."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from tideline.core.asked.private import KEY_BYTES
from tideline.engine.model.brief import Brief
from tideline.engine.model.orders import Order, hashed
from tideline.engine.site.admission import intent_digest

PLACE_CHARS = 32  # of a digest, in a ledger


def noisy(brief: Brief) -> bool:
    """Whether steps of a run add noise."""
    return brief.privacy is not None or (brief.secure_sums is not None and brief.secure_sums.noise is not None)


def noise_key(secret: bytes, order: Order, brief: Brief) -> str:
    """The key of the noise of an order: the same whenever it comes again, and another for anything else that is asked."""
    place = hashed("noise", order.run, order.cursor, order.seed, intent_digest(brief), [digest for digest, _ in order.files])
    return hashlib.blake2b(place.encode(), key=secret, digest_size=KEY_BYTES).hexdigest()


@dataclass(frozen=True)
class Charged:
    """An order that was charged: the key of its noise, a digest of the data that it was priced for, and one of all of it."""

    noise: str = ""
    seen: str = ""
    place: str = ""


NOT_CHARGED = Charged()


def charged_with(key: str, seen: str) -> Charged:
    """What follows from the key of an order's noise and the data. The place tells nothing of the key."""
    noise = hashlib.blake2b(seen.encode(), key=bytes.fromhex(key), digest_size=KEY_BYTES).hexdigest()
    return Charged(noise, seen, hashed("place", noise)[-PLACE_CHARS:])
