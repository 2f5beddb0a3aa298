"""What a coordinator sees of itself and its users should hear: a disk that is nearly full, certificates that are soon over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tideline.engine.model.notices import Kind, Notice, lasting
from tideline.engine.model.validity import ending
from tideline_server.readiness import free_bytes

LOW = 2_000_000_000  # bytes of a disk, as deploy/metrics/alerts.yml has it


@dataclass(frozen=True)
class Watch:
    """Looks, when it is called with the time.

    who    this coordinator's name, for notices of a disk: each has its own
    disks  folders on whose disks it writes
    ends   when the certificates end that are known, by what they are called
    """

    who: str
    disks: tuple[Path, ...]
    ends: Callable[[], Mapping[str, float]] = dict
    free: Callable[[Path], int | None] = free_bytes

    def __call__(self, now: float) -> Iterable[Notice]:
        yield from self._disks(now)
        yield from self._certificates(now)

    def _disks(self, now: float) -> Iterator[Notice]:
        for folder in self.disks:
            free = self.free(folder)
            if free is not None and free < LOW:
                words = f"The disk of {folder} at {self.who} has {free // 1_000_000} MB left"
                source = lasting(Kind.DISK, now)
                yield Notice(Kind.DISK, now, words, source, subject=f"{self.who}:{folder}")

    def _certificates(self, now: float) -> Iterator[Notice]:
        for name, end in self.ends().items():
            if words := ending(end, now):
                yield Notice(
                    Kind.CERTIFICATE, now, f"The certificate of {name} {words}", lasting(Kind.CERTIFICATE, now), subject=name
                )
