"""Agents that enrol without a wire: each has keys that follow from its name."""

from __future__ import annotations

import hashlib

from tideline.engine.coordinator.enrolment import Applicant
from tideline.engine.coordinator.run_service import RunService
from tideline.engine.model.accounts import Client, Keys


def keys_of(name: str) -> Keys:
    """Public keys, the same for a name every time."""
    return Keys(*(hashlib.sha256(f"{what} {name}".encode()).hexdigest() for what in ("sign", "receive")))


def enrol(run_service: RunService, token: str, name: str, roles: tuple[str, ...], version: str = "1") -> Client:
    """Enrol an agent with a token, or come back."""
    return run_service.enrolment.admit(token, Applicant(name, roles, version, keys_of(name)))
