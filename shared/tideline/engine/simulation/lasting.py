"""A simulation's home in a folder, from which it goes on after it was killed.

    journal.sqlite   a row for each round: the calls of the journal and what sites committed, written in one transaction
    parts/           the files that are still needed: states, messages, sites' memories

A kill loses the open round at most: its steps are run again, and give the same bytes.
"""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from tideline import __version__
from tideline.archive.disk.spill import Blob, Spill
from tideline.archive.folder import FolderParts
from tideline.archive.parts import MemoryParts, StoredPart, bytes_of
from tideline.core.errors import ConfigRefused, StorageFull
from tideline.core.run import ClientId, Digest, RunId
from tideline.core.settings import Plain, plain, read
from tideline.engine.peers.peer_keys import Own, fresh
from tideline.engine.ports.site import Head
from tideline.engine.simulation.adapters import ManualClock, MemoryVault
from tideline.engine.simulation.recording import RecordingJournal, shown

FORMAT = "1"
FILE, PARTS = "journal.sqlite", "parts"
TABLES = """
create table if not exists about (name text primary key, value text not null);
create table if not exists keys (site text primary key, sign blob not null, receive blob not null);
create table if not exists rounds (id integer primary key, now real not null, calls blob not null);
"""
# Of a reply that is kept although it was accepted: many a small one is the next order's message, too, which then is not sent. So
# the bytes that a result counts are those of a simulation that nobody disturbed, unless a large reply is sent back unchanged.
TINY_BYTES = 4096
HEAD = "head"  # what a site committed, among the calls


class KeptParts(MemoryParts):
    """Parts in memory, and those that lie in a folder that many such stores have in common."""

    def __init__(self, folder: FolderParts, spill: Spill | None = None) -> None:
        super().__init__(spill)
        self._folder = folder
        self.kept: frozenset[Digest] = frozenset()

    def has(self, digest: Digest) -> bool:
        return digest in self.kept or super().has(digest)

    def size(self, digest: Digest) -> int:
        return self._folder.size(digest) if self._only_there(digest) else super().size(digest)

    def view(self, digest: Digest) -> memoryview:
        return self._checked(digest) if self._only_there(digest) else super().view(digest)

    def drop(self, digest: Digest) -> None:
        super().drop(digest)
        self.kept -= {digest}

    def digests(self) -> tuple[Digest, ...]:
        return (*self._held, *(self.kept - self._held.keys()))

    def inventory(self) -> Mapping[Digest, StoredPart]:
        return {digest: StoredPart(0.0, self.size(digest)) for digest in self.digests()}

    def save(self, needed: frozenset[Digest], forget: bool) -> None:
        """See that these lie in the folder, those that are here. forget: they need not be in memory, too."""
        self.kept = frozenset(digest for digest in needed if self.has(digest))
        for digest in self.kept & self._held.keys():
            if not self._folder.has(digest):
                self._folder.put([bytes_of(self._held[digest])])
            if forget:
                del self._held[digest]

    def _only_there(self, digest: Digest) -> bool:
        """Whether it lies in the folder alone."""
        return digest in self.kept and digest not in self._held

    def _get(self, digest: Digest) -> bytes | Blob:
        return bytes(self._checked(digest)) if self._only_there(digest) else super()._get(digest)

    def _checked(self, digest: Digest) -> memoryview:
        """A part of the folder. Raises PartMissing, PartDamaged."""
        return self._folder.view(digest)


