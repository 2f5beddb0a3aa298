"""The files of pages, read once. What is not in a table is not served, whatever an address says."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType

FOLDER = "static"
MEDIA: Mapping[str, str] = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "woff2": "font/woff2",
    "json": "application/json",
    "txt": "text/plain; charset=utf-8",
}
PACKED = frozenset({"html", "js", "css", "svg", "json", "txt"})  # the others are compressed in themselves
OTHER = "application/octet-stream"
REFUSED = re.compile(r"q=0(\.0*)?$")


@dataclass(frozen=True)
class StaticFile:
    """A file as it is served. packed: the same as gzip, where that is shorter; otherwise empty."""

    body: bytes
    packed: bytes
    media: str
    tag: str


@cache
def table(package: str) -> Mapping[str, StaticFile]:
    """Every file that pages share and every file of a package's own folder, by its path there, such as `vendor/preact.js`."""
    roots = (files(each).joinpath(FOLDER) for each in (__package__, package))
    return MappingProxyType({path: static_file(path, found.read_bytes()) for root in roots for path, found in walked(root)})


def walked(folder: Traversable, before: str = "") -> Iterator[tuple[str, Traversable]]:
    """The files below a folder, each with its path; hidden ones are an editor's."""
    for each in sorted(folder.iterdir(), key=lambda found: found.name):
        if each.name.startswith("."):
            continue
        if each.is_dir():
            yield from walked(each, f"{before}{each.name}/")
        else:
            yield before + each.name, each


def static_file(path: str, body: bytes) -> StaticFile:
    ending = path.rpartition(".")[2].lower()
    packed = gzip.compress(body, mtime=0) if ending in PACKED else b""
    tag = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'  # weak: it names both forms
    return StaticFile(body, packed if len(packed) < len(body) else b"", MEDIA.get(ending, OTHER), tag)


def takes_gzip(accepted: Iterable[str]) -> bool:
    """Whether Accept-Encoding names gzip, and not with a weight of 0 (RFC 9110, 12.5.3)."""
    for each in ",".join(accepted).lower().split(","):
        coding, _, weight = each.partition(";")
        if coding.strip() in ("gzip", "x-gzip", "*"):
            return REFUSED.fullmatch(weight.strip()) is None
    return False
