"""Every random number comes from (run seed, purpose, cursor, client), never from the clock or a global generator."""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum

from tideline.core.run import ClientId, OrderId, RunId


class Purpose(StrEnum):
    """What a generator is for. Two purposes never share a stream."""

    BEGIN = "begin"
    PREPARE = "settle"
    ASK = "ask"
    STEP = "step"
    FOLD = "tell"


def seed_for(run_seed: int, purpose: Purpose, cursor: int, client: str = "") -> int:
    """A seed below 2**63. Attempts and run ids do not enter, so a repeated order gives the same bytes."""
    return int(hashed("seed", run_seed, purpose.value, cursor, client)[:16], 16) >> 1


def order_id(run: RunId, cursor: int, client: ClientId, attempt: int) -> OrderId:
    """The order's name: the same order, asked for again after a crash, has the same name."""
    return OrderId(hashed("order", run, cursor, client, attempt)[:32])


def hashed(*values: object) -> str:
    """SHA-256 of the values as canonical JSON, in hexadecimal."""
    return hashlib.sha256(json.dumps(values, separators=(",", ":"), ensure_ascii=True).encode()).hexdigest()
