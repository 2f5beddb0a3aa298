"""Where the coordinators are, as the owner says and as they announce it; kept in the home, and used when nobody answers."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, replace

import structlog

from tideline.core.errors import FederationError, Refused
from tideline.core.tokens import place_of
from tideline_agent.discovery import memo_of
from tideline_agent.home.identity import Memo, remember
from tideline_agent.link import Announcement, Endpoints, GrpcLink, dial, fingerprints, proxy_for
from tideline_agent.reach.announced import MOST_ID, announced_in
from tideline_agent.reach.own_files import OwnFiles
from tideline_agent.settings import AgentSettings

log = structlog.get_logger()
CONNECT_SECONDS = 3.0  # for a connection to an address that has never answered
CHECK_SECONDS, AGAIN_SECONDS = 5.0, 1.0  # between two readings of files, and between two rounds of tries


@dataclass(frozen=True)
class Taken:
    """What came of an announcement: endpoints to call from now on, and whether the owner's word stands against a part of it."""

    endpoints: Endpoints
    declined: bool = False


class Reach:
    """Takes up what is announced. Any number of threads; `run` and `search` are one thread's.

    An address that was announced is called for orders only after it has shown, to a call that changes nothing, that it is a
    coordinator that knows this agent. So one at which nobody answers, or somebody else does, is in nobody's way.
    """

    def __init__(self, settings: AgentSettings, known: Memo, link: GrpcLink, files: OwnFiles | None = None) -> None:
        self._settings, self._link, self._files = settings, link, files or OwnFiles(settings)
        self._lock = threading.RLock()
        self._memo, self._written, self._full = memo_of(known, link.endpoints), False, False
        self._failed: dict[str, str] = {}  # of an address: why it did not answer, as it was told last

    @property
    def has(self) -> tuple[str, bool]:
        """The id of the last announcement that came, and whether it is declined."""
        return self._memo.heard, self._memo.declined

    @property
    def memo(self) -> Memo:
        return self._memo

    def heard(self, announcement: Announcement | None) -> None:
        """A coordinator has answered, and may have announced something else than before."""
        with self._lock:
            if announcement is not None and announcement.id[:MOST_ID] != self._memo.heard:
                self._take(announcement)
            if not self._written:
                self.note()

    def note(self) -> None:
        """Have the home know it. A disk that is full is no reason to stop: it is tried again with the next sign of life."""
        with self._lock:
            try:
                remember(self._settings.folder, self._memo)
            except OSError as error:
                if not self._full:
                    log.warning("addresses_not_written", home=str(self._settings.folder), reason=error.strerror)
                self._full = True
            else:
                self._written, self._full = True, False

    def begin(self, stop: threading.Event) -> None:
        """Serve the link from now on, until `stop`."""
        self._link.hearing = self
        threading.Thread(target=self.run, args=(stop,), name="reach", daemon=True).start()

    def run(self, stop: threading.Event) -> None:
        """Look for coordinators while nobody answers, and for new files now and then, until `stop`."""
        while not stop.is_set():
            lost = self._link.lost.wait(CHECK_SECONDS)
            try:
                self.reload()
                found = lost and self.search()
            except Exception:  # whatever an address answers, the agent goes on with those that it has
                log.exception("search_failed")
                found = False
            if lost and not found:
                stop.wait(AGAIN_SECONDS)

    def reload(self) -> None:
        """Take up the owner's files, where they have changed."""
        with self._lock:
            found = self._files.read(self._link.endpoints)
            if found is not None:
                self._link.turn(found)
                self._memo = memo_of(self._memo, found)
                self._written = False
                log.info("certificate_renewed", files="those of --ca, --tls-cert and --tls-key")

    def search(self) -> bool:
        """Try each address that was announced and has not answered yet. Whether one is called from now on."""
        for address in self._memo.others:
            why = self.tried(address)
            if not why:
                self._reached(address)
                return True
            if self._failed.get(address) != why:
                self._failed[address] = why
                log.info("address_tried", address=address, reason=why)
        return False

    def tried(self, address: str) -> str:
        """Why an address is not that of a coordinator that knows this agent; nothing where it is."""
        there, place = replace(self._link.endpoints, addresses=(address,)), place_of(address)
        try:
            dial(place.host, place.port, CONNECT_SECONDS, proxy_for(place, there.proxy)).close()
            with contextlib.closing(probe(there, self._link)) as link:
                link.check("", tuple(each.value for each in self._settings.roles))
        except FederationError as error:
            return error.what
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def _take(self, announcement: Announcement) -> None:
        """Believe it, as far as it is in order and the owner lets it be."""
        heard, before = announcement.id[:MOST_ID], self._memo
        self._written = False
        if self._settings.pin_addresses:
            self._memo = replace(before, heard=heard, declined=True)
            return
        endpoints = self._link.endpoints
        try:
            said = announced_in(announcement, endpoints, self._settings.insecure)
        except Refused as error:
            log.warning("announcement_refused", reason=str(error))
            self._memo = replace(before, heard=heard, declined=True)
            return
        roots = self._roots(endpoints, said.authorities)
        declined = bool(said.authorities) and not fingerprints(said.authorities) <= fingerprints(roots or b"")
        memo = replace(before, announced=said.addresses or before.announced, heard=heard, declined=declined)
        self._apply(memo.settled(self._link.address), replace(endpoints, roots=roots))
        if self._memo.announced != before.announced:
            log.info("addresses_learned", addresses=self._memo.announced)
        if roots != endpoints.roots:
            log.info("authorities_learned", certificates=len(fingerprints(roots or b"")))

    def _roots(self, endpoints: Endpoints, authorities: bytes) -> bytes | None:
        """The authorities to trust. Those that the owner named by --ca stay, whatever is announced."""
        return authorities if authorities and self._settings.ca is None else endpoints.roots

    def _reached(self, address: str) -> None:
        """An address has answered: it is called from now on."""
        with self._lock:
            self._apply(self._memo.settled(address), self._link.endpoints, address)
            self._written = False
            self._failed.pop(address, None)
            self.note()
        log.info("coordinator_found", address=address)

    def _apply(self, memo: Memo, endpoints: Endpoints, first: str = "") -> None:
        endpoints = replace(endpoints, addresses=memo.addresses)
        if endpoints != self._link.endpoints:
            self._link.turn(endpoints, first)
        self._memo = memo_of(memo, endpoints)


def probe(there: Endpoints, link: GrpcLink) -> GrpcLink:
    """The same agent at another address, for calls that change nothing."""
    return GrpcLink(there, link.name, link.keys, threading.Event(), session=link.session, bulk=False)
