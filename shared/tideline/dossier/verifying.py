"""Checks a dossier, offline: every byte of it, its signature, the log's entries in it, and that its files say the same."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tideline.core.errors import ConfigRefused, DossierBroken
from tideline.core.settings import EMPTY
from tideline.dossier.container import AGAIN, Member, changed, checked, members_in
from tideline.dossier.excerpt import Linked, in_order, read_linked
from tideline.dossier.layout import AUDIT, FIRST_LINE, HEADS, KEY, NAMES, PARTS, REPLIES, RUN, SIGNATURE, SUMS
from tideline.dossier.signing import fingerprint_of, is_signed, public_key

LINE = re.compile("([0-9a-f]{64})  ([A-Za-z0-9.]+)")
MOST_SIGNED = 4096  # bytes of SHA256SUMS, of the key and of the signature
MOST_PART = 1 << 26  # bytes of one file that is read as a whole
LONGEST_LINE = 1 << 22
OF_ANOTHER = "The log is another coordinator's, or one of both was rewritten: ask for both again, and keep these"
OTHER = "Ask the coordinator's admin, by another way than this file, which fingerprint its key has: `tideline dossier signer`"


@dataclass(frozen=True)
class Dossier:
    """What a good dossier is of.

    signer: the fingerprint of its key. trusted: whether it is the one that was asked for. places: the hashes of the log's entries
    that it names, by their numbers.
    """

    run: Mapping[str, Any]
    heads: Mapping[str, Any]
    signer: str
    trusted: bool
    entries: int
    replies: int
    places: Mapping[int, str] = field(default_factory=lambda: EMPTY)


def verify(path: Path, signer: str = "") -> Dossier:
    """Verify a dossier. signer: the fingerprint that its key must have; empty: any. Raises DossierBroken, ConfigRefused."""
    try:
        with path.open("rb") as file:
            return read(file, signer)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as cause:
        raise ConfigRefused(f"{path} cannot be read: {cause.strerror}", "Name the file of a dossier", path="FILE") from None


def read(file: IO[bytes], signer: str = "") -> Dossier:
    """The same of an open file."""
    members = {each.name: each for each in members_in(file, NAMES)}
    found = check_signature(file, members, signer)
    parts = {name: json_in(name, whole(file, members[name], MOST_PART)) for name in PARTS}
    run, heads = parts[RUN], parts[HEADS]
    try:
        accepted, places = check_excerpt(lines_of(file, members[AUDIT]), str(run["run"]), heads)
        replies = check_replies(lines_of(file, members[REPLIES]), accepted, bool(heads["whole"]))
        finished, as_of = run["finished"], run["as_of"]["utc"]
    except (KeyError, TypeError, AttributeError, IndexError, ValueError):
        raise DossierBroken("The files of the dossier do not say what a dossier says", AGAIN, member=RUN) from None
    if not isinstance(finished, bool) or not isinstance(as_of, str | None):
        raise DossierBroken(f"{RUN} does not say how far the run is", AGAIN, member=RUN)
    count = int(heads["entries"])
    return Dossier(run=run, heads=heads, signer=found, trusted=bool(signer), entries=count, replies=replies, places=places)


def check_signature(file: IO[bytes], members: Mapping[str, Member], signer: str) -> str:
    """Every byte against the list of sums, and that against its signature; the fingerprint of the key. Raises DossierBroken."""
    sums, pem, signature = (whole(file, members[name], MOST_SIGNED) for name in (SUMS, KEY, SIGNATURE))
    listed = sums_in(sums)
    for name in NAMES[:-2]:
        if digest_of(file, members[name]) != listed[name]:
            raise changed(name)
    key = public_key(pem)
    found = fingerprint_of(key)
    if not is_signed(key, signature, sums):
        what = f"The signature does not fit: {SUMS} or {SIGNATURE} is not as the key {found[:16]} wrote it"
        raise DossierBroken(what, AGAIN, member=SIGNATURE)
    if signer and signer != found:
        what = f"The dossier is signed by the key {found}, and not by {signer}"
        raise DossierBroken(what, OTHER, member=KEY, found=found, expected=signer)
    return found


def sums_in(content: bytes) -> Mapping[str, str]:
    """The sums of the files, by name. Raises DossierBroken."""
    lines = content.decode("ascii", "backslashreplace").removeprefix(FIRST_LINE).split("\n")
    found = [LINE.fullmatch(line) for line in lines[:-1]]
    listed = {each[2]: each[1] for each in found if each}
    if content != sums_of(listed) or list(listed) != list(NAMES[:-2]):
        todo = f"{AGAIN}. Or it is of another version: then use the tideline that made it"
        raise DossierBroken(f"{SUMS} is not as a dossier has it", todo, member=SUMS)
    return listed


def sums_of(listed: Mapping[str, str]) -> bytes:
    """What is signed: the files' SHA-256, as `sha256sum` writes them."""
    return (FIRST_LINE + "".join(f"{digest}  {name}\n" for name, digest in listed.items())).encode("ascii")


