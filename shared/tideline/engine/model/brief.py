"""What an order says of its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tideline.core.privacy import Contract
from tideline.core.run import EMPTY, ClientId, Role, World
from tideline.core.settings import Plain
from tideline.engine.model.accounts import Peer


@dataclass(frozen=True)
class Brief:
    """A run as one of its sites knows it, in its role there.

    config    the method's settings, without those that stay at the coordinator
    keeps     whether sites keep a memory
    version   of the coordinator
    peers     the run's sites and their keys, where they seal for each other
    """

    method: str
    config: Mapping[str, Plain]
    world: World
    threads: int
    keeps: bool
    contract: Contract
    role: Role
    version: str = ""
    peers: Mapping[ClientId, Peer] = field(default_factory=lambda: EMPTY)
