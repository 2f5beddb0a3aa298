"""The records of releases, in docs/releases.md: what was built from which commit, and which formats it speaks.

A record is a block of TOML below the heading of its version. The newest comes first.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.wheels import ROOT, Failed, Wheel

PAGE = "docs/releases.md"
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
BLOCK = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
ROOTS = ("shared", "server", "client_agent", "protos")
ASK = (
    "import json; from tideline.engine import formats; from tideline.core.signing import PROTOCOL;"
    " from tideline.archive.layout import LAYOUT; from tideline.learning.model_file import FORMAT;"
    " from tideline_server.api.requests.wrapping import SPOKEN; from tideline_server.store.database.revisions import newest;"
    " print(json.dumps(dict(protocol=PROTOCOL, api=SPOKEN, schema=newest(), archive=int(LAYOUT), model=FORMAT,"
    " vault=formats.VAULT, ledger=formats.LEDGER, audit=formats.AUDIT)))"
)


@dataclass(frozen=True)
class Spoken:
    """The numbers of what a version writes: docs/releases.md says where each stands."""

    protocol: int
    api: int
    schema: str
    archive: int
    model: int
    vault: int
    ledger: int
    audit: int


@dataclass(frozen=True)
class Record:
    """One release. commit: the one that was built, whose tree has the version; date: of that commit, YYYY-MM-DD."""

    version: str
    date: str
    commit: str
    spoken: Spoken
    wheel: str
    sha256: str
    builder: str


def numbers(version: str) -> tuple[int, ...]:
    """A version, to be compared. Raises Failed for what is none."""
    if not VERSION.fullmatch(version):
        raise Failed(f"{version!r} is no version", "Write three whole numbers, such as 0.2.0")
    return tuple(map(int, version.split(".")))


def read_records(page: str) -> list[Record]:
    """The page's records, the newest first. Raises Failed for a block that is none."""
    found = []
    for block in BLOCK.findall(page):
        try:
            given = tomllib.loads(block)
            spoken = Spoken(**given.pop("formats"))
            found.append(Record(**given, spoken=spoken))
        except (tomllib.TOMLDecodeError, TypeError, KeyError) as error:
            raise Failed(f"{PAGE} has a record that cannot be read: {error}", "Restore the page from git") from None
    return found


def written(record: Record) -> str:
    """A record as a section of the page."""
    plain = asdict(record)
    spoken = plain.pop("spoken")
    lines = [f"{name} = {json.dumps(value)}" for name, value in plain.items()]
    formats = [f"{name} = {json.dumps(value)}" for name, value in spoken.items()]
    return "\n".join((f"## {record.version}", "", "```toml", *lines, "", "[formats]", *formats, "```", ""))


def added(page: str, record: Record) -> str:
    """The page with one more record before the others."""
    first = page.find("\n## ")
    head, rest = (page, "") if first < 0 else (page[: first + 1], page[first + 1 :])
    return f"{head.rstrip()}\n\n{written(record)}" + (f"\n{rest}" if rest else "")


def last_release(root: Path = ROOT) -> Record:
    """The newest record. Raises Failed where there is none."""
    page = root / PAGE
    records = read_records(page.read_text(encoding="utf-8")) if page.exists() else []
    if not records:
        raise Failed(f"{PAGE} names no release", "Restore the page from git")
    return records[0]


def python_path(source: Path) -> str:
    """Where Python finds the packages of a folder before any others."""
    return os.pathsep.join(filter(None, [*(str(source / each) for each in ROOTS), os.environ.get("PYTHONPATH")]))


def spoken_in(source: Path) -> Spoken:
    """What the code in a folder speaks, by its own word. Raises Failed."""
    path = os.pathsep.join([*(str(source / each) for each in ROOTS), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env=os.environ | {"PYTHONPATH": path},
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Failed(f"The code in {source} does not say what it speaks: {done.stderr.strip()[-500:]}", "Correct the code")
    return Spoken(**json.loads(done.stdout))


def record_of(version: str, commit: str, date: str, wheel: Wheel, spoken: Spoken) -> Record:
    """The record of a wheel."""
    return Record(
        version=version,
        date=date,
        commit=commit,
        spoken=spoken,
        wheel=wheel.path.name,
        sha256=wheel.sha256,
        builder=wheel.builder,
    )


def check_newer(version: str, current: str, records: Sequence[Record]) -> None:
    """Raises Failed unless a version is newer than every release; it may be the tree's own, if that was not released."""
    for each in records:
        if numbers(version) <= numbers(each.version):
            todo = f"Choose a version above {each.version}: one that was released is never made again"
            raise Failed(f"{version} is not newer than {each.version}, which {PAGE} names", todo)
    if numbers(version) < numbers(current):
        raise Failed(f"{version} is older than the tree's own version, {current}", f"Choose {current} or a newer version")
