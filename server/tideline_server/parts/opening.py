"""How the parts are stored: in a directory, which several coordinators may share, or in a bucket of S3."""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from tideline.archive.folder import LEFT_SECONDS, FolderParts, modified, room
from tideline.archive.parts import Parts
from tideline.archive.records import FOLDER, FolderRecords, Records
from tideline.core.errors import ConfigRefused, StorageFull

SCHEME = "s3://"
BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
STEP = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._=-]+")
WRITE_SO = "Write s3://BUCKET/PREFIX, or the path of a directory"
# As the usual tools name it, the one that wins first.
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


@dataclass(frozen=True)
class Address:
    """A bucket, and what the names of its objects begin with."""

    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.prefix}".rstrip("/")


def read_address(where: str) -> Address | Path:
    """A directory, or a bucket's address. Raises ConfigRefused."""
    if "://" not in where:
        return Path(where).expanduser()
    if "@" in where:  # what cannot be read is not repeated: a password may stand anywhere in it
        raise wrong("The URL of --parts has an @", "Leave credentials out of it: they are taken from AWS_ACCESS_KEY_ID and so on")
    if not where.startswith(SCHEME):
        raise wrong(f"--parts is {where!r}: parts cannot be stored there", WRITE_SO)
    bucket, _, prefix = where.removeprefix(SCHEME).partition("/")
    if not BUCKET.fullmatch(bucket):
        raise wrong(f"--parts is {where!r}: {bucket!r} cannot name a bucket", WRITE_SO)
    prefix = prefix.rstrip("/")
    if prefix and not all(STEP.fullmatch(step) for step in prefix.split("/")):
        todo = "Use letters, digits and . _ - = between single /"
        raise wrong(f"--parts is {where!r}: {prefix!r} cannot begin the names of objects", todo)
    return Address(bucket, prefix)


def endpoint_of(environ: Mapping[str, str]) -> str | None:
    """Where the store answers, if the environment names another than Amazon's. Raises ConfigRefused for what is no such URL."""
    name = next((name for name in ENDPOINTS if environ.get(name)), None)
    if name is None:
        return None
    if not is_server_url(environ[name]):  # which may hold a password, so it is not repeated
        todo = "Write https://HOST:PORT, or http://HOST:PORT where there is no TLS"
        raise ConfigRefused(f"{name} is not the URL of a store", todo, path=name)
    return environ[name]


def is_server_url(text: str) -> bool:
    """Whether a text is the URL of a server, names nobody, asks nothing, and can be sent as it stands."""
    try:
        url = urlsplit(text)
        bare = "@" not in url.netloc and not url.query and not url.fragment and re.search(r"[^!-~]", url.geturl()) is None
        return bare and url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        return False


def wrong(what: str, todo: str) -> ConfigRefused:
    return ConfigRefused(what, todo, path="parts")


OWN = "parts"  # of the home: nobody else writes there


class DirectoryParts(FolderParts):
    """Parts as files. What is under way to a shared directory lies in a folder of each coordinator's own beneath it.

    Two that continued one upload would mix their bytes, and one that starts would sweep what another is writing.
    """

    def __init__(self, folder: Path, home: Path) -> None:
        super().__init__(folder, tmp="tmp" if folder == home / OWN else f"tmp-{own_name(home)}")

    def records(self, chain: str) -> FolderRecords:
        return FolderRecords(self.folder / FOLDER / chain)

    def begin(self) -> None:
        """See that files can be made, and forget what killed processes left half done. Raises ConfigRefused."""
        probe = self._tmp / f"probe-{uuid.uuid4()}"
        try:
            with suppress(StorageFull), room(probe):  # a full disk is no reason: a coordinator that runs makes room
                probe.touch()
            self.sweep()  # the probe with the rest
            self.sweep_strays()
        except OSError as cause:
            raise refused(self.folder, cause) from None

    def sweep_strays(self) -> None:
        """Forget what coordinators left that do not come back: their homes are gone."""
        before = time.time() - LEFT_SECONDS
        for leftover in self.folder.glob("tmp-*/*"):
            if modified(leftover) < before:
                leftover.unlink(missing_ok=True)


def refused(folder: Path, cause: OSError) -> ConfigRefused:
    why = cause.strerror or type(cause).__name__
    return wrong(f"Parts cannot be stored in {folder}: {why}", "Give --parts a directory that you may write")


def own_name(home: Path) -> str:
    """A name that no other coordinator has; a home keeps its own."""
    path = home / "parts.id"
    if not path.exists() or not path.read_text():
        home.mkdir(parents=True, exist_ok=True)
        path.write_text(uuid.uuid4().hex)
    return path.read_text()


GIGABYTE = 10**9


class Opened(Parts, Protocol):
    """A store of parts, as a coordinator opens it."""

    def records(self, chain: str) -> Records:
        """The records of a chain, beside the parts."""
        ...

    def begin(self) -> None:
        """See that parts can be kept here, and forget what a killed process left half done. Raises ConfigRefused."""
        ...


def open_parts(where: str, home: Path, cache: float) -> Opened:
    """The store in a directory or, where a URL is given, in a bucket, of which `cache` GB are kept in the home.

    Nobody is asked yet: whether the store can be used, `begin` finds out. Raises ConfigRefused.
    """
    address = read_address(where)
    if isinstance(address, Address):
        return open_bucket(address, home, int(cache * GIGABYTE))
    try:
        return DirectoryParts(address, home)
    except OSError as cause:
        raise refused(address, cause) from None


def open_bucket(address: Address, home: Path, cache_bytes: int) -> Opened:
    """The store in a bucket. Raises ConfigRefused where the package that speaks S3 is not installed."""
    try:
        from tideline_server.parts.bucket import BucketParts
        from tideline_server.parts.cache import Cache
        from tideline_server.parts.s3 import Bucket
    except ModuleNotFoundError as cause:
        if cause.name != "obstore":
            raise
        what = f"--parts is {address}, and the package that speaks S3 is not installed"
        raise ConfigRefused(what, "pip install 'tideline[s3]'", path="parts") from None
    bucket = Bucket(address, os.environ)
    try:
        return BucketParts(bucket, Cache(home / "cache", cache_bytes))
    except OSError as cause:
        raise refused(home / "cache", cause) from None
