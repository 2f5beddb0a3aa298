"""Verify a coordinator's audit log, or an export of it; and remember how far it was verified, in a file of this user."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlencode

from tideline.client.http import Client
from tideline.client.logins import address, check_private, file_of_logins, locked, new_private, write_private
from tideline.client.output import clean, day
from tideline.core.errors import ChainBroken, ConfigRefused, IdentityRefused, Malformed
from tideline.core.settings import EMPTY
from tideline.engine.audit.archived import Span, base_in, chain_in, spans_in
from tideline.engine.audit.log import BACKUP, Entry, Tip, check_next, ends_at, entry_of, line_of, read_line

TRIES = 4  # at a log that loses entries to its archive while it is read
PAGE = 1000  # entries in one call
LATER = "If the database was restored from a backup, or is a new one, verify once with --forget; else save a copy of it as it is"


@dataclass(frozen=True)
class Verified:
    """The last entry of a log that was verified, and when (seconds since the epoch)."""

    seq: int
    hash: str
    at: float

    @property
    def tip(self) -> Tip:
        return Tip(self.seq, self.hash)


@dataclass(frozen=True)
class Ends:
    """Where a coordinator's log ends, and the last entry of the archive behind which it begins."""

    tip: Tip
    base: Tip


@dataclass(frozen=True)
class Followed:
    """A chain that is whole: its last entry, the one behind which it begins, and how far it was verified before."""

    tip: Tip
    base: Tip = Tip()
    before: Verified | None = None


def entries(client: Client, about: Mapping[str, str | float | None] = EMPTY) -> Iterator[Entry]:
    """A coordinator's entries, page by page. about: filters of GET /audit. Raises Malformed."""
    after = 0
    while True:
        query = {**{k: v for k, v in about.items() if v not in (None, "")}, "after": after, "limit": PAGE}
        rows = client.get(f"/audit?{urlencode(query)}")
        try:
            page = [entry_of(row) for row in rows]
        except (ValueError, TypeError, KeyError, OverflowError):
            raise Malformed("The coordinator's audit log cannot be read", "Install the same version on both ends") from None
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].seq


def verify(client: Client, forget: bool, archive: Path | None = None) -> Followed:
    """Verify a coordinator's whole chain, and remember how far. Raises ChainBroken; then the former memory stays.

    archive: the folder with the entries that left the database. Raises ConfigRefused where only it can tell whether what was
    verified before has changed.
    """
    known = verified_logs().get(address(client.base_url))
    before = None if forget else known
    ends = steadily(client, lambda ends: follow_log(client, ends, before, archive))
    save(client.base_url, Verified(ends.tip.seq, ends.tip.hash, time.time()), forget)
    return Followed(ends.tip, ends.base if archive is None else Tip(), before)


def follow_log(client: Client, ends: Ends, before: Verified | None, archive: Path | None) -> None:
    """Follow a coordinator's log, behind its archive if that is given, to its tip. Raises ChainBroken, ConfigRefused."""
    if before is not None and ends.tip.seq < before.seq:
        what = f"The log ends with entry {ends.tip.seq}; on {day(before.at)} it had {before.seq} entries: it was cut off"
        raise ChainBroken(what, LATER, entry=ends.tip.seq + 1, found=ends.tip.hash, expected=before.hash)
    if archive is not None:
        for entry in chain_in(*opened(archive), ends.base.seq):
            remembered(entry, before)
            begins_at(entry, ends.base)
    elif before is not None and before.seq < ends.base.seq:
        what = f"The log begins with entry {ends.base.seq + 1}, and you verified {before.seq} on {day(before.at)}"
        todo = "Give --archive DIR, a folder with the audit log's archive; or --forget to go on without what you verified"
        raise ConfigRefused(what, todo, path="--archive")
    elif before is not None and before.seq == ends.base.seq:
        differs(before, ends.base)
    for entry in checked(client, ends):
        remembered(entry, before)


