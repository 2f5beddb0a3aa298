"""The coordinator's composition root: `build` makes the parts, `serve` runs them."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog
from starlette.types import ASGIApp

from tideline import __version__
from tideline.core.algorithm import REGISTRY
from tideline.core.errors import ConfigRefused, FederationError, Refused
from tideline.engine.coordinator.access.hours import used_hours
from tideline.engine.coordinator.agent_service import AgentService
from tideline.engine.coordinator.enrolment import FRESH_SECONDS
from tideline.engine.coordinator.integrity.verifying import Scrubber, Verifier
from tideline.engine.coordinator.part_store import PartStore
from tideline.engine.coordinator.run_service import RunService
from tideline.engine.coordinator.scheduler import Leases, Scheduler
from tideline.engine.coordinator.witness import Witness, sentence
from tideline.engine.model.runs import Lease
from tideline.engine.process.private import close_home, for_the_owner_alone
from tideline.engine.process.resources import open_many_files, retain_freed_memory
from tideline.engine.process.stopping import stopping
from tideline_server.api import ApiSettings, Services, create_app
from tideline_server.api.agents import AgentsOverHttp
from tideline_server.api.openapi import Described
from tideline_server.api.server import Bounds as HttpBounds
from tideline_server.api.server import QuietServer, http_config
from tideline_server.bell import LocalBell, LocalCounts, RedisBell, RedisCounts, redis_of
from tideline_server.bulk.building import lane_of, listener_of, tls_of
from tideline_server.bulk.listener import Listener
from tideline_server.connections import Warden, peer_in, peer_of, share_of
from tideline_server.dossiers.making import Dossiers, signer_of
from tideline_server.keys import AdminKeys, stored_secret
from tideline_server.limits import Limits
from tideline_server.listeners import WallClock, announce, announcement_of, bound, bracketed, certificate_of, listen, meeting_of
from tideline_server.metrics import Federation, Metrics
from tideline_server.notify.building import Notifying, ends_of, notifying, notifying_of
from tideline_server.oidc.browser import HOME, MANUAL
from tideline_server.oidc.building import sign_in_of
from tideline_server.oidc.options import options_of
from tideline_server.parts import open_parts
from tideline_server.parts.opening import Opened
from tideline_server.planner import ProcessPlanner
from tideline_server.readiness import Readiness
from tideline_server.retention.building import Ages, ages_of
from tideline_server.rpc import Connections, Servicer, open_servers
from tideline_server.scheduling import SchedulerLoop
from tideline_server.settings import LOOPBACK, CoordinatorSettings
from tideline_server.signs import gauges_of, gauges_of_crowds, gauges_of_notices, warnings_of
from tideline_server.store import SqlJournal, StoreAway
from tideline_server.tls import Certificate, context_of
from tideline_server.tls.renewing import renewing
from tideline_server.worker import ProcessCompute

log = structlog.get_logger()
T = TypeVar("T")
SYNCERS = 4  # threads that wait for the disk while more bytes come in
PROBES = 10  # times a minute that a client may try the store of parts
GRPC_PART, HTTP_PART = 0.6, 0.25  # of the descriptors: connections of either port
MOST_GRPC, MOST_HTTP = 8192, 1024  # however many descriptors there are: each connection takes memory
MOST_HTTP_AGENTS = 4096  # where agents come over HTTP too: each holds a connection or two, as long as it listens
TIDY_SECONDS = 2.0  # between two collections of parts: each takes a turn at the database


class SteadyClock:
    """Seconds since some moment. Nobody sets this clock, so that waits are as long as they are."""

    def now(self) -> float:
        return time.monotonic()


@dataclass(frozen=True)
class Parts:
    """The parts of a coordinator, built and not yet serving."""

    settings: CoordinatorSettings
    grpc_port: int
    certificate: Certificate | None
    bell: LocalBell
    counts: LocalCounts | RedisCounts
    journal: SqlJournal
    compute: ProcessCompute
    planner: ProcessPlanner
    scheduling: SchedulerLoop
    notifying: Notifying
    servicer: Servicer
    services: Services
    warden: Warden
    bulk: Listener | None


def run_coordinator(settings: CoordinatorSettings) -> None:
    """Serve until interrupted. Raises Refused errors for what is wrong with settings, home or ports."""
    check(settings)
    for_the_owner_alone()
    open_many_files()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it would write a line for each call that it refuses
    retain_freed_memory()
    settings.folder.mkdir(parents=True, exist_ok=True)
    with only_one(settings.folder):
        close_home(settings.folder)
        asyncio.run(serve(settings))


def check(settings: CoordinatorSettings) -> None:
    """Beyond this machine only with TLS, or by an explicit word."""
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise ConfigRefused("TLS needs both a certificate and a key", "Give --tls-cert and --tls-key")
    if settings.retain_audit_days and settings.audit_archive is None:
        raise ConfigRefused("--retain-audit-days needs a folder for the entries that go", "Give --audit-archive DIR")
    for option, path in (("--tls-client-ca", settings.tls_client_ca), ("--tls-ca", settings.tls_ca)):
        if path is not None and settings.tls_cert is None:
            raise ConfigRefused(f"{option} needs TLS", "Give --tls-cert and --tls-key too")
    if settings.host not in LOOPBACK and settings.tls_cert is None and not settings.insecure:
        raise ConfigRefused(
            f"Listening on {settings.host} without TLS would send tokens and models in the clear",
            "Give --tls-cert and --tls-key, or say --insecure on a network that you trust",
        )


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"Another coordinator uses {folder}", "Stop it, or choose another --home") from None
        yield


async def serve(settings: CoordinatorSettings) -> None:
    """Build, open both ports, wait for a signal, and close in the opposite order."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    grpc_port, http_socket = bound(settings)
    bulk = None if settings.lane is None else listen(settings.host, settings.lane[1], "--bulk")
    with (
        stopping(partial(loop.call_soon_threadsafe, stop.set)),
        contextlib.closing(http_socket),
        contextlib.nullcontext() if bulk is None else contextlib.closing(bulk),
    ):
        parts = await unless(stop, build(settings, grpc_port, bulk))
        if parts is None:  # the signal came while the database was awaited
            return
        async with running(parts, http_socket, bulk) as addresses:
            log.info("coordinator_ready", grpc=addresses["grpc"], http=addresses["http"], home=str(settings.folder))
            parts.services.warnings()  # which logs them
            await stop.wait()
            log.info("coordinator_stopping")