class LastingVault(MemoryVault):
    """A site's vault, whose heads are written with the round."""

    def __init__(self, site: ClientId, folder: FolderParts, spill: Spill) -> None:
        super().__init__()
        self.site, self.committed = site, dict[RunId, Head]()
        self._folder, self._spill, self._kept = folder, spill, dict[RunId, KeptParts]()

    def parts(self, run: RunId) -> KeptParts:
        if run not in self._kept:
            self._kept[run] = KeptParts(self._folder, self._spill)
        return self._kept[run]

    def all_parts(self) -> tuple[KeptParts, ...]:
        return tuple(self._kept.values())

    def commit(self, run: RunId, head: Head) -> None:
        super().commit(run, head)
        self.committed[run] = head

    def restore(self, run: RunId, head: Head) -> None:
        super().commit(run, head)

    def save(self, open_orders: frozenset[str]) -> frozenset[Digest]:
        """See this site's files safe, but for large ones of a reply that was accepted; what lies in the folder then."""
        kept = set[Digest]()
        for run, head in self._heads.items():
            parts = self.parts(run)
            accepted = head.reply if head.order not in open_orders else ()
            needed = head.stays
            done = {digest for digest, size in accepted if size > TINY_BYTES} - {digest for digest, _ in needed}
            parts.save(frozenset(parts.digests()) - done, forget=True)
            kept |= parts.kept
        return frozenset(kept)


class Lasting:
    """A home in a folder. about: what is simulated, by which another simulation is told from this one.

    Raises ConfigRefused if the folder holds another simulation, or one of another version, or is in use.
    """

    def __init__(self, folder: Path, about: Mapping[str, Plain]) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.spill = Spill(folder)
        self.journal, self.clock = RecordingJournal(self.spill), ManualClock()
        self._file = opened(folder / FILE)
        try:
            self._agree({"format": FORMAT, "version": __version__, "experiment": json.dumps(about, sort_keys=True)})
            self._folder = FolderParts(folder / PARTS, durable=False)
            self._folder.sweep()
            self.parts, self._vaults = KeptParts(self._folder, self.spill), dict[ClientId, LastingVault]()
            self.rounds = self._restore()
        except BaseException:
            self._file.close()
            raise

    def vault(self, site: ClientId) -> LastingVault:
        if site not in self._vaults:
            self._vaults[site] = LastingVault(site, self._folder, self.spill)
        return self._vaults[site]

    def keys(self, site: ClientId) -> Own:
        """A site's keys, the same as before it was killed: what is sealed to it must open."""
        found = self._file.execute("select sign, receive from keys where site = ?", (site,)).fetchone()
        if found:
            return Own(found[0], (found[1],))
        own = fresh()
        self._file.execute("insert into keys values (?, ?, ?)", (site, own.sign, own.receive[0]))
        return own

    def save(self) -> None:
        """Write what was done since the last time in one transaction; the parts that it names are there before."""
        calls = self.journal.taken()
        if not calls:
            return
        kept = self._save_parts()
        lines = [*map(shown, calls), *self._committed()]
        text = "\n".join(json.dumps(line, separators=(",", ":")) for line in lines)
        try:
            self._file.execute(
                "insert into rounds (now, calls) values (?, ?)", (self.clock.now(), zlib.compress(text.encode(), 1))
            )
            self._file.commit()
        except sqlite3.Error as cause:
            what = f"The simulation's journal {self.folder / FILE} cannot be written: {cause}"
            raise StorageFull(what, "Make room; begun again, it goes on where it was") from cause
        self._sweep(kept)

    def close(self) -> None:
        self._file.close()

    def remove(self) -> None:
        """Forget the simulation: it has ended. Its journal goes first: without it, the parts are nobody's."""
        for name in (FILE, f"{FILE}-wal", f"{FILE}-shm"):
            (self.folder / name).unlink(missing_ok=True)
        self.close()
        for digest in tuple(self._folder.digests()):
            self._folder.drop(digest)
        self._folder.sweep()
        for path in sorted(self.folder.rglob("*"), reverse=True):
            with suppress(OSError):
                path.rmdir()
        with suppress(OSError):
            self.folder.rmdir()

    def _committed(self) -> Iterator[list[Plain]]:
        for vault in self._vaults.values():
            for run, head in vault.committed.items():
                yield [HEAD, {"site": vault.site, "run": run, "head": plain(head), "kept": sorted(vault.parts(run).kept)}]
            vault.committed = {}

    def _save_parts(self) -> frozenset[Digest]:
        asked = frozenset(self.journal.open_names())
        self.parts.save(frozenset(self.journal.needed()), forget=False)
        return self.parts.kept.union(*(vault.save(asked) for vault in self._vaults.values()))

    def _sweep(self, kept: frozenset[Digest]) -> None:
        for digest in tuple(self._folder.digests()):
            if digest not in kept:
                self._folder.drop(digest)

    def _agree(self, about: Mapping[str, str]) -> None:
        """Hold the folder to what is simulated; one in which no round has closed is anybody's."""
        known = dict(self._file.execute("select name, value from about").fetchall())
        begun = self._file.execute("select 1 from rounds limit 1").fetchone() is not None
        for name, value in about.items():
            if begun and known.get(name) != value:
                todo = f"Name another folder, or remove {self.folder} to begin again"
                raise ConfigRefused(
                    f"{self.folder} holds a simulation of another {name}{differs(known, value)}", todo, path="out"
                )
        if not begun:
            self._file.execute("delete from keys")
        self._file.executemany("insert or replace into about values (?, ?)", about.items())
        self._file.commit()

    def _restore(self) -> int:
        """Make the recorded calls again; how many rows there were."""
        rows = 0
        for now, calls in self._file.execute("select now, calls from rounds order by id"):
            for line in zlib.decompress(calls).splitlines():
                name, arguments = json.loads(line)
                if name == HEAD:
                    self._restore_head(arguments)
                else:
                    self.journal.again(name, arguments)
            self.clock.advance(now - self.clock.now())
            rows += 1
        self.parts.kept = frozenset(self.journal.needed())
        here = frozenset(self._folder.digests())
        for parts in (self.parts, *(each for vault in self._vaults.values() for each in vault.all_parts())):
            parts.kept &= here
        return rows

    def _restore_head(self, given: Mapping[str, Plain]) -> None:
        run, head = RunId(str(given["run"])), read(Head, given["head"], HEAD)
        vault = self.vault(ClientId(str(given["site"])))
        vault.restore(run, head)
        vault.parts(run).kept = frozenset(read(tuple[Digest, ...], given["kept"], "kept"))


