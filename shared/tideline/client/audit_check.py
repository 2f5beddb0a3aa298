"""Reading an audit log from a coordinator or from a file, and following its chain here."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlencode

from tideline.cli.guard import clean
from tideline.client import audit_tips
from tideline.client.audit_tips import Verified
from tideline.client.http import Client
from tideline.client.logins import address, anew
from tideline.core.errors import ChainBroken, ConfigRefused, Malformed
from tideline.engine.audit.log import Entry, Tip, check_next, ends_at, entry_of, line_of, read_line

PAGE = 1000  # entries in one call
LATER = "If the database was restored from a backup, or is a new one, verify once with --forget; else keep a copy of it as it is"


@dataclass(frozen=True)
class Followed:
    """A chain that is whole: how far, and how far it was verified before."""

    tip: Tip
    before: Verified | None = None


def entries(there: Client, **about: Any) -> Iterator[Entry]:
    """A coordinator's entries, page by page. Raises Malformed for what is none."""
    after = 0
    while True:
        asked = {**{k: v for k, v in about.items() if v not in (None, "")}, "after": after, "limit": PAGE}
        rows = there.get(f"/audit?{urlencode(asked)}")
        try:
            page = [entry_of(row) for row in rows]
        except (ValueError, TypeError, KeyError, OverflowError):
            raise Malformed("The coordinator's audit log cannot be read", "Install the same version on both ends") from None
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].seq


def verified(there: Client, forget: bool) -> Followed:
    """Follow a coordinator's whole chain, and remember how far. Raises ChainBroken; then what was known before is known still."""
    known = audit_tips.tips().get(address(there.base_url))
    before, tip = None if forget else known, tip_of(there)
    if before is not None and tip.seq < before.seq:
        raise ChainBroken(
            f"The log ends with entry {tip.seq}; on {day(before.at)} it had {before.seq} entries: it was cut off",
            LATER,
            entry=tip.seq + 1,
            found=tip.hash,
            expected=before.hash,
        )
    walk(up_to(entries(there), tip.seq), tip, before)
    audit_tips.keep(there.base_url, Verified(tip.seq, tip.hash, time.time()), forget)
    return Followed(tip, before)


def tip_of(there: Client) -> Tip:
    """The last entry, as a coordinator tells it."""
    told = there.get("/audit/tip")
    return Tip(int(told["seq"]), str(told["hash"]))


def exported(there: Client, out: Path) -> Tip:
    """Write a coordinator's log into a file, if it is whole; the last entry. Raises ChainBroken; then there is no file."""
    tip, out = tip_of(there), out.resolve()
    if out.exists() and not out.is_file():
        raise ConfigRefused(f"--out {out} is no file", "Name a file, which is written anew", path="--out")
    with anew(out) as file:
        walk(copied(up_to(entries(there), tip.seq), file), tip, None)
    return tip


def copied(found: Iterable[Entry], file: TextIO) -> Iterator[Entry]:
    """The entries, each written once whoever gets it has asked for the next."""
    for entry in found:
        yield entry
        file.write(line_of(entry) + "\n")


def up_to(found: Iterable[Entry], last: int) -> Iterator[Entry]:
    """The entries up to a number; what is written meanwhile is left to the next time."""
    for entry in found:
        if entry.seq > last:
            return
        yield entry
        if entry.seq == last:
            return


def walk(found: Iterable[Entry], tip: Tip, before: Verified | None) -> None:
    """Follow a chain to its tip, by way of what was verified before. Raises ChainBroken."""
    last = Tip()
    for entry in found:
        check_next(last, entry)
        last = Tip(entry.seq, entry.hash)
        if before is not None and entry.seq == before.seq and last != before.tip:
            raise ChainBroken(
                f"Entry {entry.seq} is another than on {day(before.at)}: its hash was {before.hash[:12]} and is "
                f"{entry.hash[:12]}. It was rewritten, or one before it",
                LATER,
                entry=entry.seq,
                found=entry.hash,
                expected=before.hash,
            )
    ends_at(last, tip)


def verified_file(path: Path, tip: str = "") -> Followed:
    """Follow the chain of an export. tip: the hash of its last entry, if it is known. Raises ChainBroken."""
    last = Tip()
    with path.open(encoding="ascii", errors="backslashreplace", newline="\n") as file:
        for number, line in enumerate(file, 1):
            entry = read_line(number, line.removesuffix("\n"))
            check_next(last, entry)
            last = Tip(entry.seq, entry.hash)
    if not last.seq:
        raise Malformed(f"{clean(str(path))} holds no entry", "Give a file that `tideline audit export` wrote")
    if tip not in ("", last.hash):
        raise ChainBroken(
            f"The file ends with entry {last.seq}, whose hash is {last.hash[:12]} and not {tip[:12]}",
            "It was cut off, or is another export than the one of this hash: export the log again",
            entry=last.seq + 1,
            found=last.hash,
            expected=tip,
        )
    return Followed(last)


def day(at: float) -> str:
    """A moment, in this machine's time; as a number, if no calendar has it."""
    try:
        return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return f"{at:g}"