async def unless(stop: asyncio.Event, begin: Coroutine[Any, Any, T]) -> T | None:
    """What begins, or None if it is to stop before that."""
    beginning, stopping = asyncio.create_task(begin), asyncio.create_task(stop.wait())
    await asyncio.wait({beginning, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not beginning.done():
        beginning.cancel()
        await asyncio.wait({beginning})
        return None
    return beginning.result()


async def build(settings: CoordinatorSettings, grpc_port: int, bulk: socket.socket | None = None) -> Parts:
    """Make every part of a coordinator, once its database answers. Raises Refused errors."""
    folder, clock, metrics, loop = settings.folder, WallClock(), Metrics(__version__), asyncio.get_running_loop()
    admins, oidc, home = AdminKeys(settings), options_of(settings), HOME if settings.dashboard == "on" else MANUAL
    redis, signer = redis_of(settings), signer_of(settings)
    bell = RedisBell(loop, redis) if redis else LocalBell(loop)
    counts = RedisCounts(redis) if redis else LocalCounts()
    limits = limits_of(settings, counts, clock)
    parts = open_parts(*settings.place)
    parts.begin()
    journal = await opened(settings, metrics)
    listen(settings.host, grpc_port, "--grpc-port").close()  # still free, however long the database was awaited
    part_store = part_store_of(parts, journal, clock, settings.place[0])
    witness = Witness(journal, clock, parts.records, lambda found: log.warning("database_restored", reason=sentence(found)))
    witness.begin()
    compute = await computing(settings)
    planner = ProcessPlanner()
    run_service = RunService(journal=journal, compute=compute, bell=bell, clock=clock, here=parts.has, witness=witness)
    agent_service = agent_service_of(settings, part_store, compute, bell, metrics)
    ages = ages_of(settings, run_service, journal, clock)
    scheduling = scheduling_of(settings, part_store, compute, bell, metrics, ages)
    certificate = certificate_of(settings)
    certified, warden = settings.tls_client_ca is not None, Warden()
    connections = connections_of(settings, warden, grpc_port)
    lane = lane_of(settings.lane, bulk)
    servicer = Servicer(agent_service, run_service, bell, __version__, limits, certified, metrics.grpc_call, connections, lane)
    servicer.announcing.current = partial(announcement_of, settings, certificate)
    listener = None if bulk is None else listener_of(settings, servicer, warden, bulk.getsockname()[1], certificate)
    disks = (folder,) if "://" in settings.place[0] else (folder, Path(settings.place[0]))
    ends = ends_of(None if certificate is None else lambda: certificate.ends, servicer.callers.certificates.ends)
    notices = notifying_of(settings, journal.notices, clock, disks, metrics, ends)
    warned = partial(warnings_of, servicer, witness, certificate, clock, ages.archiving)
    readiness = Readiness(journal, compute.lives, servicer.closing.is_set, disks, warned=warned)
    gauges = {**gauges_of(servicer, scheduling, compute, bell, journal, disks, certificate), **gauges_of_crowds(servicer, warden)}
    gauges |= {**gauges_of_notices(notices.courier), **ages.gauges(journal.growth)}
    hours = partial(used_hours, journal, clock)
    metrics.add(Federation(journal.tally, lambda: sum(each.size for each in parts.inventory().values()), gauges, hours=hours))
    services = Services(
        run_service=run_service,
        journal=journal,
        compute=compute,
        part_store=part_store,
        clock=clock,
        moved=lambda topic, timeout: bell.moved(topic, bell.count(topic), min(timeout, 1.0)),
        version=__version__,
        api_key_hash=admins.own,
        admins=admins,
        health=lambda: {"worker": compute.pid is not None, "bell": bell.reaches},
        ending=servicer.closing.is_set,
        limits=limits,
        meeting=partial(meeting_of, settings, grpc_port, certificate),
        ready=readiness.reasons,
        warnings=readiness.warnings,
        metrics=metrics.text,
        seen=metrics.http_request,
        plan=planner.plan,
        retention=ages.retention,
        archiving=ages.archiving,
        targets=notices.targets,
        dossiers=Dossiers(journal, signer, clock, folder, files=ages.archive),
        follows=servicer.announcing.follows,
        browser=None if oidc is None else sign_in_of(oidc, journal, clock, admins.shared or admins.own, home),
    )
    return Parts(
        settings=settings,
        grpc_port=grpc_port,
        certificate=certificate,
        bell=bell,
        counts=counts,
        journal=journal,
        compute=compute,
        planner=planner,
        scheduling=scheduling,
        notifying=notices,
        servicer=servicer,
        services=services,
        warden=warden,
        bulk=listener,
    )


def agent_service_of(
    settings: CoordinatorSettings, part_store: PartStore, compute: ProcessCompute, bell: LocalBell, metrics: Metrics
) -> AgentService:
    return AgentService(
        journal=part_store.journal,
        part_store=part_store,
        compute=compute,
        bell=bell,
        clock=WallClock(),
        version=__version__,
        later=ThreadPoolExecutor(SYNCERS, "sync"),
        meter=metrics,
        allowance=settings.allowance,
    )


def part_store_of(parts: Opened, journal: SqlJournal, clock: WallClock, place: str) -> PartStore:
    """The store over a place that is this database's own. Raises ConfigRefused where it is another's."""
    store = PartStore(
        parts=parts,
        journal=journal,
        clock=clock,
        pause=TIDY_SECONDS,
        report=lambda why: log.warning("parts_not_collected", reason=why),
    )
    store.own(place)
    return store


def connections_of(settings: CoordinatorSettings, warden: Warden, port: int) -> Connections:
    """The connections of the gRPC port, as its calls see them."""
    warden.watch(port, share_of(settings.grpc_connections, GRPC_PART, MOST_GRPC))
    return Connections(lambda peer: warden.proven(port, peer_in(peer)), lambda peer: warden.cut(peer_in(peer)))


def http_bounds(settings: CoordinatorSettings, warden: Warden, port: int) -> HttpBounds:
    """What the HTTP port bears. A connection is looked after from its first packet on, and serves once TLS is agreed on."""
    proxies, most = frozenset(settings.proxies), MOST_HTTP_AGENTS if settings.agents_over_http else MOST_HTTP
    share = share_of(settings.connections, HTTP_PART, most, proxies)
    warden.watch(port, share)

    def opened(peer: tuple[str, int] | None) -> None:
        warden.proven(port, None if peer is None else peer_of(*peer))

    return HttpBounds(share.from_one, share.in_all, opened=opened, proxies=proxies)


async def computing(settings: CoordinatorSettings) -> ProcessCompute:
    """The numeric worker, started. What is wrong with an operator's methods and networks is said here, not at the first run."""
    compute = ProcessCompute(settings.place, settings.methods, settings.networks)
    compute.start()
    if settings.networks or settings.methods != REGISTRY:
        await asyncio.to_thread(checked, compute)
    return compute


def checked(compute: ProcessCompute) -> None:
    """Have the worker load what an operator adds. Raises ConfigRefused, and then the worker has ended."""
    try:
        compute.methods()
    except ConfigRefused:
        compute.end()
        raise


def scheduling_of(
    settings: CoordinatorSettings,
    part_store: PartStore,
    compute: ProcessCompute,
    bell: LocalBell,
    metrics: Metrics,
    ages: Ages,
) -> SchedulerLoop:
    journal, clock = part_store.journal, WallClock()

    def taken(lease: Lease) -> None:
        """Another coordinator has fallen silent; its run is scheduled here from now on."""
        log.warning("run_taken_over", run=lease.run, silent=lease.holder, lease_seconds=lease.seconds)
        metrics.lease("taken_over")

    leases = Leases(
        journal=journal,
        clock=SteadyClock(),
        holder=holder(settings.folder),
        seconds=settings.lease,
        taken=taken,
    )
    scheduler = Scheduler(journal=journal, part_store=part_store, compute=compute, bell=bell, clock=clock, meter=metrics)
    verifier = Verifier(part_store, scheduler.mender)
    scrubber = Scrubber(verifier, clock, settings.scrub_days, lambda part: log.error("part_damaged", part=part))
    return SchedulerLoop(
        scheduler, leases, bell, lost=lambda: metrics.lease("lost"), beside=(scrubber.step, *ages.steps), scrubber=scrubber
    )


@contextlib.asynccontextmanager
async def running(
    parts: Parts, http_socket: socket.socket, bulk: socket.socket | None = None
) -> AsyncIterator[dict[str, str | int]]:
    settings = parts.settings
    app: ASGIApp = await described(parts.services, api_settings_of(settings))
    bounds = http_bounds(settings, parts.warden, http_socket.getsockname()[1])
    if settings.agents_over_http:
        app = AgentsOverHttp(app, parts.servicer, bounds.certificates, parts.services.seen)
    http = QuietServer(http_config(settings, app, bounds), bounds.handshakes)
    serving = asyncio.create_task(http.serve([http_socket]))
    most = parts.warden.ports[parts.grpc_port].share.in_all
    grpc = await open_servers(parts.servicer, f"{bracketed(settings.host)}:{parts.grpc_port}", parts.certificate, most)
    if parts.bulk is not None and bulk is not None:
        parts.bulk.open(bulk)
    watching = asyncio.create_task(parts.warden.run())
    looking = asyncio.create_task(looking_at(parts, http))
    gc.freeze()  # what is loaded stays: else the collector, which frees calls that were refused, would come by ever more seldom
    parts.bell.start()
    await parts.scheduling.start()
    notices = asyncio.create_task(notifying(parts.notifying.courier))
    witnessing = asyncio.create_task(witnessed(parts.services.run_service.enrolment.witness))
    try:
        yield announce(settings, parts.grpc_port, http_socket)
    finally:
        gc.unfreeze()
        witnessing.cancel()
        notices.cancel()
        parts.notifying.courier.close()
        parts.servicer.close()
        watching.cancel()
        looking.cancel()
        http.should_exit = True
        parts.planner.close()
        await parts.scheduling.stop()
        await grpc.stop(1.0)
        if parts.bulk is not None:
            await asyncio.to_thread(parts.bulk.close)
        await parts.servicer.living.ended()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
        await parts.bell.close()
        await parts.counts.close()
        parts.compute.end()
        parts.journal.close()


def api_settings_of(settings: CoordinatorSettings) -> ApiSettings:
    public = (settings.public_url or "").rstrip("/").lower()
    return ApiSettings(max_weights_bytes=settings.weights_bytes, dashboard=settings.dashboard == "on", public_url=public)


async def looking_at(parts: Parts, http: QuietServer) -> None:
    """Have the ports take up new certificates. gRPC asks for them itself, with each connection."""
    certificate = parts.certificate
    if certificate is None:
        return

    async def renewed() -> None:
        asked = ssl.CERT_OPTIONAL if parts.settings.agents_over_http else ssl.CERT_NONE
        await http.renew(context_of(certificate.current, asked))
        if parts.bulk is not None:
            parts.bulk.renew(tls_of(certificate))

    await renewing(certificate, renewed)


async def described(services: Services, settings: ApiSettings) -> Described:
    """The HTTP door, with its description ready for whoever asks first: made beside calls, it would make them wait."""
    app = create_app(services, settings)
    await asyncio.to_thread(app.written)
    return app


async def witnessed(witness: Witness) -> None:
    """Have the witness read what other coordinators did, and write what could not be written before."""
    failure = ""
    while True:
        await asyncio.sleep(FRESH_SECONDS)
        try:
            await asyncio.to_thread(witness.turn)
            failure = ""
        except (FederationError, OSError) as error:
            if str(error) != failure:
                failure = str(error)
                log.warning("witness_away", reason=failure)


async def opened(settings: CoordinatorSettings, metrics: Metrics) -> SqlJournal:
    """The journal, once its database answers: after a reboot it may come later than we. Raises StoreRefused."""
    until = time.monotonic() + settings.wait
    while True:
        try:
            return await asyncio.to_thread(SqlJournal, settings.store, metrics.transaction)
        except StoreAway as error:
            left = until - time.monotonic()
            if left <= 0:
                raise
            log.warning("store_away", reason=str(error), gives_up_in_seconds=round(left))
            await asyncio.sleep(min(left, 1.0))


def limits_of(settings: CoordinatorSettings, counts: LocalCounts | RedisCounts, clock: WallClock) -> Limits:
    return Limits(
        counts=counts,
        clock=clock,
        calls=settings.rate,
        wrong_keys=settings.rate_wrong_keys,
        enrolments=settings.rate_enrol,
        probes=PROBES,
    )


def holder(folder: Path) -> str:
    """The name under which a coordinator holds leases, the same after a restart.

    Hosts and paths are for people; machines made from one image share them. A number that is drawn once tells them apart.
    """
    return f"{socket.gethostname()}:{folder.resolve()}#{stored_secret(folder / 'holder', 4)}"
