"""What would keep an agent from working, looked at from its name for the coordinator to its disk. Changes nothing anywhere."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial

from tideline import __version__
from tideline.core.errors import FederationError, IdentityRefused, TooMany
from tideline.core.signing import PROTOCOL
from tideline.core.tokens import Place, place_of, read_token
from tideline.engine.audit.log import Tip
from tideline.engine.coordinator.scheduler import duration
from tideline.engine.model.validity import SKEW_SECONDS, ending
from tideline.learning.sites.named import place_in
from tideline_agent.discovery import Found, find
from tideline_agent.home import identity
from tideline_agent.home.identity import Keys
from tideline_agent.home.ledger import FILE, REPORTED_WORDS, fits, read_shown
from tideline_agent.home.ledger_head import HEAD, Cut, remembered
from tideline_agent.home.rows import taken_by_rows
from tideline_agent.link import Endpoints, GrpcLink, NotSpoken, Proxy, check_certificate, dial, end_of, proxy_for
from tideline_agent.notes import LOW_DISK_BYTES
from tideline_agent.policy_file import read_policy
from tideline_agent.settings import AgentSettings
from tideline_agent.ways import attempted, candidates

CONNECT_SECONDS = 5.0
PROBE_BYTES = 64 << 10
NO_DISK_BYTES = 100_000_000
Now = Callable[[], float]


class State(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Finding:
    """One check: what was found, and what to do about it."""

    check: str
    state: State
    found: str
    todo: str = ""


def checkup(settings: AgentSettings, now: Now = time.time) -> Iterator[Finding]:
    """Every check in turn. What depends on one that failed is not tried."""
    patient = Patient(settings, now)
    for name, check, needs in CHECKS:
        missing = next((each for each in needs if each in patient.bad), None)
        untried = Finding(name, State.NOT_TRIED, f"it needs the check of {missing}")
        for finding in [untried] if missing else tried(name, partial(check, patient)):
            if finding.state in (State.FAILED, State.NOT_TRIED):
                patient.bad.add(name)
            yield finding


def tried(name: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """A check's findings; an error of ours is one too."""
    try:
        yield from check()
    except FederationError as error:
        yield Finding(name, State.FAILED, error.what, error.todo)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        todo = "See that the place is right, and that you may use it"
        yield Finding(name, State.FAILED, f"{place}{error.strerror or error}", todo)
    except Exception as error:  # noqa: BLE001 - the other checks are worth their while whatever one of them meets
        words = f"the check failed with {type(error).__name__}: {error}"
        yield Finding(name, State.FAILED, words, "Start the agent and see what it says; report this line")


@dataclass
class Patient:
    """What the checks have found out so far. reached: the addresses that are good up to here; bad: the checks that failed."""

    settings: AgentSettings
    now: Now
    bad: set[str] = field(default_factory=set)
    found: Found = field(default_factory=lambda: Found(Endpoints(())))
    reached: tuple[str, ...] = ()
    roots: bytes | None = None
    standing: str = ""
    keys: Keys | None = None  # with which the agent would be let in
    reported: Tip = field(default_factory=Tip)  # the last entry of the ledger that was reported to the coordinator

    def link(self, keys: Keys | None = None) -> contextlib.closing[GrpcLink]:
        endpoints = replace(self.found.endpoints, addresses=self.reached, roots=self.roots or self.found.endpoints.roots)
        return contextlib.closing(GrpcLink(endpoints, self.settings.name, keys or Keys.made(), threading.Event()))

    def way(self, address: str) -> tuple[Place, Proxy | None]:
        """Where an address is, and the proxy on the way."""
        place = place_of(address)
        return place, proxy_for(place, self.settings.proxy)

    def each(self, name: str, check: Callable[[str], Finding]) -> Iterator[Finding]:
        """A check of each address; those that fail are called no more. One that is good makes the others' failures warnings."""
        findings = {each: next(tried(name, lambda: iter([check(each)]))) for each in self.reached}  # noqa: B023 - called at once
        self.reached = tuple(each for each, finding in findings.items() if finding.state is not State.FAILED)
        for finding in findings.values():
            lost = finding.state is State.FAILED and self.reached
            yield replace(finding, state=State.WARNING) if lost else finding