def steadily(client: Client, work: Callable[[Ends], object]) -> Ends:
    """Do it over a log that may lose entries to the archive meanwhile: then it is done again. Raises ChainBroken."""
    for left in reversed(range(TRIES)):
        ends = ends_of(client)
        try:
            work(ends)
            break
        except ChainBroken:
            if not left or ends_of(client).base == ends.base:
                raise
    return ends


def ends_of(client: Client) -> Ends:
    row = client.get("/audit/tip")
    return Ends(Tip(int(row["seq"]), str(row["hash"])), Tip(int(row["archived"]), str(row["archived_hash"])))


def export(client: Client, out: Path) -> Ends:
    """Write a coordinator's log into a file, if it is whole; where it ends. Raises ChainBroken; then there is no file."""
    out = out.resolve()
    if out.exists() and not out.is_file():
        raise ConfigRefused(f"--out {out} is not a file", "Name a file, which is overwritten", path="--out")

    def written(ends: Ends) -> None:
        with new_private(out) as file:
            file.writelines(line_of(entry) + "\n" for entry in checked(client, ends))

    return steadily(client, written)


def checked(client: Client, ends: Ends) -> Iterator[Entry]:
    """A coordinator's entries up to a tip, each once the chain is whole so far. Raises ChainBroken.

    Newer ones than the tip are left to the next time.
    """
    last, claimed = ends.base, Tip()
    for entry in itertools.takewhile(lambda each: each.seq <= ends.tip.seq, entries(client)):
        check_next(last, entry)
        last, claimed = Tip(entry.seq, entry.hash), base_in(entry) or claimed
        yield entry
    ends_at(last, ends.tip)
    begins_behind(ends.base, claimed)


def begins_behind(base: Tip, claimed: Tip) -> None:
    """Raises ChainBroken unless a log says itself that the entries before it were archived."""
    if base != claimed:
        said = f"entry {claimed.seq} was the last to be archived" if claimed.seq else "none was archived"
        what = f"The log begins with entry {base.seq + 1}, and its entries say that {said}"
        raise ChainBroken(what, BACKUP, entry=base.seq + 1, found=base.hash, expected=claimed.hash)


def begins_at(entry: Entry, base: Tip) -> None:
    """Raises ChainBroken unless the archive leads to the entry behind which the database goes on."""
    if entry.seq == base.seq and entry.hash != base.hash:
        what = f"The archive's entry {entry.seq} has the hash {entry.hash[:12]}, and the database goes on behind {base.hash[:12]}"
        raise ChainBroken(what, BACKUP, entry=entry.seq, found=entry.hash, expected=base.hash)


def remembered(entry: Entry, before: Verified | None) -> None:
    """Raises ChainBroken if this entry was verified before, and was another."""
    if before is not None and entry.seq == before.seq:
        differs(before, Tip(entry.seq, entry.hash))


def differs(before: Verified, now: Tip) -> None:
    """Raises ChainBroken unless what was verified before is as it was."""
    if now != before.tip:
        what = f"Entry {now.seq} differs from that of {day(before.at)}: its hash was {before.hash[:12]}"
        what += f" and is {now.hash[:12]}. It was rewritten, or one before it"
        raise ChainBroken(what, LATER, entry=now.seq, found=now.hash, expected=before.hash)


def opened(folder: Path) -> tuple[tuple[Span, ...], Callable[[Span], bytes]]:
    """The files of an archive, and how one is read. Raises ConfigRefused."""
    try:
        spans = spans_in(path.name for path in folder.iterdir())
    except OSError as error:
        what = f"The archive {clean(str(folder))} cannot be read: {error.strerror}"
        raise ConfigRefused(what, "Name the folder of --audit-archive, or a copy of it", path="--archive") from None
    return spans, lambda span: (folder / span.name).read_bytes()


