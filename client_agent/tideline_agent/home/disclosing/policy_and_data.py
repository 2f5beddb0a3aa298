"""What the owner lets the coordinator be told of policy and data, where the policy's table [disclose] says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog

from tideline.archive.digests import BLOCK, Hasher
from tideline.engine.model.said.disclosed import Disclosed
from tideline.learning.sites.named import place_in
from tideline_agent.home.identity import write
from tideline_agent.policy_file import SitePolicy, policy_digest

log = structlog.get_logger()
CACHE = "data_digest.json"  # in the home: the digest, and what the files looked like when it was made
Looks = list[tuple[str, int, int]]  # path, bytes, when it was changed


@dataclass(frozen=True)
class Disclosing:
    """By the project of a run. Called at each join."""

    policy: SitePolicy
    data: Path
    home: Path

    def __call__(self, project: str) -> Disclosed | None:
        own = self.policy.of(project)
        disclose = own.rules.disclose
        text, whole = (own.text, policy_digest(self.policy)) if disclose.policy else ("", "")
        return Disclosed.of(text, whole, data_digest(self.data, self.home) if disclose.data else "")


def data_digest(data: Path, home: Path) -> str:
    """BLAKE3 of all files below a folder, with their paths; it is worked out anew once a file looks otherwise.

    Empty for data that a function gives, and for what cannot be read.
    """
    if place_in(data) is not None:
        return ""
    try:
        looks = list(looks_of(data))
        known = cached(home)
        if known is not None and known[0] == looks:
            return known[1]
        found = digest_of_files(data, looks)
        write(home / CACHE, json.dumps([looks, found]).encode())
    except OSError as error:
        log.warning("data_not_disclosed", reason=f"{error.filename or data} cannot be read: {error.strerror}")
        return ""
    return found


def looks_of(data: Path) -> Iterator[tuple[str, int, int]]:
    for path in sorted(each for each in data.rglob("*") if each.is_file()):
        seen = path.stat()
        yield path.relative_to(data).as_posix(), seen.st_size, seen.st_mtime_ns


def digest_of_files(data: Path, looks: Looks) -> str:
    """Of a line for each file, its path and size, and then of its bytes."""
    hasher = Hasher()
    for name, size, _ in looks:
        hasher.update(json.dumps([name, size]).encode() + b"\n")
        with (data / name).open("rb") as file:
            while block := file.read(BLOCK):
                hasher.update(block)
    return hasher.digest


def cached(home: Path) -> tuple[Looks, str] | None:
    try:
        looks, found = json.loads((home / CACHE).read_text())
        return [(str(name), int(size), int(at)) for name, size, at in looks], str(found)
    except (OSError, ValueError, TypeError):
        return None
