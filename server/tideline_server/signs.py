"""What a coordinator says of itself: gauges, and warnings of what is not in the way yet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from tideline.core.errors import FederationError
from tideline.engine.coordinator.notices.courier import Courier
from tideline.engine.coordinator.retention.archiving import Archiving
from tideline.engine.coordinator.witness import Witness
from tideline.engine.model.validity import ending
from tideline.engine.ports.clock import Clock
from tideline_server.bell import LocalBell
from tideline_server.connections import Warden
from tideline_server.metrics import Gauges
from tideline_server.readiness import free_bytes
from tideline_server.rpc import Servicer
from tideline_server.scheduling import SchedulerLoop
from tideline_server.store import SqlJournal
from tideline_server.tls import Certificate
from tideline_server.worker import ProcessCompute

STUCK = "old entries of the audit log stay in the database, as they cannot be archived; the coordinator's log says why"


def gauges_of(
    servicer: Servicer,
    scheduling: SchedulerLoop,
    compute: ProcessCompute,
    bell: LocalBell,
    journal: SqlJournal,
    disks: tuple[Path, ...],
    certificate: Certificate | None,
) -> Gauges:
    return {
        "tideline_agents_listening": ("agents that hear orders from here", lambda: servicer.listening),
        "tideline_parts_damaged": ("damaged parts that were put aside, as of some minutes ago", scheduling.damaged),
        "tideline_turns_waiting": ("looks at runs that are under way or wait for one", lambda: scheduling.turns),
        "tideline_worker_up": ("whether the numeric worker runs", lambda: float(compute.pid is not None)),
        "tideline_redis_up": ("whether Redis answers, where there is one", lambda: bell.connected),
        "tideline_store_connections": ("connections to the database in use", lambda: journal.connections),
        "tideline_disk_free_bytes": ("free bytes on the fullest disk that is written to", partial(least_free, disks)),
        "tideline_tls_not_after_timestamp_seconds": (
            "when the coordinator's certificate ends",
            lambda: certificate.ends if certificate else None,
        ),
    }


def gauges_of_crowds(servicer: Servicer, warden: Warden) -> Gauges:
    return {
        "tideline_grpc_calls_open": ("calls at the gRPC port under way", lambda: float(servicer.threshold.calls)),
        "tideline_grpc_calls_unproven": (
            "of those, calls whose caller is not proven",
            lambda: float(servicer.threshold.unproven),
        ),
        "tideline_connections_cut": ("connections that were cut since the start", lambda: float(warden.cuts)),
    }


def gauges_of_notices(courier: Courier) -> Gauges:
    return {"tideline_notices_waiting": ("notices that wait to be sent", lambda: courier.waiting)}


def warnings_of(
    servicer: Servicer, witness: Witness, certificate: Certificate | None, clock: Clock, archiving: Archiving | None = None
) -> tuple[str, ...]:
    """What is not in the way yet."""
    ends = "" if certificate is None else ending(certificate.ends, clock.now())
    own: tuple[str, ...] = (f"the coordinator's certificate {ends}",) if ends else ()
    own += () if certificate is None else certificate.warnings()
    stuck = () if archiving is None or not archiving.trouble else (STUCK,)
    return (*witness.warnings(), *own, *doubles(servicer), *ledgers(servicer), *servicer.clocks.warnings(), *stuck)


def doubles(servicer: Servicer) -> tuple[str, ...]:
    """Of clients that two agents are, in words without names. Where the journal is away, that is said elsewhere."""
    with contextlib.suppress(FederationError):
        if count := servicer.run_service.enrolment.doubled():
            are = "agent is" if count == 1 else "agents are"
            return (f"{count} {are} held: two showed the same keys, or a home is older than it was; see `tideline clients list`",)
    return ()


def ledgers(servicer: Servicer) -> tuple[str, ...]:
    """Of clients whose ledgers are not as they reported them, in words without names."""
    with contextlib.suppress(FederationError):
        if count := servicer.run_service.enrolment.differ():
            whose = "agent's ledger was" if count == 1 else "agents' ledgers were"
            return (f"{count} {whose} cut or changed since it was reported here; see `tideline clients list`",)
    return ()


def least_free(folders: Iterable[Path]) -> float | None:
    return min((float(free) for folder in folders if (free := free_bytes(folder)) is not None), default=None)
