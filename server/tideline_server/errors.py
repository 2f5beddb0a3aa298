"""The one table from what Tideline raises to its HTTP status and the name of its gRPC status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tideline.archive.errors import DigestMismatch, PartDamaged, PartMissing, TooLarge
from tideline.core import errors
from tideline.core.errors import FederationError


@dataclass(frozen=True)
class Code:
    """An error's status: over HTTP, and over gRPC."""

    http: int
    grpc: str


# A class that has no row has the status of its nearest base. Only UNAVAILABLE and RESOURCE_EXHAUSTED are worth trying again.
# A wrong API key is 401 by the API itself (it comes with a challenge); what the run service refuses by identity is 403.
TABLE: Mapping[type[FederationError], Code] = {
    errors.Refused: Code(409, "FAILED_PRECONDITION"),
    errors.ConfigRefused: Code(422, "INVALID_ARGUMENT"),
    errors.RosterRefused: Code(422, "FAILED_PRECONDITION"),
    errors.ContractRefused: Code(409, "FAILED_PRECONDITION"),
    errors.DataRefused: Code(422, "FAILED_PRECONDITION"),
    errors.IdentityRefused: Code(403, "UNAUTHENTICATED"),
    errors.PermissionRefused: Code(403, "PERMISSION_DENIED"),
    errors.VersionRefused: Code(400, "FAILED_PRECONDITION"),
    errors.KeyReused: Code(422, "INVALID_ARGUMENT"),
    errors.NotFound: Code(404, "NOT_FOUND"),
    errors.Deleted: Code(410, "NOT_FOUND"),
    errors.Malformed: Code(400, "INVALID_ARGUMENT"),
    TooLarge: Code(413, "INVALID_ARGUMENT"),
    PartMissing: Code(404, "NOT_FOUND"),
    PartDamaged: Code(500, "DATA_LOSS"),
    DigestMismatch: Code(400, "DATA_LOSS"),
    errors.StepFailed: Code(500, "ABORTED"),
    errors.Cancelled: Code(409, "CANCELLED"),
    errors.MemoryLost: Code(409, "FAILED_PRECONDITION"),
    errors.MemoryAhead: Code(409, "FAILED_PRECONDITION"),
    errors.Stale: Code(409, "ABORTED"),
    errors.Underway: Code(409, "ABORTED"),
    errors.Stalled: Code(409, "FAILED_PRECONDITION"),
    errors.ChainBroken: Code(500, "DATA_LOSS"),
    errors.Diverged: Code(500, "DATA_LOSS"),
    errors.PartLost: Code(500, "DATA_LOSS"),
    errors.StorageFull: Code(507, "RESOURCE_EXHAUSTED"),
    errors.Unreachable: Code(503, "UNAVAILABLE"),
    errors.TooMany: Code(429, "RESOURCE_EXHAUSTED"),
}

UNEXPECTED = Code(500, "INTERNAL")


def code_of(error: FederationError | type[FederationError]) -> Code:
    """The codes of an error or of its class: its own row, or that of its nearest base."""
    kind = error if isinstance(error, type) else type(error)
    return next((TABLE[base] for base in kind.__mro__ if base in TABLE), UNEXPECTED)
