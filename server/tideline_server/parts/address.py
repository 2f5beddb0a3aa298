"""What `--parts` says: a directory's path, or the URL of a bucket and of a prefix in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from tideline.core.errors import ConfigRefused

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
        raise wrong(f"--parts is {where!r}: parts cannot lie there", WRITE_SO)
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
    if not is_door(environ[name]):  # which may hold a password, so it is not repeated
        todo = "Write https://HOST:PORT, or http://HOST:PORT where there is no TLS"
        raise ConfigRefused(f"{name} is not the URL of a store", todo, path=name)
    return environ[name]


def is_door(text: str) -> bool:
    """Whether a text is the URL of a server and says no more than that."""
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0 and bare(url)
    except ValueError:
        return False


def bare(url: SplitResult) -> bool:
    """Whether a URL names nobody, asks nothing and can be sent as it stands."""
    return "@" not in url.netloc and not url.query and not url.fragment and re.search(r"[^!-~]", url.geturl()) is None


def wrong(what: str, todo: str) -> ConfigRefused:
    """The refusal of what `--parts` says."""
    return ConfigRefused(what, todo, path="parts")
