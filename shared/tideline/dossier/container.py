"""The file of a dossier: a zip archive in one form alone, so that equal contents are equal bytes, and no byte is left over.

Members stand in one order, as they are (no compression), with one date and no gaps, comments or extra fields. A reader works out
what each byte between the members has to be. So nothing can hide beside them, and a hostile file has no room for anything that
grows, repeats, or names a place on the reader's disk.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO

from tideline.core.errors import DossierBroken, Refused

LOCAL, CENTRAL, END = struct.Struct("<4s5H3I2H"), struct.Struct("<4s6H3I5H2I"), struct.Struct("<4s4H2IH")
NEEDED, UNIX, PLAIN_FILE = 10, 3 << 8, 0o100644 << 16
TIME, DATE = 0, 0x21  # midnight of 1980-01-01, the first that a zip archive can say
MOST_BYTES = 1 << 28  # of a dossier
CHUNK_BYTES = 1 << 20
MOST_NAMES, LONGEST_NAME = 64, 80  # of a foreign file, as far as they are named in an error
AGAIN = "Get the dossier again: `tideline run dossier`. Keep this file if you suspect that somebody changed it"


@dataclass(frozen=True)
class Member:
    """A member's place: where its header begins, its size, and the sums of its content."""

    name: str
    offset: int
    size: int
    crc: int
    digest: str = ""

    @property
    def begin(self) -> int:
        return self.offset + LOCAL.size + len(self.name)

    @property
    def end(self) -> int:
        return self.begin + self.size


@dataclass
class Writer:
    """Writes a dossier's members into a file that can seek, one after the other. most: bytes of the whole."""

    file: IO[bytes]
    most: int = MOST_BYTES
    members: list[Member] = field(default_factory=list)

    @contextmanager
    def member(self, name: str) -> Iterator[Callable[[bytes], None]]:
        """A member to write: what is called with its bytes, in order. Raises Refused beyond the limit."""
        offset, size, crc, digest = self._end, 0, 0, hashlib.sha256()
        self.file.seek(offset)
        self.file.write(bytes(LOCAL.size + len(name)))

        def write(content: bytes) -> None:
            nonlocal size, crc
            if offset + size + len(content) > self.most:
                raise Refused(
                    f"The dossier would have more than {self.most // 10**6} MB",
                    "The same facts, by commands: `tideline run report`, `tideline contract`, `tideline audit export`",
                )
            size, crc = size + len(content), zlib.crc32(content, crc)
            digest.update(content)
            self.file.write(content)

        yield write
        made = Member(name=name, offset=offset, size=size, crc=crc, digest=digest.hexdigest())
        self.members.append(made)
        self.file.seek(offset)
        self.file.write(local_header(made))

    def add(self, name: str, content: bytes) -> None:
        with self.member(name) as write:
            write(content)

    def finish(self) -> int:
        """Write what stands behind the members; the size of the whole."""
        self.file.seek(self._end)
        self.file.write(directory(self.members))
        self.file.truncate()
        return self.file.tell()

    @property
    def _end(self) -> int:
        return self.members[-1].end if self.members else 0


def local_header(of: Member) -> bytes:
    """What stands before a member's content."""
    name = of.name.encode("ascii")
    head = LOCAL.pack(b"PK\x03\x04", NEEDED, 0, 0, TIME, DATE, of.crc, of.size, of.size, len(name), 0)
    return head + name


def central_header(of: Member) -> bytes:
    """What stands of a member in the directory at the end."""
    name = of.name.encode("ascii")
    sums = (of.crc, of.size, of.size, len(name), 0, 0, 0, 0, PLAIN_FILE, of.offset)
    return CENTRAL.pack(b"PK\x01\x02", UNIX | NEEDED, NEEDED, 0, 0, TIME, DATE, *sums) + name


def directory(members: Sequence[Member]) -> bytes:
    """All that stands behind the members."""
    rows = b"".join(map(central_header, members))
    begin = members[-1].end if members else 0
    return rows + END.pack(b"PK\x05\x06", 0, 0, len(members), len(members), len(rows), begin, 0)


