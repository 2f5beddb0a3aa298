"""Where a simulation keeps what it must not forget: in memory, or in folders."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from tideline.archive.disk.spill import Spill
from tideline.archive.folder import FolderParts
from tideline.archive.parts import MemoryParts, Parts
from tideline.core.run import ClientId
from tideline.engine.peers.peer_keys import Own, fresh
from tideline.engine.simulation.adapters import ManualClock, MemoryVault
from tideline.engine.simulation.journal import MemoryJournal


class Home(Protocol):
    """The journal and the clock of a simulation, its coordinator's parts, and each site's vault and keys."""

    @property
    def journal(self) -> MemoryJournal: ...
    @property
    def clock(self) -> ManualClock: ...
    @property
    def parts(self) -> Parts: ...

    def vault(self, site: ClientId) -> MemoryVault: ...
    def keys(self, site: ClientId) -> Own: ...

    def save(self) -> None:
        """See what was done since the last time safe, if this home does that: a round has closed, and nobody is at work."""

    def close(self) -> None: ...


class Scratch:
    """A home that is gone with its process: the parts in memory, as far as `spill` has room for them, or in a folder's files."""

    def __init__(self, folder: Path | None = None, spill: Spill | None = None) -> None:
        self.spill = spill or Spill()
        self.journal, self.clock, self._folder = MemoryJournal(self.spill), ManualClock(), folder
        self.parts: Parts = self._store("coordinator")

    def vault(self, site: ClientId) -> MemoryVault:
        return MemoryVault(lambda run: self._store(f"site-{site}/{run}"))

    def keys(self, site: ClientId) -> Own:
        return fresh()

    def save(self) -> None:
        return

    def close(self) -> None:
        return

    def _store(self, name: str) -> Parts:
        return MemoryParts(self.spill) if self._folder is None else FolderParts(self._folder / name, durable=False)
