"""Crowds at the doors of a coordinator: many connections, calls and bytes at once, of which each alone is harmless."""

from __future__ import annotations

from tests.acceptance.hostile.siege.at_grpc import GRPC
from tests.acceptance.hostile.siege.at_http import HTTP
from tests.acceptance.hostile.siege.at_tls import TLS
from tests.acceptance.hostile.siege.attack import Attack, Outcome, Target
from tests.acceptance.hostile.siege.signed import SIGNED

ATTACKS = {attack.name: attack for attack in (*GRPC, *HTTP, *SIGNED, *TLS)}
__all__ = ["ATTACKS", "Attack", "Outcome", "Target"]