def settings_of(patient: Patient) -> Iterator[Finding]:
    """The token is whole, an address is known, files can be read."""
    settings = patient.settings
    patient.found = find(settings)
    patient.reached = patient.found.called
    policy = read_policy(settings.policy)
    quiet = "" if policy.notes and settings.notes else "; no notes of the work are sent to the coordinator"
    roles = " or ".join(settings.roles)
    yield Finding("settings", State.OK, f"{settings.name}, {roles}, calls {', '.join(patient.reached)}{quiet}")


def name(patient: Patient) -> Iterator[Finding]:
    """The host's name has an address."""

    def check(address: str) -> Finding:
        place, proxy = patient.way(address)
        host, port = (place.host, place.port) if proxy is None else (proxy.host, proxy.port)
        try:
            found = sorted({str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)})
        except OSError as error:
            what = f"{host} has no address: {error.strerror or error}"
            return Finding("name", State.FAILED, what, "See how the host is spelt, and this machine's DNS")
        whose = "" if proxy is None else f"the proxy of {proxy.source} "
        return Finding("name", State.OK, f"{whose}{host} is {', '.join(found)}")

    return patient.each("name", check)


def line(patient: Patient) -> Iterator[Finding]:
    """Somebody listens there."""

    def check(address: str) -> Finding:
        place, proxy = patient.way(address)
        before = time.monotonic()
        try:
            dial(place.host, place.port, CONNECT_SECONDS, proxy).close()
        except OSError as error:
            port = "its gRPC port (7800)" if place.scheme == "grpc" else "its port for HTTPS"
            words = f"See that the coordinator runs, that this is {port}, and that firewalls let calls through"
            return Finding("line", State.FAILED, f"no answer from {address}: {error.strerror or error}", words)
        through = "" if proxy is None else f" through the proxy {proxy.name} ({proxy.source})"
        return Finding("line", State.OK, f"{address} answers{through} in {time.monotonic() - before:.3f} s")

    return patient.each("line", check)


def way(patient: Patient) -> Iterator[Finding]:
    """Over what a coordinator answers: gRPC, HTTPS, or both; and where the one that is set does not, what to set."""
    found = patient.found
    tries = [attempted(each, found.endpoints, found.pinned, patient.settings.name) for each in candidates(found.called)]
    summary, works = "; ".join(each.words for each in tries), [each for each in tries if not each.error]
    if any(each.named for each in works):
        yield Finding("way", State.OK, summary)
    elif works:
        yield Finding("way", State.WARNING, summary, f"Start the agent with --coordinator {works[0].address}")
    else:
        todo = "An agent needs one outgoing connection, to the gRPC port or over HTTPS, perhaps by a proxy; see docs/firewall.md"
        yield Finding("way", State.WARNING, summary, todo)


def tls(patient: Patient) -> Iterator[Finding]:
    """The certificate is the one that the token or --ca tells of."""
    endpoints, pinned, settings = patient.found.endpoints, patient.found.pinned, patient.settings
    own = None if settings.tls_cert is None or settings.tls_key is None else (settings.tls_cert, settings.tls_key)

    def check(address: str) -> Finding:
        scheme, known = patient.way(address)[0].scheme, endpoints.roots or endpoints.system or pinned
        if scheme == "http" or (scheme == "grpc" and not known):
            return Finding("tls", State.OK, f"{address} is called in the clear")
        shown = check_certificate(address, endpoints, pinned, own)
        patient.roots = shown.roots
        summary = f"{shown.subject}, good until {shown.until:%Y-%m-%d}, authority SHA256 {shown.authority[:23]}..."
        if ends := ending(shown.until.timestamp(), patient.now()):
            todo = "Renew it soon, where the coordinator runs: tideline tls init"
            return Finding("tls", State.WARNING, f"{summary}; it {ends}", todo)
        return Finding("tls", State.OK, summary)

    yield from patient.each("tls", check)
    if own is not None:
        until = end_of(own[0].read_bytes())
        if ends := ending(until, patient.now()):
            todo = f"Renew it, where the authority's key is: tideline tls client {settings.name}"
            yield Finding(
                "tls", State.WARNING if until > patient.now() else State.FAILED, f"the agent's own {own[0]} {ends}", todo
            )


def version(patient: Patient) -> Iterator[Finding]:
    """Both ends speak the same."""
    with patient.link() as link:
        said = link.hello()
    oldest, newest = said.protocols
    spoken = f"{newest}" if oldest == newest else f"{oldest} to {newest}"
    yield Finding("version", State.OK, f"tideline {said.version} speaks protocol {spoken}; this {__version__} speaks {PROTOCOL}")