def opened(path: Path) -> sqlite3.Connection:
    """The file, which nobody else may have open. Sites' private keys lie in it: it is for its owner's eyes."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
        os.fchmod(descriptor, 0o600)
        os.close(descriptor)
    except OSError as cause:
        raise ConfigRefused(f"{path} cannot be opened: {cause.strerror}", "Name another folder", path="out") from None
    file = sqlite3.connect(path, timeout=0.0, check_same_thread=False)
    try:
        file.execute("pragma locking_mode = exclusive")
        file.execute("pragma journal_mode = wal")
        file.execute("pragma synchronous = normal")
        file.executescript(TABLES)
    except sqlite3.DatabaseError as cause:
        file.close()
        raise refusal(path, cause) from None
    return file


def refusal(path: Path, cause: sqlite3.DatabaseError) -> ConfigRefused:
    code = (getattr(cause, "sqlite_errorcode", 0) or 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return ConfigRefused(f"{path} is in use", "Wait for the simulation that writes to it, or end it", path="out")
    if code == sqlite3.SQLITE_NOTADB:
        return ConfigRefused(f"{path} is no journal of a simulation", "Name another folder", path="out")
    return ConfigRefused(f"{path} cannot be used: {cause}", "Look at its disk, or name another folder", path="out")


def differs(known: Mapping[str, str], value: str) -> str:
    """Where two experiments differ first, in words; nothing of what is no experiment."""
    with suppress(ValueError, TypeError):
        before, now = json.loads(known["experiment"]), json.loads(value)
        if isinstance(now, dict) and isinstance(before, dict):
            odd = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
            return f" (they differ in {', '.join(odd)})" if odd else ""
    return ""