def members_in(file: IO[bytes], names: Sequence[str]) -> tuple[Member, ...]:
    """The members of a dossier of these names, in this order. Raises DossierBroken unless every byte behind them is right."""
    size = file.seek(0, 2)
    behind = sum(CENTRAL.size + len(name) for name in names) + END.size
    if size > MOST_BYTES + behind:
        raise DossierBroken(f"The file has {size} bytes, more than a dossier can have", AGAIN, member="")
    tail = read_at(file, max(size - behind, 0), behind)
    found, at, offset = list[Member](), 0, 0
    for name in names:
        row = tail[at : at + CENTRAL.size + len(name)]
        if len(row) < CENTRAL.size + len(name) or row[CENTRAL.size :] != name.encode("ascii"):
            raise other_members(file, size, names)
        crc, length = CENTRAL.unpack(row[: CENTRAL.size])[7:9]
        member = Member(name=name, offset=offset, size=length, crc=crc)
        if row != central_header(member) or member.end > size - behind:
            raise DossierBroken(f"The archive's directory is not as it was written where it lists {name}", AGAIN, member=name)
        found.append(member)
        at, offset = at + len(row), member.end
    if tail != directory(found) or offset != size - behind:
        raise DossierBroken(
            "The archive's end is not as it was written, or there is something between its members", AGAIN, member=""
        )
    return tuple(found)


def checked(file: IO[bytes], member: Member) -> Iterator[bytes]:
    """A member's content, piece by piece. Raises DossierBroken at its end unless it and its header are as they were written."""
    if read_at(file, member.offset, member.begin - member.offset) != local_header(member):
        raise DossierBroken(
            f"What stands before {member.name} in the archive is not as it was written", AGAIN, member=member.name
        )
    at, crc = member.begin, 0
    while at < member.end:
        piece = read_at(file, at, min(CHUNK_BYTES, member.end - at))
        if not piece:
            break
        at, crc = at + len(piece), zlib.crc32(piece, crc)
        yield piece
    if at != member.end or crc != member.crc:
        raise changed(member.name)


def changed(name: str) -> DossierBroken:
    return DossierBroken(f"{name} is not as it was signed", AGAIN, member=name)


def read_at(file: IO[bytes], at: int, size: int) -> bytes:
    file.seek(at)
    return file.read(size)


def other_members(file: IO[bytes], size: int, names: Sequence[str]) -> DossierBroken:
    """The error for a file that has other members, as far as its own directory can be read."""
    found = names_in(file, size)
    if not found:
        return DossierBroken("The file is no dossier, or it was cut off", AGAIN, member="")
    twice = [name for name in dict.fromkeys(found) if found.count(name) > 1]
    more, less = [name for name in found if name not in names], [name for name in names if name not in found]
    if twice:
        what = f"The file has {shown(twice)} twice"
    elif more:
        what = f"The file has what no dossier has: {shown(more)}"
    elif less:
        what = f"The file lacks {shown(less)}"
    else:
        what = "The members of the file stand in another order"
    return DossierBroken(
        what,
        f"{AGAIN}. Or it is of another version: then use the tideline that made it",
        member=(twice or more or less or [""])[0],
    )


def names_in(file: IO[bytes], size: int) -> list[str]:
    """The names that a foreign archive's directory lists, the first so many of them."""
    if size < END.size or read_at(file, size - END.size, 4) != b"PK\x05\x06":
        return []
    _, _, _, _, count, length, begin, _ = END.unpack(read_at(file, size - END.size, END.size))
    rows, at, found = read_at(file, begin, min(length, MOST_NAMES * (CENTRAL.size + 2 * LONGEST_NAME))), 0, list[str]()
    while len(found) < min(count, MOST_NAMES) and rows[at : at + 4] == b"PK\x01\x02" and len(rows) >= at + CENTRAL.size:
        name_bytes, extra, comment = CENTRAL.unpack(rows[at : at + CENTRAL.size])[10:13]
        name = rows[at + CENTRAL.size : at + CENTRAL.size + name_bytes]
        found.append(name[:LONGEST_NAME].decode("ascii", "backslashreplace"))
        at += CENTRAL.size + name_bytes + extra + comment
    return found


def shown(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")
