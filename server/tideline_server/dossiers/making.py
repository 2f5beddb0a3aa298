"""Makes dossiers in files of the home, and tells the audit log of the key when it signs for the first time."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tideline import __version__
from tideline.core.errors import StorageFull, TooMany
from tideline.core.run import RunId
from tideline.dossier.archived import Files
from tideline.dossier.excerpt import introduced
from tideline.dossier.making import Maker
from tideline.dossier.signing import Signer, own_signer, signer_in
from tideline.engine.audit.entries import signer_introduced
from tideline.engine.audit.log import Entry
from tideline.engine.ports.clock import Clock
from tideline.engine.ports.journal import Journal
from tideline_server.settings import CoordinatorSettings

AT_ONCE, WAITING = 2, 4  # that are made at the same time, as each reads all of a run; and callers that wait for a place
PATIENCE_SECONDS = 20.0  # for which they wait
CHUNK_BYTES = 1 << 20
OWN = "signing.key"


@dataclass
class Dossiers:
    """What makes dossiers. folder: where a file grows that has no name, and goes with whoever reads it. files: the audit log's
    archive, if there is one.
    """

    journal: Journal
    signer: Signer
    clock: Clock
    folder: Path
    patience: float = PATIENCE_SECONDS
    _places: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(AT_ONCE))
    _queue: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(AT_ONCE + WAITING))
    _telling: threading.Lock = field(default_factory=threading.Lock)
    files: Files | None = None

    def make(self, run: RunId, by: str) -> tuple[IO[bytes], int]:
        """A run's dossier as an open file, and its size. Raises TooMany while others are made; Refused, StorageFull."""
        with self._place():
            return self._make(run, by)

    @contextlib.contextmanager
    def _place(self) -> Iterator[None]:
        """A place among those that are made. Who waits has a thread of the port, so few may."""
        later = TooMany("Other dossiers are being made", "Ask again a little later", retry_after=10)
        if not self._queue.acquire(blocking=False):
            raise later
        try:
            if not self._places.acquire(timeout=self.patience):
                raise later
            try:
                yield
            finally:
                self._places.release()
        finally:
            self._queue.release()

    def _make(self, run: RunId, by: str) -> tuple[IO[bytes], int]:
        try:
            self.introduce(by)
            with contextlib.ExitStack() as stack:
                file = stack.enter_context(tempfile.TemporaryFile(dir=self.folder))
                size = Maker(self.journal, self.signer, __version__, self.files).make(run, file)
                file.seek(0)
                stack.pop_all()
                return file, size
        except OSError as cause:
            what = f"The dossier cannot be written in the coordinator's home: {cause.strerror}"
            raise StorageFull(what, "Make room there, and ask again") from None

    def introduced(self) -> Entry | None:
        """The audit log's entry about the key; None if it has signed nothing yet."""
        return introduced(self.journal, self.signer.fingerprint)

    def introduce(self, by: str) -> None:
        """Write into the audit log that the key signs from now on, unless it says so."""
        with self._telling:
            if self.introduced() is None:
                event = signer_introduced(self.signer.fingerprint, self.signer.public, by, self.clock.now())
                self.journal.record([event])


def signer_of(settings: CoordinatorSettings) -> Signer:
    """The key that the operator names, or that of the home, made at the first start. Raises ConfigRefused."""
    if settings.signing_key is not None:
        return signer_in(settings.signing_key.expanduser())
    return own_signer(settings.folder / OWN)


def pieces(file: IO[bytes]) -> Iterator[bytes]:
    """A file's bytes; then it is closed, and gone."""
    with file:
        while piece := file.read(CHUNK_BYTES):
            yield piece
