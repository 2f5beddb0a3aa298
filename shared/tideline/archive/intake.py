"""Several parts that come one after another in one stream, as the parts of a message do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from types import TracebackType

from tideline.archive.errors import DataTruncated, TooLarge
from tideline.archive.parts import Buffer, Parts, Upload
from tideline.core.run import Digest

MAX_PART_BYTES = 1 << 40
MIN_CHUNK, MAX_CHUNK = 1 << 16, 1 << 20
STREAMS = 8  # at once, where nobody knows how many there are
EASY_SECONDS, HARD_SECONDS = 0.1, 0.5  # a chunk that took less may be followed by a larger one, and after more by a smaller
CHUNKS = 4  # of a message, times the streams at once: each holds a few of them in memory, and all together about one message


class Intake:
    """Opens each part when its first byte is due and finishes it with its last; `full` is told of each that is whole.

    What came of a part that is not whole stays, as with any upload, so that a cut stream can go on. With `later`, a part is
    synced to disk on one of its threads while the next one comes in, and `end`, not `full`, tells that all of them are.
    """

    def __init__(
        self,
        files: Iterable[tuple[Digest, int]],
        begin: Callable[[Digest, int], Upload],
        full: Callable[[Upload], object] = lambda upload: None,
        later: Executor | None = None,
    ) -> None:
        self.came = 0
        self.whole: list[Upload] = []
        self._files: Iterator[tuple[Digest, int]] = iter(files)
        self._begin, self._full, self._later = begin, full, later
        self._finishing: list[Future[None]] = []
        self._upload: Upload | None = None
        self._size = 0

    def __enter__(self) -> Intake:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def room(self) -> int:
        """Bytes that the part at hand still takes; 0 where one is to be opened first, which reads what came of it before."""
        return 0 if self._upload is None else self._size - self._upload.offset

    def write(self, chunk: Buffer) -> None:
        """Take in the next bytes. Raises TooLarge beyond the last part, and what uploads raise."""
        rest = memoryview(chunk)
        self.came += len(rest)
        while rest:
            upload = self._due()
            if upload is None:
                raise TooLarge(f"{len(rest)} bytes follow the last part that was announced", "Send the parts that were announced")
            take = min(len(rest), self._size - upload.offset)
            upload.write(rest[:take])
            rest = rest[take:]

    def end(self) -> None:
        """No more bytes come. Raises DataTruncated if a part is not whole."""
        upload = self._due()
        for finishing in self._finishing:
            finishing.result()
        if upload is not None:
            raise DataTruncated(
                f"The stream ended {self._size - upload.offset} bytes before the end of a part", "It is sent again from there"
            )

    def close(self) -> None:
        """Let go of every part that was not committed; what came of it stays."""
        for upload in (*self.whole, *([self._upload] if self._upload else ())):
            upload.close()

    def _due(self) -> Upload | None:
        """The part that the next byte belongs to; whole ones are finished on the way. None after the last."""
        while True:
            if self._upload is None:
                following = next(self._files, None)
                if following is None:
                    return None
                self._size = following[1]
                self._upload = self._begin(*following)
            if self._upload.offset < self._size:
                return self._upload
            done, self._upload = self._upload, None
            self.whole.append(done)
            self._finish(done)

    def _finish(self, upload: Upload) -> None:
        if self._later is not None:
            self._finishing.append(self._later.submit(upload.finish))
            return
        upload.finish()
        self._full(upload)


def commit(upload: Upload) -> None:
    """For a store that keeps each part as soon as it is whole."""
    upload.commit()


def chunks(
    parts: Parts, wanted: Iterable[tuple[Digest, int]], most: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[memoryview]:
    """The bytes of parts from offsets on, up to `most` at once, one part mapped at a time. Raises PartMissing.

    Chunks are small at first, and as long as each of them takes the line long: one that is cut in its middle is sent again, and
    a line that is cut more often than it passes a chunk would never get on.
    """
    size = min(MIN_CHUNK, most)
    for digest, offset in wanted:
        view = parts.view(digest)
        while offset < len(view):
            began, at = clock(), offset
            offset += size
            yield view[at:offset]
            size = fitting(size, clock() - began, most)


def fitting(size: int, seconds: float, most: int) -> int:
    """The next chunk's size, from the seconds that one of a size took."""
    if seconds < EASY_SECONDS:
        return min(2 * size, most)
    return max(size // 2, min(MIN_CHUNK, most)) if seconds > HARD_SECONDS else size


def chunk_size(total: int, streams: int = STREAMS) -> int:
    """Bytes of a chunk for so many bytes in all, in so many streams at once."""
    return max(MIN_CHUNK, min(total // (CHUNKS * max(streams, 1)), MAX_CHUNK))
