"""The one table from what Tideline raises to what its two doors answer: an HTTP status and the name of a gRPC status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tideline.archive.errors import DigestMismatch, PartMissing, TooLarge
from tideline.core.errors import (
    Cancelled,
    ChainBroken,
    ConfigRefused,
    ContractRefused,
    DataRefused,
    Diverged,
    FederationError,
    IdentityRefused,
    KeyReused,
    Malformed,
    MemoryAhead,
    MemoryLost,
    NotFound,
    PermissionRefused,
    Refused,
    RosterRefused,
    Stale,
    Stalled,
    StepFailed,
    StorageFull,
    TooMany,
    Underway,
    Unreachable,
    VersionRefused,
)


@dataclass(frozen=True)
class Code:
    """How an error is told: to people over HTTP, to agents over gRPC."""

    http: int
    grpc: str


# A class that has no row is told as its nearest base is. Only UNAVAILABLE and RESOURCE_EXHAUSTED are worth trying again.
# A wrong API key is 401 by the door itself (it comes with a challenge); what the run service refuses by identity is 403.
TABLE: Mapping[type[FederationError], Code] = {
    Refused: Code(409, "FAILED_PRECONDITION"),
    ConfigRefused: Code(422, "INVALID_ARGUMENT"),
    RosterRefused: Code(422, "FAILED_PRECONDITION"),
    ContractRefused: Code(409, "FAILED_PRECONDITION"),
    DataRefused: Code(422, "FAILED_PRECONDITION"),
    IdentityRefused: Code(403, "UNAUTHENTICATED"),
    PermissionRefused: Code(403, "PERMISSION_DENIED"),
    VersionRefused: Code(400, "FAILED_PRECONDITION"),
    KeyReused: Code(422, "INVALID_ARGUMENT"),
    NotFound: Code(404, "NOT_FOUND"),
    Malformed: Code(400, "INVALID_ARGUMENT"),
    TooLarge: Code(413, "INVALID_ARGUMENT"),
    PartMissing: Code(404, "NOT_FOUND"),
    DigestMismatch: Code(400, "DATA_LOSS"),
    StepFailed: Code(500, "ABORTED"),
    Cancelled: Code(409, "CANCELLED"),
    MemoryLost: Code(409, "FAILED_PRECONDITION"),
    MemoryAhead: Code(409, "FAILED_PRECONDITION"),
    Stale: Code(409, "ABORTED"),
    Underway: Code(409, "ABORTED"),
    Stalled: Code(409, "FAILED_PRECONDITION"),
    ChainBroken: Code(500, "DATA_LOSS"),
    Diverged: Code(500, "DATA_LOSS"),
    StorageFull: Code(507, "RESOURCE_EXHAUSTED"),
    Unreachable: Code(503, "UNAVAILABLE"),
    TooMany: Code(429, "RESOURCE_EXHAUSTED"),
}

UNEXPECTED = Code(500, "INTERNAL")


def code_of(error: FederationError | type[FederationError]) -> Code:
    """The codes of an error or of its class: its own row, or that of its nearest base."""
    kind = error if isinstance(error, type) else type(error)
    return next((TABLE[base] for base in kind.__mro__ if base in TABLE), UNEXPECTED)