def verify_file(path: Path, tip: str = "", archive: Path | None = None) -> Followed:
    """Verify the chain of an export, or of the files of an archive if it is a folder. Raises ChainBroken.

    tip: the hash of its last entry, if you know it. archive: the folder with the entries before the export's first one.
    """
    last, base = follow_folder(path) if path.is_dir() else follow_file(path, archive)
    if not last.seq:
        raise Malformed(f"{clean(str(path))} contains no entry", "Give a file that `tideline audit export` wrote")
    if tip not in ("", last.hash):
        what = f"The file ends with entry {last.seq}, whose hash is {last.hash[:12]} and not {tip[:12]}"
        todo = "It was cut off, or is not the export of this hash: export the log again"
        raise ChainBroken(what, todo, entry=last.seq + 1, found=last.hash, expected=tip)
    return Followed(last, base)


def places_in(path: Path) -> Iterator[tuple[int, str]]:
    """The numbers and hashes of a log's export, or of the files of an archive if it is a folder."""
    if path.is_dir():
        yield from ((entry.seq, entry.hash) for entry in chain_in(*opened(path)))
        return
    with path.open(encoding="ascii", errors="backslashreplace", newline="\n") as file:
        for number, line in enumerate(file, 1):
            entry = read_line(number, line.removesuffix("\n"))
            yield entry.seq, entry.hash


def follow_folder(folder: Path) -> tuple[Tip, Tip]:
    """The last entry of an archive, which begins at the very first one."""
    last = Tip()
    for entry in chain_in(*opened(folder)):
        last = Tip(entry.seq, entry.hash)
    return last, Tip()


def follow_file(path: Path, archive: Path | None) -> tuple[Tip, Tip]:
    """The last entry of an export, and the one behind which it begins, as the archive has it, or as it says itself."""
    last = base = Tip()
    with path.open(encoding="ascii", errors="backslashreplace", newline="\n") as file:
        for number, line in enumerate(file, 1):
            entry = read_line(number, line.removesuffix("\n"))
            if number == 1 and entry.seq > 1:
                last = base = behind(entry.seq - 1, path, archive)
            check_next(last, entry)
            last = Tip(entry.seq, entry.hash)
    return last, base if archive is None else Tip()


def behind(seq: int, path: Path, archive: Path | None) -> Tip:
    """The entry before an export's first one, which has this number. Raises ChainBroken; ConfigRefused if nothing tells it."""
    if archive is not None:
        last = Tip()
        for entry in chain_in(*opened(archive), seq):
            last = Tip(entry.seq, entry.hash)
        return last
    with path.open(encoding="ascii", errors="backslashreplace", newline="\n") as file:
        for line in file:
            with suppress(ChainBroken):
                found = base_in(read_line(0, line.removesuffix("\n")))
                if found is not None and found.seq == seq:
                    return found
    what = f"{clean(str(path))} begins with entry {seq + 1}, and none of its entries tells of those before"
    raise ConfigRefused(what, "Give --archive DIR, the folder with the files before it", path="--archive")


def file_of_tips() -> Path:
    """The file that says how far each log was verified, beside the logins."""
    return file_of_logins().with_name("audit.json")


def verified_logs() -> dict[str, Verified]:
    """How far each log was verified, by address. Raises IdentityRefused for a damaged file or one that others can read."""
    path = file_of_tips()
    try:
        with path.open(encoding="utf-8") as file:
            check_private(path, path.stat())
            rows = json.load(file).items()
        read = [(address(url), Verified(int(row["seq"]), str(row["hash"]), float(row["at"]))) for url, row in rows]
        return dict(sorted(read, key=lambda each: each[1].seq))  # of two spellings the one that was verified further
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as cause:
        what = f"{path} cannot be read ({type(cause).__name__})"
        raise IdentityRefused(what, "Restore a copy of it, or delete it and verify the log again") from None


def save(url: str, verified: Verified, forget: bool = False) -> None:
    """Remember how far a log was verified. If another process came further meanwhile, that stays, unless `forget`."""
    path = file_of_tips()
    with locked(path):
        known, at = verified_logs(), address(url)
        if forget or at not in known or known[at].seq <= verified.seq:
            known[at] = verified
        write_private(path, json.dumps({url: asdict(row) for url, row in known.items()}, indent=1))
