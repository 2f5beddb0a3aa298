"""Objects of a bucket. The only module that knows the library which speaks S3."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from tideline.archive.digests import Buffer
from tideline.archive.parts import StoredPart
from tideline.core.errors import ConfigRefused, FederationError, StorageFull, Unreachable
from tideline_server.parts.opening import Address, endpoint_of

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Config


KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


@dataclass(frozen=True)
class Answer:
    """A pattern of what was said, what it means, before the place, and what to do."""

    said: str
    means: str
    todo: str
    kind: type[FederationError] = Unreachable


# The first that fits tells.
ANSWERS = (
    Answer(
        r"status code: 507|<Code>(XMinioStorageFull|QuotaExceeded)<",
        "No room for a part in",
        "Free space there, or raise its quota",
        StorageFull,
    ),
    Answer(r"<Code>NoSuchBucket<", "There is no such bucket:", "Create it, or correct --parts"),
    Answer(r"latest/api/token|[Mm]issing \w*Key", "There are no credentials for", f"Set {KEYS}"),
    Answer(r"redirect|status code: 30\d|<Code>AuthorizationHeaderMalformed<", "Another region has", "Set AWS_REGION to its own"),
    Answer(
        r"status code: 40[13]",
        "The credentials are refused for",
        f"See that {KEYS} are right, and that they may list, read, write and delete there",
    ),
    Answer(
        r"InvalidCertificate",
        "The certificate is not trusted of the store of",
        "Name the certificate of its authority in AWS_CA_BUNDLE",
    ),
    Answer(r"status code: \d", "The store failed to answer for", "See its own log"),
    Answer(r"", "There is no answer for", "See that the store runs, and that AWS_ENDPOINT_URL and AWS_REGION are right"),
)


def translated(said: str, place: str) -> FederationError:
    """A failure at a place. What was said may hold headers; only a status and the store's own word for it are repeated."""
    status, code = re.search(r"status code: (\d+)", said), re.search(r"<Code>(\w+)</Code>", said)
    why = " ".join(found[1] for found in (status, code) if found)
    answer = next(answer for answer in ANSWERS if re.search(answer.said, said))
    return answer.kind(f"{answer.means} {place}" + (f" ({why})" if why else ""), answer.todo)


LARGE = 5 << 20  # bytes from which an object is sent in pieces; S3 takes no smaller pieces
PIECES = 9_999  # of one object; S3 takes ten thousand, and what is left over by the division is one more
AT_ONCE = 2  # pieces under way of one object
READ = 8 << 20  # bytes of a request that reads
# Requests are small, so none takes long. Callers try again by themselves, so nobody is kept waiting here.
RETRY: RetryConfig = {"max_retries": 3, "retry_timeout": timedelta(seconds=15)}
TIMES: ClientConfig = {"connect_timeout": "5s", "timeout": "60s"}


class Bucket:
    """The objects below a prefix of a bucket. Endpoint, region and credentials are those of the environment.

    What fails raises Unreachable or StorageFull.
    """

    def __init__(self, address: Address, environ: Mapping[str, str]) -> None:
        self.address = address
        endpoint = endpoint_of(environ)
        options: ClientConfig = {**TIMES, "allow_http": endpoint is not None and endpoint.startswith("http://")}
        config: S3Config = {"disable_bulk_delete": True}  # one at a time is what every store can do
        if endpoint is not None:
            config["endpoint"] = endpoint
        if bundle := environ.get("AWS_CA_BUNDLE"):
            options["root_certificate"] = read_bundle(bundle)
        prefix = address.prefix or None
        try:
            self.store = S3Store(address.bucket, prefix=prefix, config=config, client_options=options, retry_config=RETRY)
        except (BaseError, ValueError) as error:
            raise unfit(error, address) from None

    def check(self) -> None:
        """List, write, copy, read and delete. Raises ConfigRefused."""
        probe = f"probe-{uuid.uuid4()}"
        try:
            next(self.listed(), None)
            self.put(probe, b"tideline")
            self.copy(probe, f"{probe}-copy")
            list(self.read(probe, self.size(probe) or 0))
            self.drop(probe)
            self.drop(f"{probe}-copy")
        except StorageFull:
            return  # a coordinator that runs drops parts, and so makes room
        except Unreachable as error:
            raise ConfigRefused(error.what, error.todo, path="parts") from None

    def size(self, name: str) -> int | None:
        """Bytes of an object; None if there is none."""
        with self.asked():
            try:
                return obstore.head(self.store, name)["size"]
            except FileNotFoundError:
                return None

    def read(self, name: str, size: int) -> Iterator[Buffer]:
        """The bytes of an object, a piece in memory at a time."""
        for at in range(0, size, READ):
            with self.asked():
                piece = obstore.get_range(self.store, name, start=at, length=min(READ, size - at))
            yield memoryview(piece)

    def put(self, name: str, content: bytes) -> None:
        """Write a small object at once."""
        with self.asked():
            obstore.put(self.store, name, content, use_multipart=False)

    def copy(self, name: str, to: str) -> bool:
        """Write an object's bytes under another name; False if there is no such object."""
        with self.asked():
            try:
                obstore.copy(self.store, name, to)
            except FileNotFoundError:
                return False
            return True

    def drop(self, name: str) -> None:
        with self.asked(), suppress(FileNotFoundError):
            obstore.delete(self.store, name)

    def listed(self, folder: str | None = None) -> Iterator[tuple[str, StoredPart]]:
        """All objects, or those of a folder, by name without the prefix."""
        with self.asked():
            for some in obstore.list(self.store, folder):
                yield from ((each["path"], StoredPart(each["last_modified"].timestamp(), each["size"])) for each in some)

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Tell the library's errors in our words."""
        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            raise translated(str(error), str(self.address)) from None


class Sending:
    """A large object on its way, a few pieces of it in memory. Nothing is seen of it before `complete`."""

    def __init__(self, bucket: Bucket, name: str, size: int) -> None:
        self._bucket = bucket
        # Equal pieces leave a few bytes over, so that an object of which all is sent needs no memory until it is completed.
        piece = size // max(1, min(size // LARGE, PIECES))
        with bucket.asked():
            self._file = obstore.open_writer(bucket.store, name, buffer_size=piece, max_concurrency=AT_ONCE)

    def write(self, buffer: Buffer) -> None:
        """Send on. Raises also for earlier pieces that did not arrive; then `abort`."""
        with self._bucket.asked():
            self._file.write(buffer)

    def complete(self) -> None:
        """Wait for all pieces, and give the object its name."""
        with self._bucket.asked():
            self._file.close()

    def abort(self) -> None:
        """Take back what was sent, as far as the store answers."""
        with suppress(BaseError, OSError):
            self._file.__exit__(InterruptedError, InterruptedError(), None)


def unfit(error: Exception, address: Address) -> ConfigRefused:
    """The refusal of an environment with which nobody can even be asked. A value may be a secret, so it is not repeated."""
    if "Missing" in str(error):
        means = translated(str(error), str(address))
        return ConfigRefused(means.what, means.todo, path="parts")
    return ConfigRefused("A variable AWS_... has a value that it cannot have", "Correct the environment")


def read_bundle(path: str) -> bytes:
    """The certificates that AWS_CA_BUNDLE names. Raises ConfigRefused."""
    try:
        return Path(path).read_bytes()
    except OSError as cause:
        todo = "Correct AWS_CA_BUNDLE, or leave it out"
        raise ConfigRefused(f"AWS_CA_BUNDLE cannot be read: {path}: {cause.strerror}", todo) from None