def clock(patient: Patient) -> Iterator[Finding]:
    """This machine's clock, beside the coordinator's."""
    with patient.link() as link:
        off = patient.now() - link.hello().now_ms / 1000
    way = "ahead of" if off > 0 else "behind"
    summary = f"{duration(abs(off)) if abs(off) >= 1 else 'less than 1 s'} {way} the coordinator's"
    if abs(off) <= SKEW_SECONDS:
        yield Finding("clock", State.OK, summary)
        return
    todo = "Set the clock that is wrong (NTP): calls go by the coordinator's, but certificates and logs by each machine's own"
    yield Finding("clock", State.WARNING, summary, todo)


def sign_in(patient: Patient) -> Iterator[Finding]:
    """The coordinator would let this agent in. A token is not used up."""
    settings = patient.settings
    own = [each for each in (identity.load(settings.folder / identity.KEYS), identity.unfinished(settings.folder)) if each]
    if not own and not settings.token:
        todo = f"Ask for a token: tideline invite --name {settings.name}"
        yield Finding("sign-in", State.FAILED, f"{settings.folder} holds no keys, and no token is given", todo)
        return
    keys, patient.standing, warning = standing(patient, own or [Keys.made()])
    patient.keys = keys
    if warning:
        yield Finding("sign-in", State.WARNING, f"the coordinator says: {warning}", "Ask whoever runs the coordinator")
    if patient.standing == "invited":
        yield Finding("sign-in", State.OK, f"the token would let {settings.name} in; it has not been used up")
    elif patient.standing == "pending":
        todo = f"Have the fingerprint compared, then: tideline clients approve {settings.name}"
        yield Finding("sign-in", State.WARNING, f"{settings.name} ({keys.fingerprint}) waits for approval", todo)
    elif patient.standing == "doubled":
        todo = (
            f"Stop the other one; then an operator says which goes on: tideline clients approve {settings.name} --session SESSION"
        )
        found = f"{settings.name} is held: two agents show its keys, or one whose home is older than it was"
        yield Finding("sign-in", State.WARNING, found, todo)
    else:
        yield Finding("sign-in", State.OK, f"enrolled as {settings.name}, keys {keys.fingerprint}")


def standing(patient: Patient, own: list[Keys]) -> tuple[Keys, str, str]:
    """With which keys an agent would be let in, as what, and of what the coordinator warns. Raises IdentityRefused."""
    settings = patient.settings
    roles, secret = tuple(r.value for r in settings.roles), read_token(settings.token).secret
    refusals = []
    for keys in own:
        with patient.link(keys) as link:
            try:
                reply = link.check(secret, roles)
                patient.reported = link.reported
                return keys, str(reply.standing), str(reply.warning)[:1000]
            except NotSpoken:
                what = "The coordinator is too old to say whom it would let in"
                raise IdentityRefused(what, "Upgrade it, or start the agent and see") from None
            except IdentityRefused as error:
                refusals.append(error)
    raise refusals[0]


def ledger(patient: Patient) -> Iterator[Finding]:
    """The home's ledger is whole, and has the entry that was last reported to the coordinator."""
    home = patient.settings.folder
    if not patient.reported.seq and not (home / FILE).is_file() and not (home / HEAD).is_file():
        yield Finding("ledger", State.OK, "it begins when the agent starts")
        return
    before = remembered(home)
    own, there = read_shown(home, before), read_shown(home, patient.reported)
    for shown, tip, whose in ((own, before, ""), (there, patient.reported, REPORTED_WORDS)):
        if not fits(shown, tip):
            raise Cut(home / FILE, shown.last, tip, whose).error()
    yield Finding("ledger", State.OK, f"all is as it was written; the last entry is number {own.last.seq}")


def parts(patient: Patient) -> Iterator[Finding]:
    """A part goes up, is kept, and comes back."""
    if patient.standing != "approved":
        yield Finding("parts", State.NOT_TRIED, "the coordinator takes parts from enrolled agents only")
        return
    data = secrets.token_bytes(PROBE_BYTES)
    with patient.link(patient.keys) as link:
        link.hello()
        before = time.monotonic()
        try:
            back, there = link.probe(data)
        except TooMany as error:
            yield Finding("parts", State.NOT_TRIED, error.what, error.todo)
            return
        seconds = time.monotonic() - before
    if back != data:
        yield Finding("parts", State.FAILED, "other bytes came back than were sent", "See what stands between the two ends")
        return
    rate = 2 * PROBE_BYTES / max(seconds - there, 1e-4) / 1e6
    took = f"{seconds:.2f} s, {there:.2f} s of them in its store"
    yield Finding("parts", State.OK, f"{PROBE_BYTES >> 10} KiB went up and came back in {took}: {rate:.1f} MB/s")


