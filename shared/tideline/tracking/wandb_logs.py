"""The logs that wandb keeps of a run, offline and online: one in each folder, which `wandb sync` sends.

A log is a row of records, each in chunks that say their checksum, length and kind, in blocks of 32 KiB. What a kill left half
written at its end is no record.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROUND, STEP = "round", "_step"
WRITTEN, YES = "tideline.written", "yes"  # written before the end of a run whose page is over
MAGIC = b":W&B\xe1\xbe\x00"
BLOCK = 32768
CHUNK = struct.Struct("<IHB")
WHOLE, FIRST, LAST = 1, 2, 4
FOLDERS = ("run-", "offline-run-")
OFFLINE = FOLDERS[1]


class Log:
    """One log, which is read on from where it was read to."""

    def __init__(self, path: Path) -> None:
        self.path, self._at = path, 0

    def more(self) -> Iterator[Any]:
        """The records that are whole and were not told before. Nothing of a file that is no log."""
        from wandb.proto.wandb_internal_pb2 import Record

        with self.path.open("rb") as file:
            if self._at == 0 and file.read(len(MAGIC)) != MAGIC:
                return
            begin = self._at or len(MAGIC)
            file.seek(begin)
            data = file.read()
        parts: list[bytes] = []
        for end, kind, chunk in chunks(data, begin):
            parts = [chunk] if kind in (WHOLE, FIRST) else [*parts, chunk]
            if kind in (WHOLE, LAST):
                self._at = end
                yield Record.FromString(b"".join(parts))


def chunks(data: bytes, begin: int) -> Iterator[tuple[int, int, bytes]]:
    """The whole chunks of what stands in a log from a place on: where each ends, its kind and content."""
    at = begin
    while at - begin + CHUNK.size <= len(data):
        left = BLOCK - at % BLOCK
        if left < CHUNK.size:  # of a block no chunk begins in these
            at += left
            continue
        checksum, length, kind = CHUNK.unpack_from(data, at - begin)
        at += CHUNK.size
        chunk = data[at - begin : at - begin + length]
        if len(chunk) < length or zlib.crc32(chunk, zlib.crc32(bytes([kind]))) != checksum:
            return
        at += length
        yield at, kind, chunk


@dataclass
class Standing:
    """What the logs of a run say together.

    last: the last round of each key; next: the step behind the last; over: whether all is written, and the run ended then.
    """

    last: dict[str, int] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    artifacts: int = 0
    next: int = 0
    over: bool = False

    def hear(self, log: Log) -> None:
        """Take in what a log says more."""
        for record in log.more():
            kind = record.WhichOneof("record_type")
            if kind == "history":
                self._row(row_of(record.history))
            elif kind in ("run", "config"):
                changes = record.run.config if kind == "run" else record.config
                self.config |= {name_of(each): json.loads(each.value_json) for each in changes.update}
            elif kind == "artifact":
                self.artifacts += 1
            elif kind == "exit":
                self.over = self.config.get(WRITTEN) == YES

    def _row(self, row: dict[str, Any]) -> None:
        if STEP in row and ROUND in row:
            self.next = max(self.next, int(row[STEP]) + 1)
            for key in (name for name in row if name != ROUND and not name.startswith("_")):
                self.last[key] = max(self.last.get(key, -1), int(row[ROUND]))


def standing_of(folder: Path, run: str, project: str) -> Standing:
    """What stands of a run in a folder of wandb's."""
    found = Standing()
    for path in logs_of(folder, run, project):
        found.hear(Log(path))
    return found


def logs_of(folder: Path, run: str, project: str) -> list[Path]:
    """The logs of a run, the oldest first. run: its id; `*` stands for any."""
    found = [path for path in folder.glob(f"*/run-{run}.wandb") if path.parent.name.startswith(FOLDERS)]
    return [path for path in sorted(found, key=age) if project_of(path) == project]


def age(path: Path) -> tuple[str, int, str]:
    """Folders are named by the second that they were made in; of those of one second, the later have longer names."""
    name = path.parent.name.removeprefix(OFFLINE).removeprefix(FOLDERS[0])
    return name[:15], len(name), name


def project_of(path: Path) -> str | None:
    """The project that a log is of; none where it says none yet."""
    return next((str(record.run.project) for record in Log(path).more() if record.HasField("run")), None)


def rows_from(folder: Path, run: str, project: str, step: int) -> Iterator[dict[str, Any]]:
    """The numbers of a run that are logged from a step on, each step once, in order."""
    found: dict[int, dict[str, Any]] = {}
    for path in logs_of(folder, run, project):
        rows = (row_of(record.history) for record in Log(path).more() if record.HasField("history"))
        found |= {int(row[STEP]): row for row in rows if int(row.get(STEP, -1)) >= step}
    for _, row in sorted(found.items()):
        yield row


def row_of(history: Any) -> dict[str, Any]:
    return {name_of(item): json.loads(item.value_json) for item in history.item}


def name_of(item: Any) -> str:
    return str(item.key or ".".join(item.nested_key))
