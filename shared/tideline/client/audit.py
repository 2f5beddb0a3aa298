"""Verify a coordinator's audit log, or an export of it; and remember how far it was verified, in a file of this user."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlencode

from tideline.client.http import Client
from tideline.client.logins import address, check_private, file_of_logins, locked, new_private, write_private
from tideline.client.output import clean, day
from tideline.core.errors import ChainBroken, ConfigRefused, IdentityRefused, Malformed
from tideline.core.settings import EMPTY
from tideline.engine.audit.log import Entry, Tip, check_next, ends_at, entry_of, line_of, read_line

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
class Followed:
    """A chain that is whole: its last entry, and how far it was verified before."""

    tip: Tip
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


def verify(client: Client, forget: bool) -> Followed:
    """Verify a coordinator's whole chain, and remember how far. Raises ChainBroken; then the former memory stays."""
    known = verified_logs().get(address(client.base_url))
    before, tip = None if forget else known, tip_of(client)
    if before is not None and tip.seq < before.seq:
        what = f"The log ends with entry {tip.seq}; on {day(before.at)} it had {before.seq} entries: it was cut off"
        raise ChainBroken(what, LATER, entry=tip.seq + 1, found=tip.hash, expected=before.hash)
    for _ in checked(client, tip, before):
        pass
    save(client.base_url, Verified(tip.seq, tip.hash, time.time()), forget)
    return Followed(tip, before)


def tip_of(client: Client) -> Tip:
    row = client.get("/audit/tip")
    return Tip(int(row["seq"]), str(row["hash"]))


def export(client: Client, out: Path) -> Tip:
    """Write a coordinator's log into a file, if it is whole; the last entry. Raises ChainBroken; then there is no file."""
    tip, out = tip_of(client), out.resolve()
    if out.exists() and not out.is_file():
        raise ConfigRefused(f"--out {out} is not a file", "Name a file, which is overwritten", path="--out")
    with new_private(out) as file:
        file.writelines(line_of(entry) + "\n" for entry in checked(client, tip))
    return tip


def checked(client: Client, tip: Tip, before: Verified | None = None) -> Iterator[Entry]:
    """A coordinator's entries up to a tip, each once the chain is whole so far. Raises ChainBroken.

    before: an entry that the chain must have; newer ones than the tip are left to the next time.
    """
    last = Tip()
    for entry in itertools.takewhile(lambda each: each.seq <= tip.seq, entries(client)):
        check_next(last, entry)
        last = Tip(entry.seq, entry.hash)
        if before is not None and entry.seq == before.seq and last != before.tip:
            what = f"Entry {entry.seq} differs from that of {day(before.at)}: its hash was {before.hash[:12]}"
            what += f" and is {entry.hash[:12]}. It was rewritten, or one before it"
            raise ChainBroken(what, LATER, entry=entry.seq, found=entry.hash, expected=before.hash)
        yield entry
    ends_at(last, tip)


def verify_file(path: Path, tip: str = "") -> Followed:
    """Verify the chain of an export. tip: the hash of its last entry, if you know it. Raises ChainBroken."""
    last = Tip()
    with path.open(encoding="ascii", errors="backslashreplace", newline="\n") as file:
        for number, line in enumerate(file, 1):
            entry = read_line(number, line.removesuffix("\n"))
            check_next(last, entry)
            last = Tip(entry.seq, entry.hash)
    if not last.seq:
        raise Malformed(f"{clean(str(path))} contains no entry", "Give a file that `tideline audit export` wrote")
    if tip not in ("", last.hash):
        what = f"The file ends with entry {last.seq}, whose hash is {last.hash[:12]} and not {tip[:12]}"
        todo = "It was cut off, or is not the export of this hash: export the log again"
        raise ChainBroken(what, todo, entry=last.seq + 1, found=last.hash, expected=tip)
    return Followed(last)


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