def data(patient: Patient) -> Iterator[Finding]:
    """What `tideline data check` says, in a line."""
    folder, roles = patient.settings.data, patient.settings.roles
    place = place_in(folder)
    if place is None and not folder.is_dir():
        yield Finding("data", State.FAILED, f"--data {folder} is not a folder", "Give the folder that holds the site's data")
        return
    from tideline.learning.formats.inspection import inspect
    from tideline.learning.sites.inspection import inspect_python

    report = inspect(folder, None, roles[0]) if place is None else inspect_python(place, None, roles[0])
    if report.refused:
        first = report.refused[0]
        yield Finding("data", State.FAILED, str(first["what"]), f"{first['todo']}; see tideline data check {folder}")
        return
    rows = sum(domain.samples or 0 for domain in report.domains)
    lost = sum(len(domain.content.unreadable) for domain in report.domains if domain.content)
    summary = f"{rows} samples in {', '.join(domain.name for domain in report.domains)}"
    if lost:
        yield Finding("data", State.WARNING, f"{summary}; {lost} cannot be read", f"See which: tideline data check {folder}")
    elif report.unguessed:
        todo = f"See what it is with the run's world: tideline data check {folder} --world FILE"
        yield Finding("data", State.WARNING, f"{summary}; which classes is not known: {report.unguessed}", todo)
    else:
        yield Finding("data", State.OK, summary)


def code(patient: Patient) -> Iterator[Finding]:
    """Methods and networks that the owner adds can be loaded."""
    from tideline.core.algorithm import REGISTRY, load_methods
    from tideline.nets import registry

    methods = load_methods(patient.settings.methods)
    networks = registry.use(patient.settings.networks)
    added = len(methods) - len(load_methods(REGISTRY))
    more = [f"{added} more"] * bool(added) + [f"the networks {', '.join(networks)}"] * bool(networks)
    yield Finding("code", State.OK, " and ".join(["the built-in methods", *more]))


def device(patient: Patient) -> Iterator[Finding]:
    """Steps can compute where the owner wants them to."""
    from tideline.nets.computing.devices import chosen, present

    asked = patient.settings.device
    where = chosen(asked)
    present(where)
    none = "; torch finds no GPU here" if asked == "auto" and where == "cpu" else ""
    yield Finding("device", State.OK, f"{where}{none}")


def disk(patient: Patient) -> Iterator[Finding]:
    """The home can be written, and has room."""
    folder = patient.settings.folder
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        yield Finding("disk", State.FAILED, f"{there} is no folder that may be written", "Choose another --home, or its owner")
        return
    free = shutil.disk_usage(there).free
    caches, taken = taken_by_rows(folder)
    rows = f"; {taken / 1e9:.1f} GB hold decoded rows" if caches else ""
    summary = f"{free / 1e9:.1f} GB free for {folder}{rows}"
    state = State.OK if free >= LOW_DISK_BYTES else State.WARNING if free >= NO_DISK_BYTES else State.FAILED
    todo = "" if state is State.OK else "Free some space: models and memory of each run are stored there"
    yield Finding("disk", state, summary, todo)


CHECKS: tuple[tuple[str, Callable[[Patient], Iterator[Finding]], tuple[str, ...]], ...] = (
    ("settings", settings_of, ()),
    ("name", name, ("settings",)),
    ("line", line, ("settings", "name")),
    ("way", way, ("settings",)),
    ("tls", tls, ("settings", "name", "line")),
    ("version", version, ("settings", "name", "line", "tls")),
    ("clock", clock, ("settings", "name", "line", "tls", "version")),
    ("sign-in", sign_in, ("settings", "name", "line", "tls", "version")),
    ("ledger", ledger, ()),
    ("parts", parts, ("settings", "name", "line", "tls", "version", "sign-in")),
    ("data", data, ()),
    ("code", code, ()),
    ("device", device, ()),
    ("disk", disk, ()),
)