def whole(file: IO[bytes], member: Member, most: int) -> bytes:
    if member.size > most:
        raise DossierBroken(f"{member.name} has {member.size} bytes, more than it can have", AGAIN, member=member.name)
    return b"".join(checked(file, member))


def digest_of(file: IO[bytes], member: Member) -> str:
    digest = hashlib.sha256()
    for piece in checked(file, member):
        digest.update(piece)
    return digest.hexdigest()


def json_in(name: str, content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise DossierBroken(f"{name} is no JSON object", AGAIN, member=name)
    return found


def lines_of(file: IO[bytes], member: Member) -> Iterator[bytes]:
    """A file's lines. Raises DossierBroken for one that does not end."""
    held = b""
    for piece in checked(file, member):
        *lines, held = (held + piece).split(b"\n")
        yield from lines
        if len(held) > LONGEST_LINE:
            break
    if held:
        raise DossierBroken(f"{member.name} has a line that is too long, or does not end", AGAIN, member=member.name)


def check_excerpt(lines: Iterator[bytes], run: str, heads: Mapping[str, Any]) -> tuple[dict[str, Any], dict[int, str]]:
    """Compute each entry's hash again; what each accepted order brought, and hashes by their numbers. Raises DossierBroken."""
    first: Linked | None = None
    last: Linked | None = None
    accepted: dict[str, Any] = {}
    places: dict[int, str] = {}
    count = 0
    for number, line in enumerate(lines, 1):
        found = read_linked(number, line)
        in_order(last, found)
        first, last, count = first or found, found, number
        places |= {found.entry.seq - 1: found.before, found.entry.seq: found.entry.hash}
        if found.entry.kind == "reply_accepted" and found.entry.run == run:
            accepted[str(found.entry.details["order"])] = files_in(found.entry.details)
    for name, place in (("excerpt_first", first), ("excerpt_last", last)):
        check_place(name, heads[name], place)
    if heads["entries"] != count or (last is not None and (not heads["head"] or heads["head"]["seq"] < last.entry.seq)):
        raise DossierBroken(f"{HEADS} tells of another excerpt than {AUDIT} has", AGAIN, member=HEADS)
    for name in ("begins", "archived", "head"):
        if heads[name] and places.setdefault(int(heads[name]["seq"]), heads[name]["hash"]) != heads[name]["hash"]:
            raise DossierBroken(f"{HEADS}: {name} is another entry than {AUDIT} has there", AGAIN, member=HEADS)
    places.pop(0, None)  # before the first entry there is none
    return accepted, places


def hold_to(found: Dossier, log: Iterable[tuple[int, str]], name: str) -> int:
    """Compare a dossier with a log that is whole: how many of the entries that it names were there. Raises DossierBroken.

    log: numbers and hashes of all entries. name: of the log, for people.
    """
    count = 0
    for seq, digest in log:
        if seq not in found.places:
            continue
        if found.places[seq] != digest:
            what = f"The dossier has the hash {found.places[seq][:16]} for entry {seq}, and {name} has {digest[:16]}"
            raise DossierBroken(what, OF_ANOTHER, member=AUDIT, entry=seq)
        count += 1
    if not count:
        raise DossierBroken(f"{name} has none of the entries that the dossier names", OF_ANOTHER, member=AUDIT)
    return count


def check_place(name: str, said: Mapping[str, Any] | None, found: Linked | None) -> None:
    ours = None if found is None else (found.entry.seq, found.entry.hash)
    if (None if said is None else (said["seq"], said["hash"])) != ours:
        raise DossierBroken(f"{HEADS}: {name} is another entry than {AUDIT} has there", AGAIN, member=HEADS)


def check_replies(lines: Iterator[bytes], accepted: Mapping[str, Any], whole_log: bool) -> int:
    """Hold the rows of replies to the log's entries; how many there are. Raises DossierBroken."""
    seen, count = set[str](), 0
    for number, line in enumerate(lines, 1):
        row, count = json_in(f"{REPLIES}, line {number}", line), number
        order = str(row["order"])
        said, logged = files_in(row), accepted.get(order)
        known = row["outcome"] != "accepted" or not whole_log if logged is None else said == logged
        if not known or order in seen:
            raise DossierBroken(f"{REPLIES}, line {number}: {AUDIT} tells otherwise of the order {order}", AGAIN, member=REPLIES)
        seen.add(order)
    if missing := accepted.keys() - seen:
        raise DossierBroken(f"{REPLIES} lacks the order {min(missing)}, which {AUDIT} has", AGAIN, member=REPLIES)
    return count


def files_in(said: Mapping[str, Any]) -> tuple[Sequence[Any], Any]:
    return said["files"], said.get("listing")
